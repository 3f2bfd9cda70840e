"""The measurement: contenders take turns under the same load, and what comes out is a table and JSON.

What is measured, and what the figures do not say: docs/benchmarks/README.md. Usage: scripts/bench --help.
"""

import argparse
import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import hot, syscalls
from bench.clocks import cores
from bench.contenders import (
    BARE,
    CONTENDERS,
    DIRECT,
    OURS,
    ROOT,
    Client,
    Engine,
    NotUp,
    Running,
    client,
    contender,
    engine,
)
from bench.figures import Figures, figures, table
from bench.jobs import STREAMS, TESTS, UNITS, Job, Load, Measurement
from bench.messages import events_of

import proxy

# Streams are begun over at most this long: apart, so that a first byte does not wait behind another's.
MAX_RAMP_S = 1.0
# Then connections and caches come to rest for at most this long.
MAX_SETTLE_S = 0.2
# All streams outlive the window by this much at most, should some begin late on a busy machine.
MAX_MARGIN_S = 0.5
# A measurement counts as disturbed when other programs had more than this of a core in its window: they push the
# proxy's code and data out of the caches, and it then needs up to a third more CPU for the same work.
CALM_SHARE = 0.1
LIBRARIES = ("aiohttp", "uvloop", "orjson", "structlog", "prometheus-client")
OK, FAILED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; the exit code."""
    options = parser().parse_args(argv)
    try:
        if options.profile:
            profile(options)
        else:
            report(options, run(options))
    except (NotUp, RuntimeError) as error:
        print(f"bench failed: {error}", file=sys.stderr)
        return FAILED
    return OK


def parser() -> argparse.ArgumentParser:
    """The options."""
    out = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.partition("\n")[0] if __doc__ else None)
    add = out.add_argument
    add("--rounds", type=int, default=3, metavar="N", help="turns of each contender (default 3)")
    add("--seconds", type=float, default=4.0, metavar="S", help="length of each window (default 4)")
    add("--streams", type=int, default=64, metavar="N", help="streams, and connections of the plain test (default 64)")
    add("--rate", type=float, default=20.0, metavar="R", help="events a second of each stream (default 20)")
    add("--redo", type=int, default=0, metavar="N", help="tries more when other programs disturb (default 0)")
    add("--contenders", type=names(CONTENDERS), default=list(CONTENDERS), metavar="A,B", help=",".join(CONTENDERS))
    add("--tests", type=names(TESTS), default=list(TESTS), metavar="A,B", help=",".join(TESTS))
    add("--json", type=Path, metavar="FILE", help="write figures and every measurement there")
    add(
        "--profile",
        action="store_true",
        help="no figures: where our own Python time goes, by cProfile, and system calls, by strace",
    )
    return out


def names(known: Sequence[str]) -> Any:
    """A type for argparse: some of the known names, separated by commas."""

    def some(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
        return chosen

    return some


def run(options: argparse.Namespace) -> list[Measurement]:
    """All measurements of a run, in the order they were made."""
    done: list[Measurement] = []
    with harness(options) as (behind, load), contextlib.ExitStack() as stack:
        running = [stack.enter_context(contender(name, behind)) for name in options.contenders]
        for number in range(options.rounds):
            for test in options.tests:
                for each in turns(running, number):
                    say(f"round {number + 1} of {options.rounds}: {test}, {each.name}")
                    best = calmest(load, job(options, test, each, behind), options.redo)
                    done.append(Measurement(number, test, each.name, best))
    return done


@contextlib.contextmanager
def harness(options: argparse.Namespace) -> Iterator[tuple[Engine, Client]]:
    """Engine and load client, running."""
    with engine(options.rate, events(options)) as behind, client() as load:
        yield behind, load


def calmest(load: Client, wanted: Job, redo: int) -> Load:
    """A measurement that nobody disturbed, or after `redo` more tries the one that was disturbed least."""
    best = load.measure(wanted)
    while best.others_cpu_s > CALM_SHARE * best.window_s and redo:
        redo -= 1
        best = min(best, load.measure(wanted), key=lambda each: each.others_cpu_s)
    return best


def turns(running: Sequence[Running], number: int) -> Sequence[Running]:
    """The contenders in this round's order: whoever was first is last in the next, so that order favours nobody."""
    first = number % len(running)
    return [*running[first:], *running[:first]]


