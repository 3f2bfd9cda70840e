"""A profile to text: the functions of the proxy that cost most, by the request and by the event. cProfile makes every
call dearer: read the order, not the times, and compare no figure of a profiled run with one that is not."""

import pstats
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

SHOWN = 30
# What the proxy does exactly once for each request, and for each event that comes by itself: so many there were.
ONCE_A_REQUEST, ONCE_AN_EVENT = "request_ended", "came"
HEAD = f"{'calls':>9} {'own us':>9} {'with callees':>13}   a unit"


def top(path: Path, test: str, root: Path, once: str = ONCE_A_REQUEST) -> str:
    """The dearest functions by their own time, then those below `root` with all that they call; a unit of work is what
    calls the function `once`."""
    # What pstats reads is not in its stubs: (file, line, name) to (calls at the bottom, calls, own s, s, callers).
    stats = cast(dict[tuple[str, int, str], Any], pstats.Stats(str(path)).stats)  # type: ignore[attr-defined]
    units = max((calls for (_, _, name), (calls, *_) in stats.items() if name == once), default=0)
    lines = [(_place(where, root), figures) for where, figures in stats.items()]
    ours = [line for line, where in zip(lines, stats, strict=True) if where[0].startswith(str(root))]
    return "\n".join(
        (
            f"== {test}: {units} units",
            f"by their own time\n{HEAD}",
            *_rows(sorted(lines, key=lambda line: -line[1][2])[:SHOWN], max(1, units)),
            f"ours, with all that they call\n{HEAD}",
            *_rows(sorted(ours, key=lambda line: -line[1][3])[:SHOWN], max(1, units)),
        )
    )


def _rows(lines: list[tuple[str, Any]], units: int) -> Iterator[str]:
    for place, (_, calls, own_s, whole_s, _) in lines:
        yield f"{calls / units:9.2f} {own_s / units * 1e6:9.2f} {whole_s / units * 1e6:13.2f}   {place}"


def _place(where: tuple[str, int, str], root: Path) -> str:
    file, line, name = where
    short = re.sub(rf"^{re.escape(str(root))}/|^.*/(?=[^/]+/[^/]+\.py$)", "", file)
    return f"{short}:{line} {name}" if line else name
