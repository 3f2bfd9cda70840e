"""How long answers are, by route: what a request without a limit of its own is expected to take. Not a word of them."""

# The length of an answer that nothing is known of, tokens: what chat and code both lie around in published traces.
PRIOR_TOKENS = 256.0

# Weight of the newest answer in the mean: the last twenty or so decide it, so that one long answer does not.
NEWEST = 0.05


class Answers:
    """The mean length of lately finished answers, by route template, of which there are few."""

    __slots__ = ("_tokens",)

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}

    def expected(self, route: str) -> float:
        """Tokens that one sequence of this route is expected to generate."""
        return self._tokens.get(route, PRIOR_TOKENS)

    def heard(self, route: str, tokens: float, limit: int | None = None) -> None:
        """Take in that each sequence of an answer had `tokens`, by the engine's own count; 0 says nothing.

        One that reached the client's own `limit` says only that answers are no shorter: nothing where it is shorter
        than the mean, or clients that ask for a single token would have all answers taken for short.
        """
        before = self._tokens.get(route, PRIOR_TOKENS)
        bounded = limit is not None and limit <= tokens <= before
        if tokens > 0 and not bounded:
            self._tokens[route] = before + NEWEST * (tokens - before)
