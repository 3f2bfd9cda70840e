"""When readers get the whole state again: at once after what must be seen, soon while the load moves, and now and then.

To make it costs as much as all else that a turn does, ten times over. What it is made of is not here (app.py).
"""

from proxy.watch.history import Sample

# Turns after which readers get the state though nothing has moved: ages and drift grow meanwhile.
CALM_TURNS = 5
# The same while the load moves, which every row tells anyway: the sentence on it is read in some seconds.
MOVING_TURNS = 3


class Due:
    """Whether the state is due, of one stream. Turns are told in their order."""

    def __init__(self) -> None:
        self._turns = CALM_TURNS
        self._written = 0
        self._load: tuple[int, int, int] | None = None

    def turn(self, sample: Sample, written: int) -> bool:
        """Whether it is due after this turn, when so many entries of the journal have been written; what has been told
        by then is what the next turns are compared with."""
        self._turns += 1
        load = sample.speculative_in_flight, sample.baseline_in_flight, sample.waiting
        begins_to_wait = sample.waiting > 0 and (self._load is None or not self._load[2])
        due = (
            written != self._written
            or begins_to_wait
            or self._turns >= (CALM_TURNS if load == self._load else MOVING_TURNS)
        )
        if due:
            self._turns, self._written, self._load = 0, written, load
        return due
