"""A load's report as text for a terminal and as JSON. What the figures mean is in lab/loadreport.py."""

from collections.abc import Container, Mapping, Sequence

import orjson

from proxy.lab.loadreport import Comparison, Level, LevelSpec, Loop, Report, Spread
from proxy.model import ROLES

# A value that is not known. Never 0: nought tokens a second is a measurement.
_UNKNOWN = "-"

Row = Sequence[str]


def render(report: Report) -> str:
    """The whole report as lines of text: levels, comparison, notes."""
    parts = [aligned([_LEVEL_HEAD, *(_level_row(level) for level in report.levels)])] if report.levels else []
    if report.comparisons:
        parts.append(aligned([_COMPARISON_HEAD, *(_comparison_row(row) for row in report.comparisons)]))
    if report.notes:
        parts.append("".join(f"note: {note}\n" for note in report.notes))
    return "\n".join(parts)


def to_json(report: Report) -> bytes:
    """The report as indented JSON: the fields of Report under their own names, durations in seconds."""
    return orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def level_name(spec: LevelSpec) -> str:
    """A level in words: `concurrency 8`, `rate 0.5/s`."""
    return f"concurrency {spec.value:g}" if spec.loop is Loop.CLOSED else f"rate {spec.value:g}/s"


_LEVEL_HEAD = (
    "level",
    "requests",
    "errors",
    "in flight",
    "tok/s",
    "tok/s per request",
    "p10",
    "TTFT s p50",
    "p99",
    "TPOT s p50",
    "p99",
    *ROLES,
    "switches",
    "reasons",
)

_COMPARISON_HEAD = (
    "level",
    "own choice tok/s",
    "only speculative tok/s",
    "only baseline tok/s",
    "gain over the better (95 %)",
)


def _level_row(level: Level) -> Row:
    speed, ttft, tpot = level.request_tokens_per_s, level.ttft_s, level.tpot_s
    return (
        level_name(level.spec),
        str(level.requests),
        _counts(level.errors) or "0",
        f"{level.in_flight:.1f}",
        _number(level.tokens_per_s, 1),
        _number(speed.mean if speed else None, 1),
        _number(speed.p10 if speed else None, 1),
        *_typical_and_worst(ttft, 3),
        *_typical_and_worst(tpot, 4),
        *(_share(level.shares, role) for role in ROLES),
        # Where each request is decided by itself, neighbours that differ are no switch.
        _UNKNOWN if level.switches is None else str(level.switches),
        _counts(level.reasons) or _UNKNOWN,
    )


def _comparison_row(row: Comparison) -> Row:
    return (
        level_name(row.spec),
        _number(row.own, 1),
        _number(row.only_speculative, 1),
        _number(row.only_baseline, 1),
        _gain(row),
    )


def _gain(row: Comparison) -> str:
    if row.gain is None or row.noise is None:
        return _UNKNOWN if row.gain is None else f"{row.gain:+.1%}"
    told = f"{row.gain:+.1%} ({row.gain - row.noise:+.1%} to {row.gain + row.noise:+.1%})"
    return f"{told}, noise" if abs(row.gain) <= row.noise else told


def aligned(rows: Sequence[Row], *, left: Container[int] = ()) -> str:
    """Lines with columns as wide as their widest cell: the first and those of `left` flush left, the last as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *middle = row[:-1]
        cells = [first.ljust(widths[0])]
        for column, cell in enumerate(middle, 1):
            cells.append(cell.ljust(widths[column]) if column in left else cell.rjust(widths[column]))
        lines.append("  ".join([*cells, row[-1]]).rstrip() + "\n")
    return "".join(lines)


def _typical_and_worst(values: Spread | None, digits: int) -> Row:
    if values is None:
        return _UNKNOWN, _UNKNOWN
    return _number(values.p50, digits), _number(values.p99, digits)


def _number(value: float | None, digits: int) -> str:
    return _UNKNOWN if value is None else f"{value:.{digits}f}"


def _share(shares: Mapping[str, float], role: str) -> str:
    return f"{shares.get(role, 0.0):.0%}" if shares else _UNKNOWN


def _counts(counts: Mapping[str, int]) -> str:
    """Names with their counts, most frequent first: `12 regime, 1 other_full`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)
