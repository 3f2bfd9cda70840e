"""One advice: what kind it is, what it says, and the numbers it rests on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class AdviceKind(StrEnum):
    """What is advised."""

    UNEQUAL_ARMS = "unequal_arms"
    CLIENT_LIMIT = "client_limit"
    NOISY = "noisy"
    RAISE_MAX_RUNNING = "raise_max_running"
    USE_ADAPTIVE = "use_adaptive"
    ADAPTIVE_SLOWER = "adaptive_slower"
    SECOND_BASELINE = "second_baseline"
    TRY_CHAIN = "try_chain"
    HAPROXY_ENOUGH = "haproxy_enough"
    CROSSOVER_GAIN = "crossover_gain"
    CONTEXT_MOVES = "context_moves"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do or to know. `numbers` are those of the sentence; `gain` among them orders advice, as a share."""

    kind: AdviceKind
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
