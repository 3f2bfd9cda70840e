"""Where one request goes: the gates that come before every policy, in their order, and the policy last.

Counting is not here (state/), nor is judging whether a backend is eligible (breaker.py, health.py).
"""

from proxy.model import (
    BASELINE,
    NOWHERE,
    SPECULATIVE,
    BackendLoad,
    Because,
    Costs,
    Decision,
    LoadSnapshot,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
    Whereabouts,
)
from proxy.routing import affinity, consolidate, marginal, overflow, ramp, threshold
from proxy.routing.affinity import Wait, waits
from proxy.routing.consolidate import first_role
from proxy.routing.demand import arrived
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.out import Out
from proxy.routing.rules import Affinity, Goals, RequestRule, RuleKind, Rules
from proxy.routing.silence import is_silent
from proxy.routing.threshold import follow

__all__ = [
    "Affinity",
    "Goals",
    "RequestRule",
    "RuleKind",
    "Rules",
    "Wait",
    "awaited",
    "decide",
    "decide_by_counts",
    "filled",
    "first_role",
    "follow",
    "has_room",
    "is_bulky",
    "preference",
    "share",
]

_MARGINAL, _CONSOLIDATE = Policy.MARGINAL, Policy.CONSOLIDATE
_THRESHOLD, _OVERFLOWS, _PINNED = Policy.THRESHOLD, Policy.OVERFLOW, Policy.PINNED
_NEVER_S = float("-inf")
_REGIME, _ROOM, _OVERFLOW = Reason.REGIME, Reason.ROOM, Reason.OVERFLOW
_FAILOVER, _FULL, _ALL_DOWN = Reason.FAILOVER, Reason.FULL, Reason.ALL_DOWN
_STATE, _OTHER_FULL, _SILENT = Reason.STATE, Reason.OTHER_FULL, Reason.SILENT

# Wishes that a full backend does not bend: such a request waits for its own backend and uses the other only when its
# own is down or has failed it. One whose state is there uses no other even then.
_FIRM = (_STATE, Reason.OPERATOR_PIN, Reason.HEADER, Reason.RULE, Reason.PINNED)


def decide(
    rules: Rules,
    regime: Regime,
    snapshot: LoadSnapshot,
    traits: Traits,
    *,
    excluded: Role | None = None,
    expected_tokens: float = EXPECTED_TOKENS,
    where: Whereabouts = NOWHERE,
    wait: Wait | None = None,
) -> Decision:
    """Where a request with `traits` goes and why; total and pure: same input, same decision.

    `excluded` is the role that has just failed this request before commit: then only the other one is considered.
    `expected_tokens` is what a sequence of such a request generates, as far as its own limit lets it; `where` says what
    of it the backends hold, and with `wait` it may wait for its home.
    `role` is None exactly when the reason is FULL. The decision's `because` counts without the new request and names
    the regime that was asked; its `regime` already holds the request, as the caller leases it in the same step.
    """
    at_s, speculative, baseline = snapshot
    in_flight = speculative.in_flight + baseline.in_flight
    current = follow(rules, regime, in_flight, at_s)
    tokens, costs = expected_tokens, None
    if rules.by_curves:
        tokens = marginal.answer_tokens(traits, expected_tokens)
        costs = _costs(rules, current, snapshot, traits, tokens, where=where)
    if excluded is None:
        wanted, reason = _prefer(rules, current, snapshot, traits, costs, where=where)
        role, reason = _place(rules, current, (wanted, reason), snapshot, traits.weight)
        if reason is _OTHER_FULL and wanted is where.home and role is not None:
            stays = waits(rules, current, snapshot, traits, tokens, where=where, wait=wait)
            role, reason = (None, _FULL) if stays else (role, reason)
    else:  # there is no third one to fall to
        role, reason = (excluded.other if _takes(rules, snapshot, excluded.other, traits.weight) else None), _FAILOVER
    if role is None:
        reason = _FULL
    elif not (speculative.eligible or baseline.eligible):
        reason = _ALL_DOWN
    counts = (speculative.in_flight, baseline.in_flight)
    outs = (_out(rules, snapshot, SPECULATIVE, traits.weight), _out(rules, snapshot, BASELINE, traits.weight))
    because = _because(rules, current, counts, speculative.recent_failures, costs, where, outs)
    if role is not None:
        held = share(snapshot.of(role), traits.weight)
        current = _hold(rules, current, in_flight + held, at_s)
        if excluded is None:
            if held != traits.weight:  # what a client claims and no engine runs at once is no demand
                traits = traits._replace(weight=held)
            current = _counted(rules, current, traits, tokens, where[0] if role is SPECULATIVE else where[1])
    return Decision(role, reason, current, because)


