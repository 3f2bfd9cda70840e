"""Whether answers bear out what an engine says of its own speed: where they do not, answers are believed in its place.

What an engine says is in evidence.py; what becomes of curves that are wrong all the same is in harm.py.
"""

from dataclasses import dataclass

# By so much, in ln and in the mean, answers may miss what an engine's word foretells, and by a quarter of the share of
# time in which prompts are read more: that share is a guess, and slows answers alone. Where no prefill is known by so
# much. Of engines that tell the truth they missed it by 0.06 at most (tried).
TOLERATED, OF_PROMPTS, UNREAD = 0.15, 0.25, 0.3
# So many answers decide at least, and so many of late: one is good to a seventh.
LEAST_HEARD, NEWEST = 6, 0.05
# What one answer adds at most: one may be off by anything.
MOST_MISS = 1.0


@dataclass(slots=True)
class Trust:
    """The mean of late of how much answers miss an engine's word, in ln; above 0 they are slower. While it is `doubted`
    its word is only compared with what answers have shown, until it agrees again. Nothing is acted on before it is
    `earned`: by answers, or by what the proxy saw itself."""

    miss: float = 0.0
    heard: int = 0
    doubted: bool = False
    earned: bool = False

    def compare(self, miss: float, tolerated: float) -> bool:
        """Take in one comparison; whether that makes an end of what was held of the engine's word, for good or ill."""
        self.heard += 1
        miss = min(MOST_MISS, max(-MOST_MISS, miss))
        self.miss += (miss - self.miss) * max(NEWEST, 1.0 / self.heard)
        if self.heard < LEAST_HEARD:
            return False
        self.earned = True  # or lost at once, and then there are answers
        return (abs(self.miss) <= 0.5 * tolerated) if self.doubted else (abs(self.miss) > tolerated)

    def turn(self) -> None:
        """Doubt the engine from now on, or no more."""
        self.miss, self.heard, self.doubted = 0.0, 0, not self.doubted


def tolerated(busy_share: float, *, prefill_known: bool) -> float:
    """By how much answers may miss an engine's word, where prompts are read for that share of the time."""
    return TOLERATED + OF_PROMPTS * busy_share if prefill_known else UNREAD
