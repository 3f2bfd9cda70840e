"""decide: the gates in their order, and what holds of every decision."""

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any, NamedTuple

import pytest
from fakes.speeds import any_curves, bucket, curves, of_both
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import (
    ROLES,
    BackendLoad,
    Because,
    Decision,
    Demand,
    LoadSnapshot,
    Placement,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
)
from proxy.routing import ramp
from proxy.routing.policy import RequestRule, RuleKind, Rules, decide, follow, has_room, is_bulky, share
from proxy.routing.silence import is_silent

SPECULATIVE, BASELINE = ROLES
LONG_AGO = Regime(SPECULATIVE, -1000.0, 0.0, 0.0, 0.0)


def snapshot(
    speculative: int = 0,
    baseline: int = 0,
    *,
    limits: tuple[int | None, int | None] = (None, None),
    eligible: tuple[bool, bool] = (True, True),
    failures: tuple[int, int] = (0, 0),
    at_s: float = 0.0,
) -> LoadSnapshot:
    return LoadSnapshot(
        at_s,
        BackendLoad(SPECULATIVE, speculative, limits[0], failures[0], eligible[0]),
        BackendLoad(BASELINE, baseline, limits[1], failures[1], eligible[1]),
    )


def asked(rules: Rules, loads: LoadSnapshot, traits: Traits | None = None) -> tuple[Role | None, Reason]:
    decision = decide(rules, LONG_AGO, loads, traits or Traits())
    return decision.role, decision.reason


# ---------------------------------------------------------------- who is asked first

RULE = RequestRule(RuleKind.CONSTRAINED, BASELINE)
LOUD = Traits(constrained=True, asked=SPECULATIVE)


def test_the_operators_pin_overrules_header_rule_and_policy() -> None:
    rules = Rules(operator_pin=BASELINE, allow_header=True, request_rules=(replace(RULE, role=SPECULATIVE),))
    assert asked(rules, snapshot(), LOUD) == (BASELINE, Reason.OPERATOR_PIN)


def test_the_header_overrules_rule_and_policy_when_it_is_allowed() -> None:
    assert asked(Rules(allow_header=True, request_rules=(RULE,)), snapshot(), LOUD) == (SPECULATIVE, Reason.HEADER)


def test_the_header_is_not_heard_when_it_is_not_allowed() -> None:
    assert asked(Rules(request_rules=(RULE,)), snapshot(), LOUD) == (BASELINE, Reason.RULE)


def test_the_first_matching_request_rule_decides() -> None:
    rules = Rules(
        request_rules=(
            RequestRule(RuleKind.SESSION, SPECULATIVE),
            RequestRule(RuleKind.LONG_PROMPT, BASELINE, 100),
            RequestRule(RuleKind.CONSTRAINED, SPECULATIVE),
        )
    )
    assert asked(rules, snapshot(), Traits(prompt_bytes=100, constrained=True)) == (BASELINE, Reason.RULE)


@pytest.mark.parametrize("pin", ROLES)
def test_policy_pinned_names_its_role_at_any_load(pin: Role) -> None:
    assert asked(Rules(policy=Policy.PINNED, pin=pin), snapshot(100, 100)) == (pin, Reason.PINNED)


# ---------------------------------------------------------------- silence


def hushed(*silent: Role, **how: Any) -> LoadSnapshot:
    first, second = (load._replace(silent=load.role in silent) for load in snapshot(**how)[1:])
    return LoadSnapshot(0.0, first, second)


def test_a_request_avoids_a_silent_backend_also_where_that_is_full() -> None:
    assert asked(Rules(policy=Policy.OVERFLOW), hushed(SPECULATIVE)) == (BASELINE, Reason.SILENT)
    full = hushed(SPECULATIVE, speculative=4, limits=(4, None))
    assert asked(Rules(policy=Policy.OVERFLOW), full) == (BASELINE, Reason.SILENT)


def test_a_request_waits_for_room_rather_than_go_to_a_silent_backend() -> None:
    full = hushed(BASELINE, speculative=4, limits=(4, None))
    assert asked(Rules(policy=Policy.OVERFLOW), full) == (None, Reason.FULL)


@pytest.mark.parametrize("role", ROLES)
def test_what_names_a_silent_backend_goes_there(role: Role) -> None:
    loads = hushed(role)
    assert asked(Rules(operator_pin=role), loads) == (role, Reason.OPERATOR_PIN)
    assert asked(Rules(policy=Policy.PINNED, pin=role), loads) == (role, Reason.PINNED)
    assert asked(Rules(allow_header=True), loads, Traits(asked=role)) == (role, Reason.HEADER)


