"""What the operator asked of routing, frozen. How the rules are applied is not here (policy.py and its policies)."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from proxy.model import Placement, Policy, Role, Traits
from proxy.routing.buckets import Buckets, buckets
from proxy.routing.curves import Curves
from proxy.routing.delays import Delays, delays
from proxy.routing.paces import Paces, paces

# The least dwell of policy consolidate: a change begins with prefix caches that hold nothing of the running
# conversations, and those in flight must run out on the one backend before the other has the GPUs to itself.
CONSOLIDATED_S = 60.0

# Policies that weigh each request by itself. Under the others all go to one favoured backend.
_SINGLE = (Policy.MARGINAL, Policy.OVERFLOW)

# What stands in for a policy whose curves are not there.
_UNCURVED = {Policy.MARGINAL: Policy.OVERFLOW, Policy.CONSOLIDATE: Policy.THRESHOLD}


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


class Goals(NamedTuple):
    """What an answer should not be slower than: seconds to the first token and for each further one; None: any."""

    ttft_s: float | None = None
    tpot_s: float | None = None


class Affinity(NamedTuple):
    """How conversations are kept where their prompts are cached. `min_cached_tokens` is how many more cached tokens
    make one long where no speed tells what they are worth; `cache_tokens` how many each engine holds, None where it
    says so itself."""

    min_cached_tokens: int = 8192
    cache_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything `decide` needs to know of the configuration.

    `leave_at` and `enter_at` are sequences in flight with `enter_at < leave_at` (configuration is checked before it
    gets here); `min_dwell_s` is the least time between two regime changes and `smoothing_s` the time constant of the
    smoothed count, 0 for none. `pin` is the role of policy `pinned`; `operator_pin` is set at run time and overrules
    everything. The first of `request_rules` that matches a request decides; `allow_header` lets clients ask for a role.
    `ramp_s` is how long a backend that has recovered is kept below its full share; `curves` are measured speeds, which
    live traffic has corrected where `learned` says so, and `goals` what policy `marginal` keeps answers within as far
    as it can. `affinity` None lets no conversation stay anywhere; with it none does unless the policy weighs single
    requests on GPUs of their own.
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
    learned: bool = False
    goals: Goals | None = None
    affinity: Affinity | None = None
    effective_policy: Policy = field(init=False, repr=False, compare=False)
    """The policy in force. With curves of both backends `auto` is `marginal` on separate GPUs and `consolidate` on
    shared ones; without, `overflow` and `threshold`, which then stand in for these two also by name. Never AUTO."""

    delays: Buckets[Delays] | None = field(init=False, repr=False, compare=False)
    """By what tables the delay that a request adds is told; None on shared GPUs, unless for policy `marginal`."""

    paces: Buckets[Paces] | None = field(init=False, repr=False, compare=False)
    """By what tables policy `consolidate` favours; None for every other."""

    by_curves: bool = field(init=False, repr=False, compare=False)
    """Whether there are any such tables."""

    dwell_s: float = field(init=False, repr=False, compare=False)
    """The least time between two changes of regime of the policy in force."""

    policy_alone: bool = field(init=False, repr=False, compare=False)
    """Whether the policy weighs counts, smoothed ones, and nobody but a client that asks by header overrules it."""

    affine: bool = field(init=False, repr=False, compare=False)
    """Whether conversations stay where they are cached: with `affinity`, under `marginal` and `overflow`, on separate
    GPUs."""

    prefill_known: bool = field(init=False, repr=False, compare=False)
    """Whether the costs of a delay count the time that a prompt takes."""

    def __post_init__(self) -> None:
        # Once and not at every look: each request looks several times.
        found = buckets(self.curves, delays)
        effective = _resolved(self.policy, self.placement, curved=found is not None)
        apart = self.placement is Placement.SEPARATE or effective is Policy.MARGINAL
        wished = effective is Policy.PINNED or self.operator_pin is not None or bool(self.request_rules)
        object.__setattr__(self, "effective_policy", effective)
        consolidates = effective is Policy.CONSOLIDATE
        object.__setattr__(self, "delays", found if apart and not consolidates else None)
        object.__setattr__(self, "paces", buckets(self.curves, paces) if consolidates else None)
        object.__setattr__(self, "by_curves", not (self.delays is None and self.paces is None))
        object.__setattr__(self, "dwell_s", max(self.min_dwell_s, CONSOLIDATED_S if consolidates else 0.0))
        object.__setattr__(self, "policy_alone", not wished and self.smoothing_s > 0)
        single = self.placement is Placement.SEPARATE and effective in _SINGLE
        object.__setattr__(self, "affine", self.affinity is not None and single)
        object.__setattr__(self, "prefill_known", self.delays is not None and _tell_prefill(self.delays))


def _resolved(policy: Policy, placement: Placement, *, curved: bool) -> Policy:
    if policy is Policy.AUTO:
        policy = Policy.MARGINAL if placement is Placement.SEPARATE else Policy.CONSOLIDATE
    return policy if curved else _UNCURVED.get(policy, policy)


def _tell_prefill(tables: Buckets[Delays]) -> bool:
    """Whether every bucket has the prefill of both backends."""
    return all(each.prefill_tok_s is not None for pair in tables.made for each in pair)
