"""The ramp: how much a backend takes after it has come back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import ROLES, BackendLoad, Policy, Role
from proxy.routing.ramp import GOAL_IF_UNLIMITED, admits
from proxy.routing.rules import Rules

SPECULATIVE, BASELINE = ROLES
RULES = Rules(policy=Policy.OVERFLOW, leave_at=8, ramp_s=10.0)


def most(rules: Rules, load: BackendLoad) -> int:
    """Sequences that the backend takes one by one until it refuses, at most a thousand."""
    return next((held for held in range(1000) if not admits(rules, load._replace(in_flight=held), 1)), 1000)


@pytest.mark.parametrize(("recovered_s", "taken"), [(0.0, 1), (1.0, 1), (2.5, 2), (5.0, 4), (9.9, 8), (10.0, 1000)])
def test_speculative_backend_grows_to_leave_at_over_the_ramp(recovered_s: float, taken: int) -> None:
    assert most(RULES, BackendLoad(SPECULATIVE, max_in_flight=48, recovered_s=recovered_s)) == taken


@pytest.mark.parametrize(
    ("load", "taken"),
    [
        (BackendLoad(BASELINE, max_in_flight=100, recovered_s=5.0), 50),
        (BackendLoad(BASELINE, recovered_s=5.0), GOAL_IF_UNLIMITED // 2),
        (BackendLoad(SPECULATIVE, max_in_flight=4, recovered_s=5.0), 2),
    ],
)
def test_goal_is_the_backends_own_limit(load: BackendLoad, taken: int) -> None:
    assert most(RULES, load) == taken


def test_pinned_policy_knows_no_leave_at() -> None:
    pinned = replace(RULES, policy=Policy.PINNED, pin=SPECULATIVE)
    assert most(pinned, BackendLoad(SPECULATIVE, max_in_flight=100, recovered_s=5.0)) == 50


@given(st.sampled_from(ROLES), st.integers(0, 500), st.integers(1, 500))
def test_backend_that_never_was_down_is_held_to_nothing(role: Role, in_flight: int, weight: int) -> None:
    assert admits(RULES, BackendLoad(role, in_flight), weight)


@given(st.integers(1, 500), st.floats(0, 20))
def test_idle_backend_takes_any_request(weight: int, recovered_s: float) -> None:
    assert admits(RULES, BackendLoad(SPECULATIVE, 0, recovered_s=recovered_s), weight)


@given(st.integers(0, 50), st.integers(1, 50), st.floats(0, 20), st.floats(0, 20))
def test_what_was_admitted_early_is_admitted_later(in_flight: int, weight: int, one_s: float, other_s: float) -> None:
    early, late = sorted((one_s, other_s))
    load = BackendLoad(SPECULATIVE, in_flight, max_in_flight=48)
    assert admits(RULES, load._replace(recovered_s=late), weight) or not admits(
        RULES, load._replace(recovered_s=early), weight
    )


def test_no_ramp_holds_nothing_back() -> None:
    assert admits(replace(RULES, ramp_s=0.0), BackendLoad(SPECULATIVE, 40, recovered_s=0.0), 1)
