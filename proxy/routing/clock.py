"""Whether what an engine tells of its steps is decoding alone: its word beside what the proxy had in flight meanwhile.

Some engines time a step from the launch of the one before, so that prompts read in between, and idle time, are in it.
But no sequence decodes before it has begun, nor while prompts are read, nor once it has ended. What is made of steps is
in evidence.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite

# Both are summed up over about so long: engines tell some steps late, so that one look has too many, the next too few.
WITHIN_S = 15.0
# By so much more the engine may have it: what prompts take is a mean, and counted tokens tell a speed no better.
MOST_MORE = 1.1
# Within one look it may have so much more than all that was in flight: what is beyond was never decoding.
MOST_AT_ONCE = 1.2
# A clock that has less than this left steps out, or tells them too short: which of the two only answers say.
LEAST_FILLED = 0.85
# A clock is believed once it has been watched for so long: what prompts take is not known from the first on.
WATCHED_S = 5.0

# An engine whose batch is so many times what it was given, and one more, serves others too: its own word is all there
# is then.
OTHERS, ONE = 1.5, 1.0


@dataclass(slots=True)
class Clock:
    """Of late: sequences times seconds that steps took (`stepped_s`) and that were in flight and begun (`begun_s`), and
    the mean batch by the engine and by the proxy."""

    stepped_s: float = 0.0
    begun_s: float = 0.0
    batch: float = 0.0
    held: float = 0.0
    watched_s: float = 0.0

    def look(
        self, gained: Sequence[float], held: tuple[float, float], decoding: float, ranks: int, elapsed_s: float
    ) -> bool:
        """Take in by how much decode moments have grown while `held` sequences and their square, times seconds, were in
        flight, of which `decoding` is the share that may have decoded; whether this look can be true."""
        steps, batches, _, _, busy_us, _ = gained
        area_s, square_s = held
        if not (steps > 0.0 and 0.0 < area_s <= square_s and isfinite(batches) and 0.0 <= busy_us < float("inf")):
            return True
        self.watched_s += elapsed_s
        left = exp(-elapsed_s / WITHIN_S)
        self.stepped_s = self.stepped_s * left + busy_us * 1e-6
        self.begun_s = self.begun_s * left + area_s * decoding
        self.batch += (batches / steps * ranks - self.batch) * (1.0 - left)
        self.held += (square_s / area_s - self.held) * (1.0 - left)
        return self.serves_others or (self.watched_s >= WATCHED_S and busy_us * 1e-6 <= MOST_AT_ONCE * area_s)

    @property
    def serves_others(self) -> bool:
        """Whether far more run than the proxy gave."""
        return self.batch > OTHERS * self.held + ONE

    @property
    def holds_all(self) -> bool:
        """Whether steps take about as long as what was in flight can have decoded: then their time is no claim."""
        return self.serves_others or (self.watched_s >= WATCHED_S and self.stepped_s > LEAST_FILLED * self.begun_s)

    @property
    def holds_more(self) -> bool:
        """Whether steps seem to take longer than anything could have decoded."""
        watched = self.watched_s >= WATCHED_S
        return watched and not self.serves_others and self.stepped_s > MOST_MORE * self.begun_s
