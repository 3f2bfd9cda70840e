"""When readers get the whole state again: at once after what must be seen, and else every few turns.

Most of what an open page costs is to make it. What it is made of is not here (app.py); counts are in every row anyway.
"""

from proxy.watch.history import Sample

# Turns after which readers get the state though nothing calls for it: what it tells is never older.
EVERY_TURNS = 5


class Due:
    """Whether the state is due, of one stream. Turns are told in their order."""

    def __init__(self) -> None:
        self._turns = EVERY_TURNS
        self._written = 0
        self._waited = False

    def turn(self, sample: Sample, written: int) -> bool:
        """Whether it is due after this turn, when so many entries of the journal have been written: what the state
        tells by then is what the next turns are compared with."""
        self._turns += 1
        begins_to_wait = sample.waiting > 0 and not self._waited
        due = written != self._written or begins_to_wait or self._turns >= EVERY_TURNS
        if due:
            self._turns, self._written, self._waited = 0, written, sample.waiting > 0
        return due
