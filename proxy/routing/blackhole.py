"""Recent failures of a backend as load, so that one that fails fast does not look idle and draw all traffic.

Opening the circuit after failures in a row is not here (breaker.py): this one also sees failures between successes.
"""

from dataclasses import dataclass
from math import exp2

# A failure weighs as one sequence for this long. Shorter than a common answer (seconds) the backend would look idle
# between failures; much longer and it would be shunned well after it has healed.
HALF_LIFE_S = 5.0


@dataclass(frozen=True, slots=True)
class FailureWeight:
    """Failures that decay by half every HALF_LIFE_S: `value` is their number as of `at_s` (monotonic seconds)."""

    value: float = 0.0
    at_s: float = float("-inf")


def add(failures: FailureWeight, now_s: float) -> FailureWeight:
    """The weight after one more failure at `now_s`."""
    return FailureWeight(_decayed(failures, now_s) + 1.0, max(now_s, failures.at_s))


def weigh(failures: FailureWeight, now_s: float) -> int:
    """How many sequences the failures weigh at `now_s`, rounded to the nearest."""
    if not failures.value:  # it never failed: most backends, most of the time
        return 0
    return int(_decayed(failures, now_s) + 0.5)


def _decayed(failures: FailureWeight, now_s: float) -> float:
    elapsed_s = max(0.0, now_s - failures.at_s)
    return failures.value * exp2(-elapsed_s / HALF_LIFE_S)
