"""Why consolidate's role is favoured: a role that is kept is never said to be the one that serves sooner."""

from math import inf
from typing import Any

import pytest
from fakes.told import PRESENTS
from hypothesis import given

from proxy.model import NO_DEMAND, ROLES, Because, Costs, Decision, DecisionRecord, Policy, Reason, Regime, Role
from proxy.routing.kept import Why
from proxy.telling import Favour, Present, Side, now, sentences

SPECULATIVE, BASELINE = ROLES
SOONER_THERE = Costs(2.18, 3.2)


def kept(why: str | None, in_s: float | None = None, **more: Any) -> str:
    """Of a baseline that has the favour while the other one would take less."""
    numbers = {"costs": SOONER_THERE, "tokens": 256.0, "regime_age_s": 300.0, "regime": BASELINE, **more}
    sides = Side(SPECULATIVE), Side(BASELINE, 1)
    return now(Present(Policy.CONSOLIDATE, *sides, favour=Favour(why, in_s), **numbers))


def test_who_serves_the_present_demand_sooner_is_said_to_with_the_numbers() -> None:
    assert kept(None, costs=Costs(3.2, 2.18)) == (
        "New requests go to baseline, favoured for 5 min as the one that serves the demand of the last minutes sooner "
        "by the measured speeds: an answer of the expected 260 tokens takes 2.2 s on baseline, 3.2 s on speculative."
    )


def test_a_role_that_is_kept_for_the_past_says_so_and_when_it_changes() -> None:
    assert kept(Why.PAST, 700.0) == (
        "New requests go to baseline, favoured for 5 min, since the demand of the last half hour was served sooner "
        "there; that of the last minutes speculative would serve sooner by the measured speeds (an answer of the "
        "expected 260 tokens takes 2.2 s on speculative, 3.2 s on baseline), and takes over after some 12 min of "
        "such demand."
    )
    assert kept(Why.PAST).endswith(", and takes over once such demand outweighs that.")


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            Why.DWELL,
            "sooner (an answer of the expected 260 tokens takes 2.2 s on speculative, 3.2 s on baseline), and ",
        ),
        (Why.DWELL, "and takes over in 40 s at the earliest, since the last change is too young."),
        (Why.DUE, "and takes over once that has lasted for a moment."),
        (Why.COST, "but a change would cost more than it saves."),
        (Why.DOUBT, "but the demand may yet turn out to be one for which it would not."),
        (Why.LITTLE, "would serve the demand of the last minutes hardly sooner"),
        (Why.LITTLE, "too little for a change."),
        (Why.TRIAL, "New requests go to baseline, favoured for 5 min for a while to see how fast it is."),
    ],
)
def test_each_cause_that_keeps_a_role_is_told(why: Why, words: str) -> None:
    assert words in kept(why, 40.0)


def test_every_cause_has_words_of_its_own() -> None:
    assert len({kept(why, 40.0) for why in Why}) == len(Why)


def test_more_demand_than_was_measured_is_told_in_words() -> None:
    assert "takes 2.2 s on speculative, without end on baseline" in kept(Why.DWELL, 3.0, costs=Costs(2.18, inf))


@given(PRESENTS)
def test_one_that_would_take_longer_is_never_said_to_serve_sooner(state: Present) -> None:
    costs = state.costs
    if costs is not None and "as the one that serves the demand of the last minutes sooner" in now(state):
        mine, others = costs.speculative_s, costs.baseline_s
        assert not (others < mine if state.regime is SPECULATIVE else mine < others)


def explained(costs: Costs | None, excess: float, role: Role = BASELINE) -> str:
    regime = Regime(role, demand=NO_DEMAND._replace(excess=excess))
    because = Because(Policy.CONSOLIDATE, 0, 1, 1.0, None, None, role, costs=costs)
    decision = Decision(role, Reason.REGIME, regime, because)
    return " ".join(sentences([DecisionRecord(0.0, "id", "/generate", 1, 1, decision)], None))


def test_a_decision_does_not_contradict_its_own_numbers() -> None:
    told = explained(SOONER_THERE, 50.0)
    assert "It went to baseline: policy consolidate kept it in favour, though speculative would serve the" in told
    assert "the demand of the last half hour was served sooner there, and a calm must outweigh that." in told
    assert "would take 2.2 s on speculative and 3.2 s on baseline" in told
    assert "as the one that serves" in explained(Costs(3.2, 2.18), 50.0)
    assert "as the one that serves" in explained(None, 0.0)


def test_a_decision_tells_the_past_only_where_that_spoke_for_its_role() -> None:
    assert "half hour" not in explained(SOONER_THERE, -50.0)
    assert "a change waits until that has lasted" in explained(SOONER_THERE, -50.0)
    assert "half hour" in explained(Costs(3.2, 2.18), -50.0, SPECULATIVE)
    assert "hardly sooner" in explained(Costs(2.18, 2.2), 50.0)


def test_without_a_cause_one_that_would_take_longer_is_said_to_be_hardly_behind() -> None:
    told = kept(None)
    assert "as the one that serves" not in told
    assert "speculative would serve the demand of the last minutes hardly sooner" in told
