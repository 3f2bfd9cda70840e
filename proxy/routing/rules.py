"""What the operator asked of routing, frozen. How the rules are applied is not here (policy.py and its policies)."""

from dataclasses import dataclass, field
from enum import StrEnum

from proxy.model import Placement, Policy, Role, Traits
from proxy.routing.curves import Curves
from proxy.routing.delays import DelayTables, tables


class RuleKind(StrEnum):
    """The trait of a request that a request rule looks at."""

    CONSTRAINED = "constrained"  # the output is bound by a grammar, a schema or a required tool
    LONG_PROMPT = "long_prompt"  # the body has at least `min_prompt_bytes`
    SESSION = "session"  # the request names engine-side session state


@dataclass(frozen=True, slots=True)
class RequestRule:
    """Requests of one kind prefer one role. `min_prompt_bytes` speaks only in rules of the kind `long_prompt`."""

    when: RuleKind
    role: Role
    min_prompt_bytes: int = 0

    def matches(self, traits: Traits) -> bool:
        """Whether the rule speaks of this request."""
        if self.when is RuleKind.CONSTRAINED:
            return traits.constrained
        if self.when is RuleKind.SESSION:
            return traits.session
        return traits.prompt_bytes >= self.min_prompt_bytes


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything `decide` needs to know of the configuration.

    `leave_at` and `enter_at` are sequences in flight with `enter_at < leave_at` (configuration is checked before it
    gets here); `min_dwell_s` is the least time between two regime changes and `smoothing_s` the time constant of the
    smoothed count, 0 for none. `pin` is the role of policy `pinned`; `operator_pin` is set at run time and overrules
    everything. The first of `request_rules` that matches a request decides; `allow_header` lets clients ask for a role.
    `ramp_s` is how long a backend that has recovered is kept below its full share; `curves` are measured speeds.
    """

    policy: Policy = Policy.AUTO
    placement: Placement = Placement.SEPARATE
    leave_at: int = 9
    enter_at: int = 5
    min_dwell_s: float = 2.0
    smoothing_s: float = 2.0
    pin: Role = Role.BASELINE
    allow_header: bool = False
    request_rules: tuple[RequestRule, ...] = ()
    operator_pin: Role | None = None
    ramp_s: float = 10.0
    curves: Curves | None = field(default=None, repr=False)
    effective_policy: Policy = field(init=False, repr=False, compare=False)
    """The policy in force. `auto` is `marginal` on separate GPUs with curves of both backends and `overflow` without,
    `threshold` on shared ones. Without such curves `marginal` is `overflow`. Never AUTO."""

    delays: DelayTables | None = field(init=False, repr=False, compare=False)
    """By what tables the cost of each choice is told; None where curves tell none."""

    policy_alone: bool = field(init=False, repr=False, compare=False)
    """Whether the policy weighs counts and nobody but a client that asks by header overrules it."""

    def __post_init__(self) -> None:
        # Once and not at every look: each request looks several times.
        found = tables(self.curves)
        effective = _resolved(self.policy, self.placement, curved=found is not None)
        apart = self.placement is Placement.SEPARATE or effective is Policy.MARGINAL
        wished = effective is Policy.PINNED or self.operator_pin is not None or bool(self.request_rules)
        object.__setattr__(self, "effective_policy", effective)
        object.__setattr__(self, "delays", found if apart else None)
        object.__setattr__(self, "policy_alone", not wished)


def _resolved(policy: Policy, placement: Placement, *, curved: bool) -> Policy:
    if policy is Policy.AUTO:
        policy = Policy.MARGINAL if placement is Placement.SEPARATE else Policy.THRESHOLD
    return Policy.OVERFLOW if policy is Policy.MARGINAL and not curved else policy
