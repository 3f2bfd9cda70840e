"""decide_by_counts: it says what decide says, wherever it says anything, and it speaks for most requests."""

from fakes.speeds import any_curves
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import ROLES, BackendLoad, Decision, Demand, LoadSnapshot, Policy, Reason, Regime, Role, Traits
from proxy.routing.policy import RequestRule, RuleKind, Rules, decide, decide_by_counts

SPECULATIVE, BASELINE = ROLES
roles = st.sampled_from(ROLES)
limits = st.none() | st.integers(1, 20)
sequences = st.integers(1, 12)


@st.composite
def rule_sets(draw: st.DrawFn) -> Rules:
    leave_at = draw(st.integers(1, 12))
    return Rules(
        policy=draw(st.sampled_from(Policy)),
        leave_at=leave_at,
        enter_at=draw(st.integers(0, leave_at - 1)),
        smoothing_s=draw(st.sampled_from([0.0, 2.0])),
        pin=draw(roles),
        allow_header=draw(st.booleans()),
        request_rules=draw(st.sampled_from([(), (), (RequestRule(RuleKind.SESSION, BASELINE),)])),
        operator_pin=draw(st.sampled_from([None, None, *ROLES])),
        curves=draw(st.none() | any_curves()),
    )


def loads(role: Role) -> st.SearchStrategy[BackendLoad]:
    well = (st.just(True), st.none(), st.none(), st.just(False))
    return st.builds(BackendLoad, st.just(role), st.integers(0, 15), limits, st.integers(0, 8), *well)


snapshots = st.builds(LoadSnapshot, st.floats(0, 100), loads(SPECULATIVE), loads(BASELINE))
AGES = st.floats(0, 100)
SIZES = st.floats(0, 1e5)
demands = st.builds(Demand, *[SIZES] * 10, AGES, SIZES)
regimes = st.builds(Regime, roles, AGES, st.floats(0, 20), AGES, st.integers(0, 20), demands)
traits = st.builds(
    Traits,
    weight=sequences,
    model=st.none(),
    session=st.booleans(),
    asked=st.none() | roles,
    max_tokens=st.none() | st.integers(1, 900),
)


def by_counts(rules: Rules, regime: Regime, seen: LoadSnapshot, asks: Traits) -> Decision | None:
    first, second = seen.speculative, seen.baseline
    return decide_by_counts(
        rules,
        regime,
        seen.at_s,
        asks,
        in_flight=(first.in_flight, second.in_flight),
        limits=(first.max_in_flight, second.max_in_flight),
        recent_failures=first.recent_failures,
        baseline_failures=second.recent_failures if rules.by_curves else 0,
    )


@settings(max_examples=500)
@given(rule_sets(), regimes, snapshots, traits)
def test_two_counts_decide_as_a_look_at_everything_does(
    rules: Rules, regime: Regime, seen: LoadSnapshot, asks: Traits
) -> None:
    decision = by_counts(rules, regime, seen, asks)
    closely = decide(rules, regime, seen, asks)
    wished = closely.reason not in (Reason.REGIME, Reason.ROOM, Reason.OVERFLOW, Reason.CHEAPER)
    if decision is not None:
        assert decision == closely
        assert not wished
    elif rules.effective_policy is Policy.CONSOLIDATE and (seen.speculative[3] or seen.baseline[3]):
        pass  # failures of the favoured one are left to the closer look
    elif (
        rules.smoothing_s and not wished
    ):  # nobody wished anything: it was too heavy for the backend's limit, and runs there alone
        assert closely.role is not None
        limit = seen.of(closely.role).max_in_flight
        ruled = rules.request_rules or (rules.allow_header and asks.asked is not None)
        assert ruled or (limit is not None and asks.weight > limit)


def test_failures_weigh_in_a_decision_by_counts() -> None:
    seen = LoadSnapshot(0.0, BackendLoad(SPECULATIVE, 3, None, 6), BackendLoad(BASELINE))
    decision = by_counts(Rules(Policy.OVERFLOW, leave_at=9), Regime(smoothed_at_s=0.0), seen, Traits())
    assert decision is not None
    assert (decision.role, decision.reason, decision.because.recent_failures) == (BASELINE, Reason.OVERFLOW, 6)


def test_a_count_that_nobody_has_smoothed_yet_is_left_to_a_closer_look() -> None:
    assert by_counts(Rules(), Regime(), LoadSnapshot(0.0, *map(BackendLoad, ROLES)), Traits()) is None