def job(options: argparse.Namespace, test: str, running: Running, behind: Engine) -> Job:
    """One measurement to be made."""
    return Job(
        test=test,
        port=running.port,
        pid=running.pid,
        engine_pid=behind.pid,
        streams=options.streams,
        rate=options.rate,
        seconds=options.seconds,
        ramp_s=ramp_s(options),
        settle_s=settle_s(options),
        events=events(options),
    )


def ramp_s(options: argparse.Namespace) -> float:
    """Over how long the streams are begun."""
    return min(MAX_RAMP_S, float(options.seconds) / 4)


def settle_s(options: argparse.Namespace) -> float:
    """How long after that the window opens."""
    return min(MAX_SETTLE_S, float(options.seconds) / 5)


def events(options: argparse.Namespace) -> int:
    """How long a stream must be for all of them to run through the whole window."""
    margin_s = min(MAX_MARGIN_S, options.seconds / 4)
    return events_of(ramp_s(options) + settle_s(options) + options.seconds + margin_s, options.rate)


def profile(options: argparse.Namespace) -> None:
    """Print where our own time goes, a test at a time."""
    with harness(options) as (behind, load), tempfile.TemporaryDirectory(prefix="crossover-bench-") as folder:
        for test in options.tests:
            say(f"profile: {test}")
            path = Path(folder) / f"{test}.prof"
            with contender(OURS, behind, profile=path) as ours:
                load.measure(job(options, test, ours, behind))
            size = events(options) if test == STREAMS else 1
            print(hot.top(path, test, ROOT / "proxy", size))
            if syscalls.can_count():
                with contender(OURS, behind) as ours:
                    assert ours.pid is not None
                    wanted = job(options, test, ours, behind)
                    print(syscalls.top(ours.pid, test, lambda wanted=wanted: load.measure(wanted), size))


def report(options: argparse.Namespace, measurements: Sequence[Measurement]) -> None:
    """Print the tables; write the JSON where one is wanted."""
    found = figures(measurements, base=BARE, direct=DIRECT)
    for test, own in found.items():
        print(f"\n{test}: {headline(options, test)}\n{table(test, own)}")
    lost = sum(each.load.lost for each in measurements)
    print(f"\nIn brackets: greatest less least of the rounds, as a share of the median. Events lost: {lost}.")
    if options.json is not None:
        options.json.write_text(written(as_json(options, measurements, found)))


def headline(options: argparse.Namespace, test: str) -> str:
    """What the load of a test was."""
    if test == STREAMS:
        return f"{options.streams} streams x {options.rate:g} {UNITS[test]}s/s, {options.seconds:g} s"
    return f"{options.streams} kept connections in a closed loop, {options.seconds:g} s"


def as_json(options: argparse.Namespace, measurements: Sequence[Measurement], found: Figures) -> dict[str, Any]:
    """Everything worth keeping of a run."""
    load = {
        name: getattr(options, name) for name in ("rounds", "seconds", "streams", "rate", "redo", "contenders", "tests")
    }
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "load": load,
        "machine": machine(),
        "versions": {
            "crossover": proxy.__version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in LIBRARIES},
        },
        "figures": {
            test: {name: {what: each.as_json() for what, each in own.items()} for name, own in of_test.items()}
            for test, of_test in found.items()
        },
        "measurements": [dataclasses.asdict(each) for each in measurements],
    }


def written(result: dict[str, Any]) -> str:
    """A result as a file that people can read and compare: a measurement a line."""
    rest = dict(result)
    lines = ",\n  ".join(json.dumps(each) for each in rest.pop("measurements"))
    return f'{json.dumps(rest, indent=1)[:-2]},\n "measurements": [\n  {lines}\n ]\n}}\n'


def machine() -> dict[str, Any]:
    """The machine in words that name nobody."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "pinned": cores() is not None,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def say(line: str) -> None:
    """Tell the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