def decide_by_counts(
    rules: Rules,
    regime: Regime,
    at_s: float,
    traits: Traits,
    *,
    in_flight: tuple[int, int],
    limits: tuple[int | None, int | None],
    recent_failures: int,
    baseline_failures: int = 0,
    expected_tokens: float = EXPECTED_TOKENS,
    where: Whereabouts = NOWHERE,
) -> Decision | None:
    """What `decide` says of two backends that are eligible, not silent and not ramping; speculative first in each pair.

    Nearly every request is decided so, and in a fraction of the time. None where more than the counts decides (a wish,
    a rule, no room on the backend asked first), and without smoothing. `recent_failures` are the speculative one's;
    `baseline_failures` are told where the rules go by curves or by what is cached, and 0 without.
    """
    wished = where.state is not None or (traits.asked is not None and rules.allow_header)
    if wished or not rules.policy_alone or regime.smoothed_at_s == _NEVER_S:
        return None
    (speculative, baseline), weight, policy = in_flight, traits.weight, rules.effective_policy
    # With the request's own weight at once: a smoothed count takes a new number in only as time passes (see _hold).
    current = follow(rules, regime, speculative + baseline + weight, at_s)
    role, reason = SPECULATIVE, _ROOM
    if policy is _THRESHOLD:
        role, reason = current.role, _REGIME
    busy, tokens, costs = speculative + recent_failures, expected_tokens, None
    if role is SPECULATIVE and busy and busy + weight > rules.leave_at:
        role, reason = BASELINE, _OVERFLOW
    if rules.by_curves:
        tokens = marginal.answer_tokens(traits, expected_tokens)
        counts = (busy, baseline)
        costs = _told(rules, current, traits, tokens, counts=counts, baseline_failures=baseline_failures, where=where)
        if policy is _MARGINAL and costs is not None:
            role, reason = marginal.prefer(costs)
        elif policy is _CONSOLIDATE:
            if recent_failures if current.role is SPECULATIVE else baseline_failures:
                return None
            role, reason = current.role, _REGIME
    if rules.affine and where.home is not None:
        role, reason = affinity.settle(rules, (role, reason), where, costs, (busy + weight, baseline_failures))
    counted, limit = (speculative, limits[0]) if role is SPECULATIVE else (baseline, limits[1])
    if limit is not None and counted + weight > limit:
        return None
    outs = _full_ones(in_flight, limits, weight)
    because = _because(rules, current, in_flight, recent_failures, costs, where, outs)
    current = _counted(rules, current, traits, tokens, where[0] if role is SPECULATIVE else where[1])
    return Decision(role, reason, current, because)


def _because(  # noqa: PLR0917 - by name it would take twice as long, and each decision makes one
    rules: Rules,
    regime: Regime,
    in_flight: tuple[int, int],
    recent_failures: int,
    costs: Costs | None,
    where: Whereabouts,
    outs: tuple[str | None, str | None],
) -> Because:
    """The numbers behind a decision: of those of a policy, the ones that the policy in force looks at."""
    policy = rules.effective_policy
    smoothed = enter_at = leave_at = role = None
    if policy is _OVERFLOWS:
        leave_at = rules.leave_at
    elif policy is _THRESHOLD:
        smoothed, enter_at, leave_at, role = regime.smoothed, rules.enter_at, rules.leave_at, regime.role
    elif policy is _CONSOLIDATE:
        smoothed, role = regime.smoothed, regime.role
    return Because(
        policy,
        in_flight[0],
        in_flight[1],
        smoothed,
        enter_at,
        leave_at,
        role,
        recent_failures,
        costs,
        where.speculative_tokens,
        where.baseline_tokens,
        rules.learned,
        outs[0],
        outs[1],
    )