def test_one_that_ramps_up_beside_a_silent_one_takes_all() -> None:
    loads = hushed(BASELINE, speculative=20)
    back = loads._replace(speculative=loads.speculative._replace(recovered_s=0.1))
    assert asked(Rules(policy=Policy.OVERFLOW, leave_at=100), back) == (SPECULATIVE, Reason.ROOM)


# ---------------------------------------------------------------- eligibility and room


@pytest.mark.parametrize("role", ROLES)
def test_an_ineligible_backend_is_replaced_by_the_other_even_when_pinned(role: Role) -> None:
    loads = snapshot(eligible=(role is not SPECULATIVE, role is not BASELINE))
    assert asked(Rules(operator_pin=role), loads) == (role.other, Reason.ONLY_ELIGIBLE)


def test_a_request_waits_when_the_only_eligible_backend_is_full() -> None:
    assert asked(Rules(), snapshot(0, 4, limits=(None, 4), eligible=(False, True))) == (None, Reason.FULL)


@pytest.mark.parametrize("rules", [Rules(policy=Policy.OVERFLOW), Rules(policy=Policy.THRESHOLD)])
def test_a_full_preferred_backend_gives_way_to_the_other(rules: Rules) -> None:
    assert asked(rules, snapshot(4, 0, limits=(4, None))) == (BASELINE, Reason.OTHER_FULL)


@pytest.mark.parametrize("rules", [Rules(policy=Policy.OVERFLOW), Rules(policy=Policy.THRESHOLD)])
def test_a_request_waits_rather_than_go_to_an_ineligible_backend(rules: Rules) -> None:
    assert asked(rules, snapshot(4, 0, limits=(4, None), eligible=(True, False))) == (None, Reason.FULL)


@pytest.mark.parametrize(
    ("rules", "traits"),
    [
        (Rules(policy=Policy.PINNED, pin=SPECULATIVE), Traits()),
        (Rules(operator_pin=SPECULATIVE), Traits()),
        (Rules(allow_header=True), Traits(asked=SPECULATIVE)),
        (Rules(request_rules=(RequestRule(RuleKind.SESSION, SPECULATIVE),)), Traits(session=True)),
    ],
)
def test_a_firm_wish_waits_for_its_full_backend(rules: Rules, traits: Traits) -> None:
    assert asked(rules, snapshot(4, 0, limits=(4, None)), traits) == (None, Reason.FULL)


def test_no_backend_has_room_when_both_are_at_their_limit() -> None:
    assert asked(Rules(), snapshot(4, 7, limits=(4, 7))) == (None, Reason.FULL)


@pytest.mark.parametrize(
    ("in_flight", "limit", "weight", "room"),
    [(3, 4, 1, True), (3, 4, 2, False), (0, 4, 16, True), (1, 4, 16, False), (10**6, None, 10**6, True)],
)
def test_room_ends_at_the_limit_and_a_heavy_request_takes_all_of_it(
    in_flight: int, limit: int | None, weight: int, room: bool
) -> None:
    assert has_room(BackendLoad(BASELINE, in_flight, limit), weight) is room


@pytest.mark.parametrize(
    ("limit", "weight", "counted", "bulky"),
    [
        (None, 1024, 1024, False),
        (64, 1024, 64, True),
        (64, 33, 33, True),
        (64, 32, 32, False),
        (2, 2, 2, True),
        (1, 1, 1, False),
        (1, 1024, 1, False),  # all are alike where one sequence runs at a time
    ],
)
def test_a_request_counts_as_at_most_what_its_backend_runs_at_once(
    limit: int | None, weight: int, counted: int, bulky: bool
) -> None:
    load = BackendLoad(BASELINE, 3, limit)
    assert (share(load, weight), is_bulky(load, weight)) == (counted, bulky)


# ---------------------------------------------------------------- all down, failover


def test_requests_are_routed_as_if_all_were_up_when_all_look_down() -> None:
    down = (False, False)
    assert asked(Rules(), snapshot(eligible=down)) == (SPECULATIVE, Reason.ALL_DOWN)
    assert asked(Rules(), snapshot(9, eligible=down)) == (BASELINE, Reason.ALL_DOWN)
    assert asked(Rules(operator_pin=BASELINE), snapshot(eligible=down)) == (BASELINE, Reason.ALL_DOWN)
    assert asked(Rules(), snapshot(4, 4, limits=(4, 4), eligible=down)) == (None, Reason.FULL)


