"""Where requests go now and why, in one sentence: what a plain request would be told if it came at this moment.

It is decided by the rules themselves, so that the sentence cannot differ from what happens. Why one request went where
it went is told elsewhere.
"""

from proxy.model import Because, Decision, LoadSnapshot, Policy, Reason, Regime, Role, Traits
from proxy.routing import policy
from proxy.routing.rules import Rules
from proxy.state.backend import Backend

# A request without wishes, of one sequence.
PLAIN = Traits()


def sentence(
    rules: Rules, regime: Regime, snapshot: LoadSnapshot, backends: tuple[Backend, Backend], expected_tokens: float
) -> str:
    """The sentence; its numbers are those of `snapshot`."""
    decision = policy.decide(rules, regime, snapshot, PLAIN, expected_tokens=expected_tokens)
    role = decision.role
    if role is None:
        return _full(decision.because, snapshot)
    absent = {each.role: why_not(each) for each in backends}
    if decision.reason is Reason.ALL_DOWN:
        why = " and ".join(f"{each} {absent[each]}" for each in Role)
        return f"No backend can take requests, {why}: they are sent to {role} all the same, and may fail."
    return f"Requests go to {role}: {_why(rules, decision, role, absent[role.other])}."


def why_not(backend: Backend) -> str:
    """Why a backend gets nothing new, as the rest of a sentence about it."""
    if backend.draining:
        return "is being drained"
    if backend.health.up is False:
        return "is down"
    return f"has its circuit {backend.circuit.state.replace('_', ' ')}"


def _why(rules: Rules, decision: Decision, role: Role, why_other_not: str) -> str:
    because, reason = decision.because, decision.reason
    if (plain := _PLAINLY.get(reason)) is not None:
        return plain.format(other=role.other, why_other_not=why_other_not)
    if reason is Reason.CHEAPER:
        return _cheaper(because, role)
    if reason is Reason.ROOM:
        return f"{because.speculative_in_flight} in flight there, below leave_at {because.leave_at}"
    if reason is Reason.OVERFLOW:
        return _overflow(because)
    return _regime(rules, decision.regime, because, role)


_PLAINLY = {
    Reason.OPERATOR_PIN: "an operator pinned everything there, and {other} is only its failover",
    Reason.PINNED: "the policy is pinned, and {other} is only its failover",
    Reason.RULE: "a rule of routing.rules sends them there",
    Reason.ONLY_ELIGIBLE: "{other} {why_other_not}",
    Reason.OTHER_FULL: "{other} is full",
    Reason.RAMPING: "{other} has just come back and gets its share bit by bit",
}


def _cheaper(because: Because, role: Role) -> str:
    costs = because.costs
    if costs is None:
        return "it is expected to delay all requests least"
    mine, others = (costs.speculative_s, costs.baseline_s)
    if role is Role.BASELINE:
        mine, others = others, mine
    counts = f"{because.speculative_in_flight} and {because.baseline_in_flight} in flight"
    return f"one more would delay all by {_s(mine)} there, by {_s(others)} on {role.other} ({counts})"


def _overflow(because: Because) -> str:
    if because.policy is Policy.CONSOLIDATE:
        return "the favoured backend fails"
    failures = f" and {because.recent_failures} recent failures" if because.recent_failures else ""
    return f"speculative has {because.speculative_in_flight} in flight{failures}, at its leave_at {because.leave_at}"


def _regime(rules: Rules, regime: Regime, because: Because, role: Role) -> str:
    smoothed = f"{because.smoothed:.1f} in flight (smoothed)"
    if rules.effective_policy is Policy.CONSOLIDATE:
        demand = f"the present demand of {regime.demand.tok_s:,.0f} output tok/s"
        return f"by the measured speeds it serves {demand} sooner, and both share the same GPUs"
    if role is Role.SPECULATIVE:
        return f"{smoothed}, below leave_at {because.leave_at}"
    if because.smoothed > because.enter_at:
        return f"{smoothed}, not yet down to enter_at {because.enter_at}"
    return f"{smoothed}, and the last change is less than {rules.dwell_s:g} s ago"


def _full(because: Because, snapshot: LoadSnapshot) -> str:
    limits = [
        f"{load.role} {load.in_flight} of {load.max_in_flight}"
        for load in (snapshot.speculative, snapshot.baseline)
        if load.max_in_flight is not None and load.eligible
    ]
    return f"Requests wait: there is no room ({', '.join(limits) or f'policy {because.policy}'})."


def _s(seconds: float) -> str:
    if seconds == float("inf"):
        return "more than was ever measured"
    return f"{seconds:.2f} s" if abs(seconds) < 10 else f"{seconds:.0f} s"
