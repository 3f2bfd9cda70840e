"""When readers get the whole state again: at once after what must be seen, and else every few turns.

Most of what an open page costs is to make it. What it is made of is not here (app.py); counts are in every row anyway.
"""

from proxy.telling import CERTAIN
from proxy.watch.history import Sample

# Turns after which readers get the state though nothing calls for it: what it tells is never older.
EVERY_TURNS = 5


class Due:
    """Whether the state is due, of one stream. Turns are told in their order."""

    def __init__(self) -> None:
        self._turns = EVERY_TURNS
        self._written = 0
        self._waited = False
        self._choosing = _Choosing()

    def turn(self, sample: Sample, written: int) -> bool:
        """Whether it is due after this turn, when so many entries of the journal have been written: what the state
        tells by then is what the next turns are compared with."""
        self._turns += 1
        begins_to_wait = sample.waiting > 0 and not self._waited
        others_choose = self._choosing.turns(sample)
        due = written != self._written or begins_to_wait or others_choose or self._turns >= EVERY_TURNS
        if due:
            self._turns, self._written, self._waited = 0, written, sample.waiting > 0
        return due


class _Choosing:
    """Who chooses the backend of all requests: their clients, a rule, or neither."""

    def __init__(self) -> None:
        self._who: str | None = "policy"
        self._since: str | None = "policy"
        self._requests = 0

    def turns(self, sample: Sample) -> bool:
        """Whether since this sample it is certain that another one does."""
        requests = sample.speculative_requests + sample.baseline_requests
        if not requests:
            return False
        shares = {"clients": sample.named, "rule": sample.ruled, "policy": requests - sample.named - sample.ruled}
        who = next((each for each, number in shares.items() if number == requests), None)
        self._requests = requests if who != self._since else self._requests + requests
        self._since = who
        if who is None or who == self._who or self._requests < CERTAIN:
            return False
        self._who = who
        return True