@pytest.mark.parametrize("excluded", ROLES)
@pytest.mark.parametrize("rules", [Rules(), Rules(operator_pin=SPECULATIVE), Rules(policy=Policy.PINNED)])
def test_failover_takes_the_other_backend_whatever_was_preferred(excluded: Role, rules: Rules) -> None:
    decision = decide(rules, LONG_AGO, snapshot(50, 50), Traits(), excluded=excluded)
    assert (decision.role, decision.reason) == (excluded.other, Reason.FAILOVER)


def test_failover_finds_nobody_when_the_other_backend_is_down_or_full() -> None:
    for loads in (snapshot(eligible=(True, False)), snapshot(1, 4, limits=(None, 4))):
        decision = decide(Rules(), LONG_AGO, loads, Traits(), excluded=SPECULATIVE)
        assert (decision.role, decision.reason) == (None, Reason.FULL)


def test_failover_tries_the_other_backend_as_a_last_resort_when_all_look_down() -> None:
    decision = decide(Rules(), LONG_AGO, snapshot(eligible=(False, False)), Traits(), excluded=SPECULATIVE)
    assert (decision.role, decision.reason) == (BASELINE, Reason.ALL_DOWN)


# ---------------------------------------------------------------- because and regime


def test_because_counts_without_the_new_request() -> None:
    regime = Regime(SPECULATIVE, -1000.0, 3.5, 10.0, 4.0)
    decision = decide(Rules(leave_at=9, enter_at=5), regime, snapshot(3, 2, at_s=10.0), Traits(weight=2))
    assert decision.because == Because(Policy.OVERFLOW, 3, 2, None, None, 9, None)


@pytest.mark.parametrize(
    ("policy", "looked_at"),
    [
        (Policy.OVERFLOW, {"leave_at"}),
        (Policy.THRESHOLD, {"smoothed", "enter_at", "leave_at", "regime"}),
        (Policy.CONSOLIDATE, {"smoothed", "regime"}),
        (Policy.MARGINAL, set()),
        (Policy.PINNED, set()),
    ],
)
def test_because_tells_of_a_policys_numbers_those_that_it_looks_at(policy: Policy, looked_at: set[str]) -> None:
    rules = Rules(policy, curves=of_both({1: 100.0, 8: 400.0}, {1: 60.0, 8: 480.0}))
    told = decide(rules, LONG_AGO, snapshot(3, 2), Traits()).because
    numbers = {"smoothed", "enter_at", "leave_at", "regime"}
    assert {name for name in numbers if getattr(told, name) is not None} == looked_at


def test_the_decisions_regime_holds_the_request_that_was_placed() -> None:
    assert decide(Rules(), LONG_AGO, snapshot(3, 2), Traits(weight=4)).regime.held == 9


def test_the_decisions_regime_holds_no_more_of_a_request_than_its_backend_runs_at_once() -> None:
    assert decide(Rules(), LONG_AGO, snapshot(0, 2, limits=(4, 4)), Traits(weight=1024)).regime.held == 6


def test_the_decisions_regime_does_not_hold_a_request_that_waits() -> None:
    assert decide(Rules(), LONG_AGO, snapshot(4, 4, limits=(4, 4)), Traits(weight=4)).regime.held == 8


@pytest.mark.parametrize("policy", [Policy.OVERFLOW, Policy.PINNED])
def test_other_policies_keep_the_smoothed_count_warm_and_the_regime_still(policy: Policy) -> None:
    regime = LONG_AGO
    for second in range(60):
        regime = follow(Rules(policy=policy), regime, 30, float(second))
    assert regime.role is SPECULATIVE
    assert regime.smoothed == pytest.approx(30)
    reloaded = decide(Rules(policy=Policy.THRESHOLD), regime, snapshot(9, 21, at_s=60.0), Traits())
    assert (reloaded.role, reloaded.reason) == (BASELINE, Reason.REGIME)


# ---------------------------------------------------------------- a backend that has come back


@pytest.mark.parametrize("policy", [Policy.OVERFLOW, Policy.THRESHOLD])
def test_recovering_backend_gets_its_share_bit_by_bit(policy: Policy) -> None:
    rules = Rules(policy=policy, leave_at=8, enter_at=4, ramp_s=10.0)
    assert asked(rules, back(5.0, speculative=3))[0] is SPECULATIVE
    assert asked(rules, back(5.0, speculative=4)) == (BASELINE, Reason.RAMPING)


def test_recovering_backend_is_kept_to_leave_at_even_when_the_other_is_full() -> None:
    assert asked(Rules(leave_at=8), back(9.9, speculative=8, baseline=4, limits=(48, 4)))[0] is None


def test_recovering_backend_that_is_alone_takes_what_there_is() -> None:
    assert asked(Rules(leave_at=8), back(0.1, speculative=40, eligible=(True, False)))[0] is SPECULATIVE


