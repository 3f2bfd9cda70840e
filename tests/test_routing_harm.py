"""When corrected curves are dropped again: only where answers bear them out less than the measured ones."""

from dataclasses import replace
from math import log

import pytest
from fakes.speeds import bucket, curves, of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import (
    BASELINE,
    ROLES,
    SPECULATIVE,
    BackendLoad,
    Because,
    Costs,
    Decision,
    Demand,
    LoadSnapshot,
    Placement,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
    Whereabouts,
)
from proxy.routing.evidence import Seen
from proxy.routing.harm import (
    LEAST_ANSWERS,
    LEAST_S,
    LONGEST_S,
    SLOT_S,
    SUSPENDED_S,
    WINDOW_S,
    Cause,
    Choice,
    Harm,
    Suspension,
    choice_of,
    is_choice,
)
from proxy.routing.learner import Told
from proxy.routing.policy import decide
from proxy.routing.rules import Affinity, RequestRule, RuleKind, Rules

CURVES = of_both({1: 100.0, 8: 480.0, 64: 1200.0}, {1: 60.0, 8: 400.0, 64: 1900.0})
SEEN = Seen(4.0, 0.0, 0.01, 0.02)
WHY = Suspension(Cause.COST, None, "", 1.0, 2.0, 100, 60, 0.0)


def told(harm: Harm, ln_ratio: float, believed: float | None, times: int = 1, at_s: float = 0.0) -> None:
    for number in range(times):
        harm.answered(SPECULATIVE, Told(0, SEEN, ln_ratio, believed), at_s + number)


def test_answers_that_are_as_foretold_are_no_harm() -> None:
    harm = Harm(CURVES)
    told(harm, 0.6, 0.6, 500)
    assert not harm.look(500.0)


@pytest.mark.parametrize("lie", [log(3.0), -log(3.0)])
def test_a_threefold_lie_is_found_out_by_some_answers(lie: float) -> None:
    harm = Harm(CURVES)
    told(harm, 0.0, lie, 2)
    assert not harm.look(2.0)  # two may be chance
    told(harm, 0.0, lie, 3)
    assert harm.look(5.0)


def test_a_suspension_tells_what_was_predicted_and_seen_of_whom_over_how_many_answers() -> None:
    harm = Harm(CURVES)
    told(harm, 0.0, log(3.0), 3)
    why = harm.look(3.0)
    assert why is not None
    assert (why.cause, why.role, why.answers) == (Cause.DOUBT, SPECULATIVE, 3)
    assert (why.predicted_s, why.seen_s) == (pytest.approx(0.03), pytest.approx(0.01))
    harm.suspend(why._replace(source="moments"), 3.0)
    assert harm.last is not None
    assert harm.last.numbers() == {
        "cause": "doubt",
        "source": "moments",
        "predicted_s": 0.03,
        "seen_s": 0.01,
        "answers": 3,
        "moved": 0,
        "suspended_for_s": SUSPENDED_S,
    }


def test_answers_before_the_last_one_that_was_as_foretold_are_no_part_of_a_doubt() -> None:
    harm = Harm(CURVES)
    told(harm, 0.2, 0.2, 50)
    told(harm, 0.0, log(3.0), 3)
    why = harm.look(60.0)
    assert why is not None and why.answers == 3


def test_prompts_between_tokens_are_no_lie() -> None:
    harm = Harm(CURVES)
    told(harm, 0.3, 0.0, 500)
    told(harm, 0.0, -0.3, 500)
    assert not harm.look(1000.0)


def test_an_answer_that_is_no_test_of_belief_raises_no_doubt() -> None:
    harm = Harm(CURVES)
    told(harm, 0.0, None, 500)
    assert not harm.look(500.0)


def sent(harm: Harm, choice: Choice, count: int, every_s: float, at_s: float = 0.0) -> float:
    """Requests that went to the speculative backend, one after the other."""
    for number in range(count):
        now_s = at_s + every_s * number
        harm.answered(BASELINE, Told(0, SEEN, 0.0), now_s)
        harm.compare(SPECULATIVE, 0, choice, (4.0, 4.0), now_s)
    return at_s + every_s * count


