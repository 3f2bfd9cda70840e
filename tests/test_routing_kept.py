"""Why consolidate keeps a role: told where, and only where, the other one would serve sooner; and when that ends."""

from math import inf

import pytest
from fakes.speeds import any_curves, of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import (
    BASELINE,
    NO_DEMAND,
    ROLES,
    SPECULATIVE,
    BackendLoad,
    Demand,
    LoadSnapshot,
    Placement,
    Policy,
    Regime,
    Role,
    Traits,
)
from proxy.routing.consolidate import MIN_GAIN, expected, loaded
from proxy.routing.curves import Curves
from proxy.routing.kept import Kept, Why, kept
from proxy.routing.policy import decide, first_role
from proxy.routing.rules import Rules

# Speculation is the faster one for a few, and the baseline for many.
ONE_CROSSING = of_both({1: 60.0, 16: 300.0}, {1: 40.0, 16: 400.0})
STEP_S, TOKENS = 0.5, 256.0
CALM, BURST = (1, 55.0), (16, 390.0)  # in flight, and output tok/s that it makes


def shared(measured: Curves = ONE_CROSSING) -> Rules:
    return Rules(Policy.AUTO, Placement.SHARED, curves=measured)


class Loop:
    """Requests that come evenly, a number of them in flight on the favoured role."""

    def __init__(self) -> None:
        self.rules, self.now_s, self.due = shared(), 0.0, 0.0
        self.regime = Regime(first_role(self.rules), -self.rules.dwell_s, smoothed_at_s=0.0)

    def step(self, in_flight: int, tok_s: float) -> None:
        self.now_s += STEP_S
        self.due += tok_s * STEP_S / TOKENS
        while self.due >= 1.0:
            self.due -= 1.0
            counts = {role: in_flight - 1 if role is self.regime.role else 0 for role in ROLES}
            loads = (BackendLoad(role, counts[role]) for role in ROLES)
            decision = decide(self.rules, self.regime, LoadSnapshot(self.now_s, *loads), Traits())
            self.regime = decision.regime

    def until(self, role: Role, load: tuple[int, float]) -> float:
        """Seconds until `role` has the favour."""
        began_s = self.now_s
        while self.regime.role is not role:
            self.step(*load)
            assert self.now_s - began_s < 7200.0, "it never came"
        return self.now_s - began_s

    def steps(self, seconds: float, load: tuple[int, float]) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.step(*load)

    def kept(self) -> Kept | None:
        return kept(self.rules, self.regime, self.now_s)


def test_after_a_burst_the_past_keeps_the_role_for_about_as_long_as_is_told() -> None:
    loop = Loop()
    loop.steps(60.0, CALM)
    assert loop.kept() is None
    loop.until(BASELINE, BURST)
    loop.steps(40.0, BURST)
    assert loop.kept() is None
    while (found := loop.kept()) is None or found.why is not Why.PAST:
        loop.step(*CALM)
    began_s, told_s = loop.now_s, found.changes_in_s
    loop.until(SPECULATIVE, CALM)
    took_s = loop.now_s - began_s
    assert told_s is not None and 0.6 * told_s < took_s < 1.6 * told_s
    assert took_s > loop.rules.dwell_s, "and it is no matter of the dwell"


def test_a_young_change_waits_for_the_dwell() -> None:
    rules = shared()
    regime = Regime(BASELINE, 0.0, demand=Demand(20.0, 1024.0, 256.0, excess=-1000.0))
    assert kept(rules, regime, 20.0) == Kept(Why.DWELL, rules.dwell_s - 20.0)
    assert kept(rules, regime, rules.dwell_s + 1.0) == Kept(Why.DUE)


@pytest.mark.parametrize(
    ("smoothed", "demand", "why"),
    [
        (1e6, Demand(20.0, 1024.0, 256.0, excess=-1e9), Why.COST),
        (0.0, Demand(20.0, 1024.0, 256.0, excess=-1.0), Why.DUE),
        (0.0, Demand(20.0, 1024.0, 256.0, peak_tok_s=300.0, excess=1.0), Why.PAST),
        (0.0, Demand(20.0, 1024.0, 256.0, peak_tok_s=300.0, excess=1.0, due_at_s=0.0), Why.DUE),
    ],
)
def test_each_cause_is_the_one_that_holds(smoothed: float, demand: Demand, why: Why) -> None:
    found = kept(shared(), Regime(BASELINE, -1000.0, smoothed=smoothed, demand=demand), 0.0)
    assert found is not None and found.why is why


def test_without_demand_or_curves_there_is_nothing_to_tell() -> None:
    assert kept(shared(), Regime(BASELINE), 0.0) is None
    regime = Regime(BASELINE, demand=NO_DEMAND._replace(tok_s=20.0))
    assert kept(Rules(Policy.THRESHOLD), regime, 0.0) is None


@given(any_curves(), st.sampled_from(ROLES), st.floats(0.1, 5000.0), st.floats(-1e6, 1e6), st.floats(0.0, 1e4))
def test_a_cause_is_told_exactly_where_the_other_would_hold_fewer(
    measured: Curves, role: Role, tok_s: float, excess: float, age_s: float
) -> None:
    rules = shared(measured)
    regime = Regime(role, -age_s, demand=Demand(tok_s, 1024.0, 256.0, peak_tok_s=tok_s * 2.0, excess=excess))
    assert rules.paces is not None
    here = rules.paces.at_context(1024.0)[ROLES.index(role)]
    first, second = expected(rules, regime.demand, loaded(here, regime.demand))
    mine, others = (first, second) if role is SPECULATIVE else (second, first)
    found = kept(rules, regime, 0.0)
    assert (found is None) == (mine <= others)
    if found is not None:
        assert (found.why is Why.LITTLE) == (mine < (1.0 + MIN_GAIN) * others)
        assert found.changes_in_s is None or 0.0 < found.changes_in_s < inf
