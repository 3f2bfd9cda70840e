"""A profile to text: the functions of the proxy that cost most. cProfile makes every call dearer: read the order, not
the times, and compare no figure of a profiled run with one that is not."""

import io
import pstats
import re
from pathlib import Path

SHOWN = 30


def top(path: Path, test: str, root: Path) -> str:
    """The dearest functions by their own time, then those below `root` with all that they call."""
    out = io.StringIO()
    stats = pstats.Stats(str(path), stream=out)
    stats.sort_stats("tottime").print_stats(SHOWN)
    stats.sort_stats("cumulative").print_stats(f"^{re.escape(str(root))}", SHOWN * 2)
    return f"== {test}\n{_shortened(out.getvalue(), root)}"


def _shortened(text: str, root: Path) -> str:
    return re.sub(rf"{re.escape(str(root))}/|\S*/(?=[^/\s]+/[^/\s]+\.py:)", "", text)
