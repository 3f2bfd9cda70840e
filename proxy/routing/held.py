"""How many sequences a backend has held in the mean since some instant: what one answer was slowed down by.

Counting them is not here (state/ledger.py); this is told each number as it comes to be.
"""

from bisect import bisect_right

# Instants that are remembered lie so far apart at least, and so many are: five minutes at least, and a mean that is
# off by a few thousandths for an answer of a minute. Longer answers tell nothing.
APART_S, MOST = 0.25, 1200


class Held:
    """The mean number in flight over any time of late."""

    __slots__ = ("_area", "_areas", "_at_s", "_instants_s", "_now", "_square")

    def __init__(self) -> None:
        self._now = 0
        self._at_s = float("-inf")
        self._area = self._square = 0.0
        self._instants_s: list[float] = []
        self._areas: list[float] = []

    def note(self, in_flight: int, now_s: float) -> None:
        """From `now_s` on so many are in flight. A clock that goes back begins anew."""
        instants_s = self._instants_s
        if now_s < self._at_s:
            instants_s.clear()
            self._areas.clear()
        elif instants_s:
            more = self._now * (now_s - self._at_s)
            self._area += more
            self._square += self._now * more
        self._now, self._at_s = in_flight, now_s
        if not instants_s or now_s - instants_s[-1] >= APART_S:
            instants_s.append(now_s)
            self._areas.append(self._area)
            if len(instants_s) >= 2 * MOST:
                del instants_s[:MOST], self._areas[:MOST]

    def sums(self, now_s: float) -> tuple[float, float]:
        """Since the start: in flight, and its square, times seconds. What happens once is their difference."""
        more = self._now * max(0.0, now_s - self._at_s) if self._instants_s else 0.0
        return self._area + more, self._square + self._now * more

    def mean(self, since_s: float) -> float | None:
        """The mean from `since_s` until the last number that was noted; None where that is too long ago."""
        place = bisect_right(self._instants_s, since_s)
        if place == 0 or since_s >= self._at_s:
            return None
        before_s, area = self._instants_s[place - 1], self._areas[place - 1]
        if place < len(self._instants_s):
            share = (since_s - before_s) / (self._instants_s[place] - before_s)
            area += share * (self._areas[place] - area)
        else:
            area += (self._area - area) * (since_s - before_s) / (self._at_s - before_s)
        return (self._area - area) / (self._at_s - since_s)