def _counted(rules: Rules, regime: Regime, traits: Traits, tokens: float, cached: int) -> Regime:
    """`regime` with a request in its demand that goes where so much of its prompt is cached; only curves ask for it."""
    return arrived(regime, traits, tokens, cached) if rules.by_curves else regime


def _hold(rules: Rules, current: Regime, in_flight: int, now_s: float) -> Regime:
    """`follow` for a regime that has followed in this very instant: a smoothed count takes a new number in only as time
    passes, so nothing but the number held changes. Without smoothing it counts at once."""
    if rules.smoothing_s <= 0:
        return follow(rules, current, in_flight, now_s)
    role, since_s, smoothed, smoothed_at_s, _, demand = current
    return Regime(role, since_s, smoothed, smoothed_at_s, in_flight, demand)


def filled(snapshot: LoadSnapshot, role: Role) -> LoadSnapshot:
    """`snapshot` with one backend at its limit, as it is for those behind one who was promised the next room there."""
    load = snapshot.of(role)
    full = load._replace(max_in_flight=load.in_flight)
    return snapshot._replace(speculative=full) if role is SPECULATIVE else snapshot._replace(baseline=full)


def has_room(load: BackendLoad, weight: int) -> bool:
    """Whether a request of `weight` sequences keeps within `max_in_flight`; one heavier than that may run alone."""
    limit = load.max_in_flight
    return limit is None or _fits(load.in_flight, limit, weight)


def _fits(in_flight: int, limit: int, weight: int) -> bool:
    return in_flight + (weight if weight <= limit else max(1, limit)) <= limit


def _full_ones(
    in_flight: tuple[int, int], limits: tuple[int | None, int | None], weight: int
) -> tuple[Out | None, Out | None]:
    (speculative, baseline), (limit, other_limit) = in_flight, limits
    # Most fit as they are: a call less for each decision.
    first = limit is None or speculative + weight <= limit or _fits(speculative, limit, weight)
    second = other_limit is None or baseline + weight <= other_limit or _fits(baseline, other_limit, weight)
    return None if first else Out.FULL, None if second else Out.FULL


def share(load: BackendLoad, weight: int) -> int:
    """The sequences, at least 1, that a request of `weight` holds on a backend: at most `max_in_flight`, since an
    engine never runs more of one request at once, whatever number the client wrote."""
    limit = load.max_in_flight
    return weight if limit is None or weight <= limit else max(1, limit)


def is_bulky(load: BackendLoad, weight: int) -> bool:
    """Whether a request needs more than half of a backend, so that its turn comes only when most others have ended.

    A single sequence never is: where one runs at a time, all requests are alike.
    """
    held = share(load, weight)
    return load.max_in_flight is not None and 2 * held > load.max_in_flight and held > 1


def preference(rules: Rules, traits: Traits, state: Role | None = None) -> Role | None:
    """The one backend that a request waits for when that is full; None where either serves it. `state` is the role that
    holds the state it names."""
    wished = _wish(rules, traits, state)
    if wished is not None:
        return wished[0]
    return rules.pin if rules.effective_policy is _PINNED else None


def _costs(
    rules: Rules, regime: Regime, snapshot: LoadSnapshot, traits: Traits, tokens: float, *, where: Whereabouts
) -> Costs | None:
    speculative, baseline = snapshot.speculative, snapshot.baseline
    counts = (speculative.in_flight + speculative.recent_failures, baseline.in_flight)
    failures = baseline.recent_failures
    return _told(rules, regime, traits, tokens, counts=counts, baseline_failures=failures, where=where)


def awaited(rules: Rules, regime: Regime, snapshot: LoadSnapshot, weight: int) -> Role | None:
    """The one backend that a request without a wish waits for: the favoured one, while it must not go to the other;
    None where it takes either."""
    role = regime.role
    if rules.effective_policy is not _CONSOLIDATE or is_silent(snapshot, role):
        return None
    return None if consolidate.may_spill(rules, regime, snapshot, weight) else role


