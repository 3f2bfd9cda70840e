"""Whether an engine runs as many as the proxy gave it: others may use it too, and slow readers hold what has ended.

What is made of its batches is in clock.py, what of its tokens in evidence.py.
"""

from dataclasses import dataclass
from math import exp

# Both are averaged over about so long: an engine tells what runs at one instant in each poll.
WITHIN_S = 15.0
# It runs others' too where it runs so many times what was given, and some more; fewer than were given where as many
# times less have begun. What it runs between two polls is a guess, and prompts that are being read count or do not.
APART, SOME = 1.25, 0.5


@dataclass(slots=True)
class Gathered:
    """Tokens of some polls together, and the sequences they are shared by, each and squared, times seconds: those that
    were given and have begun (`held`), and those that ran (`ran`). `waits` says that some waited in the engine."""

    tokens: float = 0.0
    held: tuple[float, float] = (0.0, 0.0)
    ran: tuple[float, float] = (0.0, 0.0)
    elapsed_s: float = 0.0
    waits: bool = False

    def add(
        self, tokens: float, held: tuple[float, float], ran: tuple[float, float], elapsed_s: float, *, waits: bool
    ) -> None:
        """Add a poll."""
        self.tokens += tokens
        self.held = (self.held[0] + held[0], self.held[1] + held[1])
        self.ran = (self.ran[0] + ran[0], self.ran[1] + ran[1])
        self.elapsed_s += elapsed_s
        self.waits = self.waits or waits


@dataclass(slots=True)
class Company:
    """Of late, in the mean: how many the engine ran, how many it was given, and how many of those had begun."""

    ran: float = 0.0
    held: float = 0.0
    begun: float = 0.0
    watched_s: float = 0.0

    def look(self, ran: float, held: float, begun: float, elapsed_s: float) -> None:
        """Take in what it ran over some time, and was given."""
        self.watched_s += elapsed_s
        share = max(1.0 - exp(-elapsed_s / WITHIN_S), elapsed_s / self.watched_s)
        self.ran += (ran - self.ran) * share
        self.held += (held - self.held) * share
        self.begun += (begun - self.begun) * share

    @property
    def strays(self) -> bool:
        """Whether it runs so many more or fewer that only its own count says among how many its tokens are shared."""
        return self.ran > APART * self.held + SOME or self.begun > APART * self.ran + SOME
