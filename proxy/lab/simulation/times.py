"""What was seen of the requests of one run that count. What is made of the times of many runs is in tally.py."""

from array import array
from dataclasses import dataclass, field

from proxy.model import ROLES, Role


@dataclass(slots=True)
class Times:
    """Of those that ended well, in their order of ending: seconds, and tokens for `length`.

    `failed` and `gone` are those that did not: for a fault of an engine, or since the client left; `failed_tokens` is
    what the former wanted. `retried` went to the other engine, whatever became of them there. `in_flight_s` is the sum
    of the time that requests spent in flight or waiting, `span_s` the length of the run, and `began_s` when the first
    request that counts came. `left_waiting` are those that had no place when the run was given up, since far more came
    than the engines carry; 0 for one that came to its end.
    """

    e2e_s: "array[float]" = field(default_factory=lambda: array("d"))
    ttft_s: "array[float]" = field(default_factory=lambda: array("d"))
    tpot_s: "array[float]" = field(default_factory=lambda: array("d"))
    length: "array[int]" = field(default_factory=lambda: array("l"))
    speculative: int = 0
    waited: int = 0
    failed: int = 0
    failed_tokens: int = 0
    gone: int = 0
    retried: int = 0
    switches: int = 0
    offered: int = 0
    left_waiting: int = 0
    in_flight_s: float = 0.0
    span_s: float = 0.0
    began_s: float = 0.0
    most: dict[Role, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))

    @property
    def tokens(self) -> int:
        """All that answers had."""
        return sum(self.length)
