"""Figures to tables in Markdown, aligned so that they can be read as they are. Pure."""

from collections.abc import Mapping, Sequence

from bench.figures import Figure
from bench.jobs import BATCH, IDLE, LOAD, PACED, PLAIN, STOPPED, STREAMS, unit

# Figures whose rounds differ for reasons of their own: their spread says nothing and would only widen the table.
BARE_CELLS = frozenset(
    ("streams", "refused", "lost", "wrong", "harness_share", "others_share", "before_mib", "after_mib")
)

Column = tuple[str, str, str]
_DELAYS: tuple[Column, ...] = (
    ("delay_p50_us", "delay p50 us", "{:.0f}"),
    ("added_delay_p50_us", "less direct", "{:.0f}"),
    ("delay_p99_us", "p99 us", "{:.0f}"),
    ("added_delay_p99_us", "less direct", "{:.0f}"),
)
_WHOLE: tuple[Column, ...] = (("lost", "lost", "{:.0f}"), ("wrong", "wrong", "{:.0f}"))
_HARNESS: tuple[Column, ...] = (("harness_share", "harness", "{:.2f}"), ("others_share", "others", "{:.2f}"))
_USER: tuple[Column, ...] = (("user_share", "user share", "{:.2f}"),)
_READS: tuple[Column, ...] = (("reads_per_unit", "reads/event", "{:.2f}"), ("delivered_share", "delivered", "{:.3f}"))
_MEMORY: tuple[Column, ...] = (("kib_per_stream", "KiB/stream", "{:.1f}"),)
_BEFORE_AFTER: tuple[Column, ...] = (("before_mib", "MiB before", "{:.0f}"), ("after_mib", "MiB after", "{:.0f}"))
_FIRST: tuple[Column, ...] = (
    ("first_byte_us", "first byte us", "{:.0f}"),
    ("added_first_byte_us", "less direct", "{:.0f}"),
)


def table(test: str, found: Mapping[str, Mapping[str, Figure]], bases: Sequence[str]) -> str:
    """One test's figures, each with its spread behind it where there were several rounds."""
    columns = _columns(test, [(f"over_{base}", f"/ {base}", "{:.2f}") for base in bases])
    # A column of which nobody has a figure, such as the ratio to a peer that is not here, is left out.
    shown = [column for column in columns if any(column[0] in own for own in found.values())]
    rows = [("contender", *(title for _, title, _ in shown))]
    rows.extend((name, *(_cell(own, column) for column in shown)) for name, own in found.items())
    return aligned(rows)


def seen_table(seen: Mapping[str, Mapping[str, str]]) -> str:
    """What was seen of each contender when something broke: {contender: {what broke: what was seen}}."""
    breaks = list(dict.fromkeys(what for each in seen.values() for what in each))
    rows = [("contender", *breaks)]
    rows.extend((name, *(each.get(what, "-") for what in breaks)) for name, each in seen.items())
    return aligned(rows)


def _columns(test: str, ratios: Sequence[Column]) -> list[Column]:
    cpu: Column = ("cpu_us", f"CPU us/{unit(test)}", "{:.1f}")
    if test in (LOAD, PACED, BATCH):
        return [cpu, *ratios, *_USER, *_DELAYS, *_FIRST, *_READS, *_WHOLE, *_HARNESS]
    if test == PLAIN:
        delays: tuple[Column, ...] = (("delay_p50_us", "p50 us", "{:.0f}"), ("delay_p99_us", "p99 us", "{:.0f}"))
        return [cpu, *ratios, *_USER, ("units_per_s", "requests/s", "{:.0f}"), *delays, *_HARNESS]
    if test == IDLE:
        return [("streams", "streams", "{:.0f}"), *_WHOLE, *_MEMORY, *ratios, *_BEFORE_AFTER]
    if test == STREAMS:
        carried: Column = ("streams", "streams", "{:.0f}")
        return [
            carried,
            ("refused", "refused", "{:.0f}"),
            *_WHOLE,
            *_MEMORY,
            *_BEFORE_AFTER,
            cpu,
            *ratios,
            *_DELAYS,
            *_READS,
            *_HARNESS,
        ]
    assert test == STOPPED
    return [("grew_mib", "grew MiB", "{:.1f}"), *_BEFORE_AFTER, *_WHOLE]


def _cell(own: Mapping[str, Figure], column: Column) -> str:
    key, _, form = column
    figure = own.get(key)
    if figure is None:
        return "-"
    value = form.format(figure.median)
    return value if key in BARE_CELLS or len(figure.values) < 2 else f"{value} ({figure.spread:.0%})"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table, the first of them its head."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [rows[0], rule, *rows[1:]]
    return "\n".join(_line(row, widths) for row in lines)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (
        cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {' | '.join((first, *rest))} |"
