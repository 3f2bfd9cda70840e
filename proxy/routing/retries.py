"""The retry budget: retries stay a small share of the requests, however many fail.

When a request may be retried at all is not here (relay.py).
"""

from dataclasses import dataclass

# Ten deposits of a tenth come to a hair less than one in floating point; the hair must not cost a retry.
_SLOP = 1e-9


@dataclass(frozen=True, slots=True)
class RetryRules:
    """`ratio` is the retries that one request earns, `reserve` the most that can be saved up.

    A tenth: when a backend fails everything, the other gets at most 10 % more load than it was sent. Ten: a short
    failure after calm is hidden from ten clients at once.
    """

    ratio: float = 0.1
    reserve: float = 10.0


@dataclass(frozen=True, slots=True)
class Budget:
    """`left` is the number of retries that may still be taken, with its fraction."""

    left: float


def full(rules: RetryRules) -> Budget:
    """The budget to start with: the whole reserve."""
    return Budget(rules.reserve)


def deposit(rules: RetryRules, budget: Budget) -> Budget:
    """The budget after one more request; the same object when it is full."""
    if budget.left == rules.reserve:
        return budget
    return Budget(min(rules.reserve, budget.left + rules.ratio))


def take(rules: RetryRules, budget: Budget) -> Budget | None:
    """The budget after one retry, or None when there is none; a reserve lowered by a reload counts at once."""
    left = min(rules.reserve, budget.left)
    if left < 1.0 - _SLOP:
        return None
    return Budget(max(0.0, left - 1.0))
