"""What the clients of one cell saw: tokens as they came, pauses between chunks, requests that ended or still run.

It only adds up; sending is in crowd.py, and what the sums mean is in counting.py.
"""

from array import array
from typing import NamedTuple


class Seen(NamedTuple):
    """Sums since the cell's begin: tokens told along with the content, chunks, and chunks that told no count."""

    tokens: int
    chunks: int
    untold: int


class Tally:
    """The watch of every answer of a cell. Pauses are kept only while it `counts`, since only the window's matter."""

    __slots__ = ("_chunks", "_tokens", "_untold", "counts", "gaps")

    def __init__(self) -> None:
        self._tokens = self._chunks = self._untold = 0
        self.counts = False
        self.gaps = array("d")

    def event(self, *, visible: bool, told: bool, new_tokens: int, gap_s: float | None) -> None:
        """See `loadcall.Watch`."""
        self._tokens += new_tokens
        if visible:
            self._chunks += 1
            if not told:
                self._untold += 1
            if gap_s is not None and self.counts:
                self.gaps.append(gap_s)

    def seen(self) -> Seen:
        """The sums of now."""
        return Seen(self._tokens, self._chunks, self._untold)
