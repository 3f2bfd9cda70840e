"""Why a backend takes nothing new, in one word: told beside a decision, so that nobody has to guess it from the counts.

What each of them means is decided elsewhere (health.py, breaker.py, ramp.py, policy.py).
"""

from enum import StrEnum


class Out(StrEnum):
    """One word. Where several hold, the first of them here is told."""

    DRAINING = "draining"  # the operator's wish
    DOWN = "down"  # it does not answer its probes
    CIRCUIT_OPEN = "circuit open"  # it failed too many requests in a row
    SILENT = "silent"  # its probe is unanswered, and nothing else comes from it
    FULL = "full"  # at max_in_flight, or its next room is promised to another
    RAMPING = "ramping"  # it has just come back, and is given its share bit by bit
