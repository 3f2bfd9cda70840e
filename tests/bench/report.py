"""What a run leaves: tables on the screen and, where wanted, a file with the figures and every measurement."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench.contenders import BARE, DIRECT
from bench.figures import Figures, figures
from bench.files import max_streams
from bench.jobs import BREAKS, IDLE, PLAIN, SHAPES, STOPPED, Measurement
from bench.options import Options
from bench.peers import HAPROXY, SGLANG, Found
from bench.provenance import machine, today, versions
from bench.tables import seen_table, table

# What ratios are to, where it was measured: the cheapest proxy there is, the one that people run in front of engines,
# and what anyone would write.
BASES = (HAPROXY, SGLANG, BARE)


def report(options: Options, measurements: Sequence[Measurement], peers: Mapping[str, Found]) -> None:
    """Print the tables; write the JSON where one is wanted."""
    found = figures(measurements, bases=BASES, direct=DIRECT)
    for test, own in found.items():
        print(f"\n{test}: {headline(options, test)}\n\n{table(test, own, BASES)}")
    seen = {each.contender: each.seen for each in measurements if each.seen}
    if seen:
        print(f"\n{BREAKS}: one occurrence each, on a contender just started, with two engines\n\n{seen_table(seen)}")
    failures = [each for each in measurements if each.failure]
    for each in failures:
        print(f"\nfailed: {each.contender}, {each.test}, round {each.round + 1}: {each.failure}")
    print("\nIn brackets: greatest less least of the rounds, as a share of the median.")
    if options.json is not None:
        options.json.write_text(written(as_json(options, measurements, found, peers)))


def headline(options: Options, test: str) -> str:
    """What the load of a test was."""
    shape = SHAPES[test]
    wanted = options.streams_of(test)
    streams = min(wanted, max_streams())
    limited = f" (more than {streams} do not fit below the limit of open files)" if wanted > streams else ""
    window = f"{options.seconds:g} s"
    if test == PLAIN:
        return f"{streams} kept connections in a closed loop, {window}"
    if test == IDLE:
        return f"{streams} streams, one event each and then silence"
    if test == STOPPED:
        return f"one stream of {shape.rate / 16:g} MiB/s, whose reader takes nothing for {window}"
    together = ", all on one tick" if shape.shape == "tick" else ""
    return f"{streams} streams x {shape.rate:g} events/s{together}, {window}{limited}"


def as_json(
    options: Options, measurements: Sequence[Measurement], found: Figures, peers: Mapping[str, Found]
) -> dict[str, Any]:
    """Everything worth keeping of a run."""
    left_out = ("json", "list", "peers", "profile")
    return {
        "date": today(),
        "machine": machine(),
        "versions": versions(peers),
        "options": {name: value for name, value in dataclasses.asdict(options).items() if name not in left_out},
        "shapes": {test: dataclasses.asdict(SHAPES[test]) for test in found},
        "figures": {
            test: {name: {what: each.as_json() for what, each in own.items()} for name, own in of_test.items()}
            for test, of_test in found.items()
        },
        "measurements": [shortened(each) for each in measurements],
    }


def shortened(each: Measurement) -> dict[str, Any]:
    """A measurement without what it has not."""
    whole = dataclasses.asdict(each)
    if whole["load"] is not None:
        whole["load"] = {name: value for name, value in whole["load"].items() if value is not None}
    return {name: value for name, value in whole.items() if value not in (None, {})}


def written(result: dict[str, Any]) -> str:
    """A result as a file that people can read and compare: a measurement a line."""
    rest = dict(result)
    lines = ",\n  ".join(json.dumps(each) for each in rest.pop("measurements"))
    return f'{json.dumps(rest, indent=1)[:-2]},\n "measurements": [\n  {lines}\n ]\n}}\n'