def _told(
    rules: Rules,
    regime: Regime,
    traits: Traits,
    tokens: float,
    *,
    counts: tuple[int, int],
    baseline_failures: int,
    where: Whereabouts,
) -> Costs | None:
    """The costs on both backends beside so many sequences, by the tables that the rules go by. Recent failures are
    counted in for speculative, and apart for baseline."""
    if rules.delays is None:
        return consolidate.costs(rules, regime, tokens, baseline_failures)
    return marginal.costs(
        rules.delays,
        traits,
        tokens,
        counts,
        baseline_failures,
        demand=regime.demand,
        goals=rules.goals,
        where=where,
    )


def _prefer(
    rules: Rules, regime: Regime, snapshot: LoadSnapshot, traits: Traits, costs: Costs | None, *, where: Whereabouts
) -> tuple[Role, Reason]:
    """Who is asked first: a wish, else the home of a conversation, else the policy's choice. Eligibility and room come
    after."""
    wished = _wish(rules, traits, where.state)
    if wished is not None:
        return wished
    if rules.effective_policy is _PINNED:
        return rules.pin, Reason.PINNED
    asked = _by_policy(rules, regime, snapshot, traits, costs)
    if not rules.affine:
        return asked
    speculative, baseline = snapshot.speculative, snapshot.baseline
    pressed = speculative.in_flight + speculative.recent_failures + traits.weight, baseline.recent_failures
    return affinity.settle(rules, asked, where, costs, pressed)


def _by_policy(
    rules: Rules, regime: Regime, snapshot: LoadSnapshot, traits: Traits, costs: Costs | None
) -> tuple[Role, Reason]:
    policy = rules.effective_policy
    if costs is not None and policy is _MARGINAL:
        return marginal.prefer(costs)
    if policy is _CONSOLIDATE:
        return consolidate.prefer(rules, regime, snapshot, traits.weight)
    if policy is _THRESHOLD:
        return threshold.prefer(rules, regime, snapshot.speculative, traits.weight)
    return overflow.prefer(rules, snapshot.speculative, traits.weight)


def _wish(rules: Rules, traits: Traits, state: Role | None) -> tuple[Role, Reason] | None:
    """What was wished for this request, the loudest voice first; None leaves it to the policy. Where its `state` is no
    other backend can serve it, whatever was wished but by an operator, who has a reason to keep it from there."""
    if rules.operator_pin is not None:
        return rules.operator_pin, Reason.OPERATOR_PIN
    if state is not None:
        return state, _STATE
    if rules.allow_header and traits.asked is not None:
        return traits.asked, Reason.HEADER
    for rule in rules.request_rules:
        if rule.matches(traits):
            return rule.role, Reason.RULE
    return None


def _place(
    rules: Rules, regime: Regime, asked: tuple[Role, Reason], snapshot: LoadSnapshot, weight: int
) -> tuple[Role | None, Reason]:
    wanted, reason = asked
    load = snapshot.of(wanted)
    if reason not in _FIRM and load.eligible and is_silent(snapshot, wanted):
        reason = _SILENT
    elif load.eligible or snapshot.all_down:
        room = has_room(load, weight)
        if room and (reason in _FIRM or not ramp.holds_back(rules, snapshot, wanted, weight)):
            return wanted, reason
        if reason in _FIRM:
            return None, _FULL
        if not room and reason is _REGIME and not consolidate.may_spill(rules, regime, snapshot, weight):
            return None, _FULL
        reason = Reason.RAMPING if room else _OTHER_FULL
    elif reason is _STATE:
        return None, _FULL
    else:
        reason = Reason.ONLY_ELIGIBLE
    return (wanted.other if _takes(rules, snapshot, wanted.other, weight) else None), reason


def _takes(rules: Rules, snapshot: LoadSnapshot, role: Role, weight: int) -> bool:
    load = snapshot.of(role)
    if is_silent(snapshot, role) or not (load.eligible or snapshot.all_down):
        return False
    return has_room(load, weight) and not ramp.holds_back(rules, snapshot, role, weight)


def _out(rules: Rules, snapshot: LoadSnapshot, role: Role, weight: int) -> str | None:
    """Why a backend takes no request of `weight`; None where it does."""
    load = snapshot.of(role)
    if not load.eligible:
        return load.out or Out.DOWN
    if is_silent(snapshot, role):
        return Out.SILENT
    if not has_room(load, weight):
        return Out.FULL
    return Out.RAMPING if ramp.holds_back(rules, snapshot, role, weight) else None
