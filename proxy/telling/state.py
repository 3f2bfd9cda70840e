"""What the sentence on the present depends on, as values. What is said of it is in present.py and policies.py."""

from dataclasses import dataclass
from typing import NamedTuple

from proxy.model import Costs, Policy, Reason, Role

# That their clients, or a rule, choose the backend is certain once so many requests in a row were sent so, and that
# they have stopped once none of so many was. Where half of all name one, chance makes eight in a row once in 256 times.
CERTAIN = 8


@dataclass(frozen=True, slots=True)
class Side:
    """One backend now. `in_flight` counts sequences, `max_in_flight` None is no known limit; `out` says why it takes
    nothing new (draining, down, circuit open), next to nothing (trial: single requests test it after failures), or not
    all it would be sent (silent, full, ramping); None: it takes all."""

    role: Role
    in_flight: int = 0
    max_in_flight: int | None = None
    out: str | None = None


class Lately(NamedTuple):
    """The latest decisions with a role: how many, and how many of them went to speculative. `forced` is the reason of
    most of them where that is none of the policy's own, with their number, and how many of them went to speculative."""

    requests: int
    speculative: int
    forced: Reason | None = None
    forced_requests: int = 0
    forced_speculative: int = 0

    @property
    def share(self) -> float:
        """The share that went to speculative."""
        return self.speculative / self.requests


class Favour(NamedTuple):
    """Why policy consolidate keeps its role though the other one would serve the demand of the last minutes sooner
    (`why`, the words of routing/kept.py; None: it would not), and in how many seconds of it it changes, where known."""

    why: str | None = None
    changes_in_s: float | None = None


NOTHING_KEPT = Favour()


@dataclass(frozen=True, slots=True)
class Present:
    """What the sentence depends on.

    `policy` is the one in force, never auto; `pinned` the operator's pin, `pin` that of policy pinned; `regime` is
    favoured since `regime_age_s` seconds; `waiting` counts requests, of `max_waiting` that may. `next` is where a plain
    request would go now, for what `reason`, at these `costs` for an answer of `tokens`; `room` whether it would find a
    place; `spare` whether it would go to the other one were that idle. `lately` is None without requests.
    """

    policy: Policy
    speculative: Side
    baseline: Side
    phase: str = "serving"
    pinned: Role | None = None
    pin: Role = Role.BASELINE
    regime: Role = Role.SPECULATIVE
    regime_age_s: float = 0.0
    favour: Favour = NOTHING_KEPT
    smoothed: float = 0.0
    enter_at: int = 0
    leave_at: int = 0
    waiting: int = 0
    max_waiting: int | None = None
    room: bool = True
    lately: Lately | None = None
    learning_suspended: bool = False
    next: Role | None = None
    reason: Reason | None = None
    spare: bool = False
    costs: Costs | None = None
    tokens: float = 0.0

    def of(self, role: Role) -> Side:
        """One backend."""
        return self.speculative if role is Role.SPECULATIVE else self.baseline

    @property
    def refusing(self) -> bool:
        """Whether a plain request that came now would be refused."""
        return not self.room and self.max_waiting is not None and self.waiting >= self.max_waiting