def test_two_backends_that_have_both_come_back_hold_nobody_up() -> None:
    both = back(0.1, speculative=4, baseline=40)
    both = both._replace(baseline=both.baseline._replace(recovered_s=0.1))
    assert asked(Rules(leave_at=8), both) == (SPECULATIVE, Reason.ROOM)
    assert asked(Rules(leave_at=4), both) == (BASELINE, Reason.OVERFLOW)


def test_operators_pin_knows_no_ramp() -> None:
    assert asked(Rules(operator_pin=SPECULATIVE), back(0.1, speculative=40))[0] is SPECULATIVE


def test_failover_falls_upon_no_recovering_backend() -> None:
    decision = decide(Rules(leave_at=8), LONG_AGO, back(1.0, speculative=1), Traits(), excluded=BASELINE)
    assert decision.role is None


def back(recovered_s: float, **loads: Any) -> LoadSnapshot:
    """A snapshot whose speculative backend came back `recovered_s` ago."""
    seen = snapshot(**loads)
    return seen._replace(speculative=seen.speculative._replace(recovered_s=recovered_s))


# ---------------------------------------------------------------- what holds of every decision

roles = st.sampled_from(Role)
counts = st.integers(0, 60)


@st.composite
def rule_sets(draw: st.DrawFn) -> Rules:
    leave_at = draw(st.integers(1, 40))
    return Rules(
        draw(st.sampled_from(Policy)),
        draw(st.sampled_from(Placement)),
        leave_at,
        draw(st.integers(0, leave_at - 1)),
        draw(st.floats(0, 60)),
        draw(st.sampled_from([0.0, 0.5, 2.0, 30.0])),
        draw(roles),
        draw(st.booleans()),
        tuple(
            draw(st.lists(st.builds(RequestRule, st.sampled_from(RuleKind), roles, st.integers(0, 100)), max_size=3))
        ),
        draw(st.none() | roles),
        curves=draw(st.none() | any_curves()),
    )


def loads(role: Role) -> st.SearchStrategy[BackendLoad]:
    limits = st.none() | st.integers(1, 60)
    recovered = st.none() | st.floats(0, 20)
    state = (st.booleans(), recovered, st.none(), st.booleans())
    return st.builds(BackendLoad, st.just(role), counts, limits, st.integers(0, 20), *state)


snapshots = st.builds(LoadSnapshot, st.floats(-10, 1000), loads(SPECULATIVE), loads(BASELINE))
demands = st.builds(
    Demand,
    st.floats(0, 1e5),
    st.floats(0, 2e5),
    st.floats(0, 1e5),
    st.floats(0, 1000),
    st.floats(0, 1e5),
    st.floats(0, 1e6),
    st.floats(0, 1e5),
    st.floats(0, 300),
    st.floats(0, 100),
    st.floats(-1e6, 1e6),
    st.floats(-10, 1000) | st.just(-inf),
    st.floats(0, 1000),
)
regimes = st.just(Regime()) | st.builds(
    Regime, roles, st.floats(-10, 1000), st.floats(0, 100), st.floats(-10, 1000), st.floats(0, 100), demands
)
some_traits = st.builds(
    Traits,
    st.integers(1, 64),
    st.booleans(),
    st.none(),
    st.integers(0, 200),
    st.booleans(),
    st.booleans(),
    st.none() | roles,
    st.none() | st.integers(1, 100_000),
)


class Question(NamedTuple):
    """One thing that decide may be asked."""

    rules: Rules
    regime: Regime
    loads: LoadSnapshot
    traits: Traits
    excluded: Role | None

    def decide(self) -> Decision:
        return decide(self.rules, self.regime, self.loads, self.traits, excluded=self.excluded)

    def open_roles(self) -> list[Role]:
        """The roles that a request may go to when only eligibility and room count."""
        loads = [self.loads.of(role) for role in ROLES if role is not self.excluded]
        all_down = not (self.loads.speculative.eligible or self.loads.baseline.eligible)
        open_ = [load for load in loads if (load.eligible or all_down) and has_room(load, self.traits.weight)]
        return [load.role for load in open_ if not self.ramping(load) and not is_silent(self.loads, load.role)]

    def ramping(self, load: BackendLoad) -> bool:
        """Whether it is held back beside a backend that serves."""
        beside = self.loads.of(load.role.other)
        in_full = beside.eligible and not is_silent(self.loads, load.role.other)
        in_full = in_full and not ramp.is_on(self.rules, beside)
        return in_full and not ramp.admits(self.rules, load, self.traits.weight)


questions = st.builds(Question, rule_sets(), regimes, snapshots, some_traits, st.none() | roles)


