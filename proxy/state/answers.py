"""How long answers are, by route: what a request without a limit of its own is expected to take. Not a word of them."""

from heapq import heappop, heappush

# The length of an answer that nothing is known of, tokens: what chat and code both lie around in published traces.
PRIOR_TOKENS = 256.0

# The prior counts as so many answers: the first few decide little, and a prior that is wrong is soon forgotten.
PRIOR_WEIGHS = 10.0

# Weight of the newest answer in the mean, at least: the last hundred or so decide it. Lengths scatter as much as their
# mean, so that the mean of twenty was off by a sixth, more than the counts are that it is multiplied with.
NEWEST = 0.01

# An answer waits for those asked before it, until as many wait for each that is in flight. Where lengths are
# exponential the oldest of n in flight has outlived so many times n others up to n = 400; one who stays for ever holds
# nobody up.
MOST_AHEAD = 6

_PRIOR = (PRIOR_TOKENS, PRIOR_WEIGHS)


class Answers:
    """The mean length of lately finished answers, by route template, of which there are few.

    Answers count in the order in which they were asked for. Of those asked for at one time the short ones end first: in
    the order of their ends a proxy that has just begun, or one whose engines have become slower, takes all for short.
    """

    __slots__ = ("_early", "_ended", "_means")

    def __init__(self) -> None:
        self._means: dict[str, tuple[float, float]] = {}  # with what all before the newest one weigh
        self._early: list[tuple[float, int, str, float, int | None]] = []
        self._ended = 0

    def expected(self, route: str) -> float:
        """Tokens that one sequence of this route is expected to generate."""
        return self._means.get(route, _PRIOR)[0]

    def ended(
        self, asked_at_s: float, route: str, tokens: float, limit: int | None, *, oldest_at_s: float, in_flight: int
    ) -> None:
        """As `heard`, of an answer asked for at `asked_at_s`, once none that was asked for before is in flight any
        more: the oldest of `in_flight` was at `oldest_at_s`."""
        self._ended += 1
        early = self._early
        heappush(early, (asked_at_s, self._ended, route, tokens, limit))
        while early and (early[0][0] <= oldest_at_s or len(early) > MOST_AHEAD * in_flight):
            self.heard(*heappop(early)[2:])

    def heard(self, route: str, tokens: float, limit: int | None = None) -> None:
        """Take in that each sequence of an answer had `tokens`, by the engine's own count; 0 says nothing.

        One that reached the client's own `limit` says only that answers are no shorter: nothing where it is shorter
        than the mean, or clients that ask for a single token would have all answers taken for short.
        """
        before, weighs = self._means.get(route, _PRIOR)
        bounded = limit is not None and limit <= tokens <= before
        if tokens > 0 and not bounded:
            weighs += 1.0
            self._means[route] = before + max(NEWEST, 1.0 / weighs) * (tokens - before), weighs
