"""Rows of a comparison as JSON, and as a table for a terminal. Pictures are in plots.py."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from proxy import __version__
from proxy.lab.loadtable import aligned
from proxy.lab.simulation.arms import OF_ONE_KIND
from proxy.lab.simulation.cells import ORACLES, Row
from proxy.lab.simulation.tally import Overload, Span, mean

_HEAD = ("policy", "mean s", "± 95 %", "p99 s", "ttft s", "goodput", "speculative", "waited", "switches")
# Shares that are told where there are any.
_ENDS = ("failed", "gone", "retried")


def as_json(rows: Sequence[Row]) -> bytes:
    """All rows as one document; durations in seconds, shares from 0 to 1, a regret of 0.02 is 2 % more time, one of
    goodput the share of requests that an oracle serves well beyond ours."""
    made = {"made_by": f"crossover {__version__} simulate", "rows": [_plain(row) for row in rows]}
    return orjson.dumps(made, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def table(rows: Sequence[Row]) -> str:
    """One block for each cell, a line for each way in it, and what the oracles reach."""
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.curve, row.placement, row.arrivals, row.load), []).append(row)
    return "\n".join(_block(block) for block in cells.values())


# What stands in a row in place of numbers, and what it means.
OVERLOADED = "overloaded"
_MEANING = f"{OVERLOADED}: more comes than it carries; mend: lower --load, or --max-in-flight where speed falls with it"


def _block(rows: Sequence[Row]) -> str:
    first = rows[0]
    asked = [name for name in ORACLES if name in first.oracle]
    load = "its own pace" if first.load is None else f"load {first.load:g} ({first.rate_per_s:.3g} requests/s)"
    head = f"{', '.join((first.curve, f'{first.placement} GPUs', first.arrivals, load, *first.course))}\n"
    ends = [name for name in _ENDS if any(getattr(row.tally, name) > 0.0 for row in rows)]
    lines = [(*_HEAD, *ends, *(f"above {name}" for name in asked))]
    lines += [_line(row, ends, asked) for row in rows]
    below = [_oracle(first, name) for name in asked]
    if given_up := [_given_up(row.policy, row.overload) for row in rows if row.overload is not None]:
        below.append(f"{_MEANING}\n{''.join(given_up)}")
    return head + aligned(lines) + "".join(below)


def _given_up(policy: str, overload: Overload) -> str:
    seed, after_s, waiting = overload
    return f"  {policy}: {waiting} waited when it was given up after {after_s:,.0f} s (seed {seed})\n"


def _line(row: Row, ends: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    seen = row.tally
    if row.overload is not None:
        return (row.policy, OVERLOADED, *("-" for _ in (*_HEAD[2:], *ends, *asked)))
    return (
        row.policy,
        f"{seen.mean_e2e_s:.3f}",
        _half_width(row.mean_e2e_s),
        f"{seen.p99_e2e_s:.2f}",
        f"{seen.mean_ttft_s:.3f}",
        f"{seen.goodput:.1%}",
        "-" if row.policy.partition(":")[0] in OF_ONE_KIND else f"{seen.share_speculative:.0%}",
        f"{seen.waited:.0%}",
        f"{seen.switches:.1f}",
        *(f"{getattr(seen, name):.2%}" for name in ends),
        *(_above(row.regret[name]) for name in asked),
    )


def _oracle(row: Row, name: str) -> str:
    held = row.oracle[name]
    foretold = f", its chain foretells {row.foretold_s:.3f}" if name == "o1" and row.foretold_s is not None else ""
    goodput = mean(held.goodput).goodput
    return f"{name}: {held.name}, mean {held.mean_e2e_s:.3f} s{foretold}; at best {goodput:.1%} keep the goals\n"


def _half_width(found: Span) -> str:
    return "-" if found.high is None or found.low is None else f"{(found.high - found.low) / 2:.3f}"


def _above(found: Span) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:+.1%}"
    return f"{found.mean:+.1%} ± {(found.high - found.low) / 2:.1%}"


def _plain(row: Row) -> Mapping[str, Any]:
    return {
        "curve": row.curve,
        "placement": row.placement,
        "policy": row.policy,
        "load": row.load,
        "arrivals": row.arrivals,
        "rate_per_s": row.rate_per_s,
        "seeds": row.seeds,
        "requests": row.requests,
        **row.tally._asdict(),
        "mean_e2e_ci95_s": [row.mean_e2e_s.low, row.mean_e2e_s.high],
        "oracle": {name: _held(row, name) for name in ORACLES},
        "foretold_o1_s": row.foretold_s,
        "oracle_policy": {name: row.oracle[name].name for name in ORACLES if name in row.oracle},
        "regret": {name: _regret(row.regret, name) for name in ORACLES},
        "regret_p99": {name: _regret(row.regret_p99, name) for name in ORACLES},
        "oracle_goodput": {name: mean(held.goodput).goodput for name, held in row.oracle.items()},
        "regret_goodput": {name: _regret(row.regret_goodput, name) for name in ORACLES},
        "course": list(row.course),
        "control": row.control,
        "overload": None if row.overload is None else row.overload._asdict(),
    }


def _held(row: Row, name: str) -> float | None:
    return row.oracle[name].mean_e2e_s if name in row.oracle else None


def _regret(found: Mapping[str, Span], name: str) -> Mapping[str, Any] | None:
    if name not in found:
        return None
    return {"mean": found[name].mean, "ci95": [found[name].low, found[name].high]}