@settings(max_examples=300)
@given(questions)
def test_every_decision_keeps_the_promises(question: Question) -> None:
    rules, regime, loads, traits, excluded = question
    decision = question.decide()
    assert decision == question.decide(), "same input, same decision"
    assert (decision.role is None) == (decision.reason is Reason.FULL)
    if decision.role is not None:
        chosen = loads.of(decision.role)
        assert decision.role is not excluded
        assert chosen.eligible or decision.reason is Reason.ALL_DOWN
        assert (decision.reason is Reason.ALL_DOWN) == (not loads.speculative.eligible and not loads.baseline.eligible)
        if chosen.max_in_flight is not None:
            assert chosen.in_flight + share(chosen, traits.weight) <= chosen.max_in_flight
    if decision.regime.role is not regime.role:
        assert decision.regime.since_s == loads.at_s
        assert loads.at_s - regime.since_s >= rules.dwell_s


@given(questions)
def test_a_request_waits_only_when_its_way_is_closed(question: Question) -> None:
    rules, decision = question.rules, question.decide()
    firm = rules.operator_pin or rules.allow_header or rules.request_rules or rules.effective_policy is Policy.PINNED
    if decision.role is not None and not firm:
        assert decision.role in question.open_roles()
    elif not firm:
        assert question.open_roles() == []


@given(questions)
def test_silence_of_both_or_of_the_only_eligible_one_changes_nothing(question: Question) -> None:
    first, second = question.loads.speculative, question.loads.baseline
    heard = question.loads._replace(speculative=first._replace(silent=False), baseline=second._replace(silent=False))
    if first.silent is second.silent or not (first.eligible and second.eligible):
        assert question.decide() == question._replace(loads=heard).decide()


@given(questions)
def test_a_silent_backend_gets_only_what_names_it_while_the_other_one_speaks(question: Question) -> None:
    decision = question.decide()
    if decision.role is not None and is_silent(question.loads, decision.role):
        assert decision.reason in (Reason.OPERATOR_PIN, Reason.HEADER, Reason.RULE, Reason.PINNED)
    if decision.reason is Reason.SILENT:
        assert decision.role is not None and is_silent(question.loads, decision.role.other)


def test_decide_is_total_over_every_combination_of_its_closed_sets() -> None:
    room = (None, 1)
    for policy, placement, role, pin, wish, left_out in product(
        Policy, Placement, Role, (None, *Role), (None, *Role), (None, *Role)
    ):
        rules = Rules(policy, placement, operator_pin=pin, allow_header=True, pin=role)
        for up, down, first, second in product((True, False), (True, False), room, room):
            loads = snapshot(1, 1, limits=(first, second), eligible=(up, down))
            for kind in (Traits(asked=wish), Traits(asked=wish, constrained=True)):
                decision = decide(rules, LONG_AGO._replace(role=role), loads, kind, excluded=left_out)
                assert decision.reason in Reason
                assert decision.because.policy is not Policy.AUTO


@given(
    st.sampled_from([Policy.THRESHOLD, Policy.OVERFLOW]),
    st.integers(1, 40),
    st.lists(st.integers(1, 12), min_size=1, max_size=80),
    st.sampled_from([0.0, 2.0]),
    st.integers(0, 8),
)
def test_a_burst_in_one_tick_never_exceeds_leave_at_on_speculative(
    policy: Policy, leave_at: int, weights: list[int], smoothing_s: float, failures: int
) -> None:
    rules = Rules(policy=policy, leave_at=leave_at, enter_at=leave_at - 1, smoothing_s=smoothing_s)
    regime, flying = LONG_AGO, {SPECULATIVE: 0, BASELINE: 0}
    for weight in weights:
        was = flying[SPECULATIVE]
        decision = decide(rules, regime, snapshot(was, flying[BASELINE], failures=(failures, 0)), Traits(weight=weight))
        regime = decision.regime
        assert decision.role is not None
        flying[decision.role] += weight
        if decision.role is SPECULATIVE:
            assert flying[SPECULATIVE] + failures <= leave_at or (was == 0 and failures == 0)


def test_sequences_beyond_what_an_engine_runs_at_once_are_no_demand() -> None:
    rules = Rules(curves=curves(bucket({1: 100.0, 8: 300.0}, {1: 80.0, 8: 500.0})))
    each = [Traits(weight=weight, max_tokens=100) for weight in (16, 65_536)]
    demands = [decide(rules, LONG_AGO, snapshot(limits=(16, 16)), traits).regime.demand for traits in each]
    assert demands[0] == demands[1]
    assert demands[0].tok_s > 0.0