def test_requests_that_would_have_cost_less_elsewhere_are_harm_once_they_are_many() -> None:
    harm, worse = Harm(CURVES), Choice((1.5, 1.0), BASELINE)
    now_s = sent(harm, worse, LEAST_ANSWERS + 1, LEAST_S / LEAST_ANSWERS * 1.2)
    why = harm.look(now_s)
    assert why is not None
    assert (why.cause, why.role, why.answers, why.moved) == (Cause.COST, None, LEAST_ANSWERS + 1, LEAST_ANSWERS + 1)
    assert why.seen_s == pytest.approx(1.5 * why.answers)
    assert why.predicted_s == pytest.approx(1.15 * why.answers)
    few = Harm(CURVES)
    assert not few.look(sent(few, worse, LEAST_ANSWERS // 2, LEAST_S / LEAST_ANSWERS * 3))
    short = Harm(CURVES)
    assert not short.look(sent(short, worse, 10 * LEAST_ANSWERS, 0.01))


def test_requests_that_cost_about_the_same_elsewhere_are_no_harm() -> None:
    harm = Harm(CURVES)
    assert not harm.look(sent(harm, Choice((1.1, 1.0), BASELINE), 4 * LEAST_ANSWERS, 1.0))


def test_requests_that_would_have_gone_the_same_way_dilute_the_harm() -> None:
    harm, now_s = Harm(CURVES), 0.0
    for _ in range(60):
        now_s = sent(harm, Choice((1.5, 1.0), BASELINE), 1, 1.0, now_s)
        now_s = sent(harm, Choice((1.0, 1.5), SPECULATIVE), 9, 0.4, now_s)
    assert not harm.look(now_s)


def test_time_in_which_nothing_was_chosen_is_none_of_the_time_that_harm_lasts() -> None:
    harm, worse = Harm(CURVES), Choice((1.5, 1.0), BASELINE)
    sent(harm, worse, LEAST_ANSWERS, 0.1)
    now_s = sent(harm, worse, LEAST_ANSWERS, 0.1, at_s=WINDOW_S - 3 * SLOT_S)  # in between all were pinned
    assert not harm.look(now_s)
    now_s = sent(harm, worse, LEAST_ANSWERS, 1.5 * LEAST_S / LEAST_ANSWERS, at_s=now_s)
    assert harm.look(now_s)


def test_what_is_long_ago_is_forgotten() -> None:
    harm = Harm(CURVES)
    now_s = sent(harm, Choice((1.5, 1.0), BASELINE), 2 * LEAST_ANSWERS, 2.0)
    assert not harm.look(now_s + WINDOW_S + 20.0)


def test_a_backend_of_which_nothing_was_heard_lately_is_no_alternative() -> None:
    harm = Harm(CURVES)
    for number in range(200):
        harm.compare(SPECULATIVE, 0, Choice((1.5, 1.0), BASELINE), (4.0, 4.0), float(number))
    assert not harm.look(200.0)


def test_each_suspension_is_longer_than_the_one_before_within_a_bound() -> None:
    harm, now_s, lasted = Harm(CURVES), 0.0, []
    for _ in range(8):
        harm.suspend(WHY, now_s)
        lasted.append(harm.until_s - now_s)
        now_s = harm.until_s + 10.0
    assert lasted[:3] == [SUSPENDED_S, 2 * SUSPENDED_S, 4 * SUSPENDED_S]
    assert lasted[-1] == LONGEST_S
    harm.suspend(WHY, now_s + 2 * LONGEST_S)
    assert harm.until_s - now_s - 2 * LONGEST_S == SUSPENDED_S


def test_the_measured_choice_is_what_marginal_would_have_made_of_the_same_counts() -> None:
    rules = Rules(Policy.MARGINAL, curves=CURVES)
    for counts, role in (((0, 0), SPECULATIVE), ((60, 5), BASELINE)):
        because = Because(Policy.MARGINAL, *counts, 0.0, 5, 9, SPECULATIVE, 0, Costs(9.0, 9.0))
        choice = choice_of(rules, Decision(SPECULATIVE, Reason.CHEAPER, Regime(), because), Traits(), 100.0)
        assert choice is not None and choice.role is role
        assert min(choice.costs_s) == choice.costs_s[0 if role is SPECULATIVE else 1]


def test_the_measured_choice_has_the_demand_and_the_cached_tokens_of_the_decision() -> None:
    prefilled = curves(bucket({1: 100.0, 8: 480.0}, {1: 60.0, 8: 400.0}, prefill_tok_s=(4000.0, 4000.0)))
    rules, traits = Rules(Policy.MARGINAL, curves=prefilled), Traits(prompt_bytes=16_000)
    regime = Regime(smoothed_at_s=0.0, demand=Demand(400.0, 1000.0, 200.0))
    snapshot = LoadSnapshot(0.0, BackendLoad(SPECULATIVE, 2), BackendLoad(BASELINE, 2))
    decision = decide(rules, regime, snapshot, traits, expected_tokens=200.0, where=Whereabouts(0, 3000))
    choice = choice_of(rules, decision._replace(regime=regime), traits, 200.0)
    assert choice is not None and decision.because.costs is not None
    assert choice.costs_s == decision.because.costs[:2]


def test_the_measured_choice_of_consolidate_needs_the_gain_of_a_change() -> None:
    rules = Rules(Policy.CONSOLIDATE, placement=Placement.SHARED, curves=CURVES)
    because = Because(Policy.CONSOLIDATE, 3, 0, 0.0, 5, 9, BASELINE, 0, Costs(9.0, 9.0))
    regime = Regime(BASELINE, demand=Demand(50.0, 1000.0, 200.0))
    choice = choice_of(rules, Decision(BASELINE, Reason.REGIME, regime, because), Traits(), 100.0)
    assert choice is not None and choice.role is SPECULATIVE


def test_curves_that_foretell_answers_better_are_not_called_worse_by_those_that_do_not() -> None:
    harm = Harm(CURVES)
    told(harm, 0.5, 0.5, 40)
    assert not harm.look(sent(harm, Choice((1.5, 1.0), BASELINE), 4 * LEAST_ANSWERS, 1.0))


@pytest.mark.parametrize(("role", "reason"), [(BASELINE, Reason.AFFINITY), (SPECULATIVE, Reason.CHEAPER)])
@pytest.mark.parametrize(("speculative", "home_stays"), [(63.0, True), (120.0, False)])
def test_the_measured_choice_keeps_a_conversation_at_home_while_that_pays(
    role: Role, reason: Reason, speculative: float, home_stays: bool
) -> None:
    measured = of_both({1: speculative, 8: 480.0}, {1: 60.0, 8: 400.0})
    rules = Rules(Policy.MARGINAL, curves=measured, affinity=Affinity())
    because = Because(Policy.MARGINAL, 0, 0, 0.0, 5, 9, SPECULATIVE, 0, Costs(9.0, 9.0), 1024, 2048)
    choice = choice_of(rules, Decision(role, reason, Regime(), because), Traits(), 100.0)
    assert choice is not None and choice.costs_s[0] < choice.costs_s[1]
    assert choice.role is (BASELINE if home_stays else SPECULATIVE)


seldom = st.sampled_from((None,) * 8 + ROLES)
many = st.integers(0, 60)


def loads(role: Role) -> st.SearchStrategy[BackendLoad]:
    eligible, recovered = st.sampled_from((True, True, True, False)), st.none() | st.floats(0.0, 20.0)
    return st.builds(
        BackendLoad, st.just(role), many, st.none() | st.integers(1, 80), st.just(0), eligible, recovered, st.none()
    )


@given(st.tuples(loads(SPECULATIVE), loads(BASELINE)), seldom, seldom, seldom, seldom)
def test_whoever_is_judged_would_have_gone_to_the_other_backend_by_other_curves(
    both: tuple[BackendLoad, BackendLoad], pin: Role | None, asked: Role | None, ruled: Role | None, failed: Role | None
) -> None:
    request_rules = () if ruled is None else (RequestRule(RuleKind.LONG_PROMPT, ruled),)
    rules = Rules(Policy.MARGINAL, allow_header=True, request_rules=request_rules, operator_pin=pin, curves=CURVES)
    snapshot, traits = LoadSnapshot(0.0, *both), Traits(asked=asked)
    decision = decide(replace(rules, learned=True), Regime(), snapshot, traits, excluded=failed)
    assert not is_choice(decide(rules, Regime(), snapshot, traits, excluded=failed))
    if is_choice(decision):
        fast, slow = {1.0: 1e6, 80.0: 8e7}, {1.0: 1.0, 80.0: 1.0}
        others = of_both(fast, slow) if decision.role is BASELINE else of_both(slow, fast)
        other = decide(replace(rules, curves=others), Regime(), snapshot, traits, excluded=failed)
        assert {decision.role, other.role} == set(ROLES)
