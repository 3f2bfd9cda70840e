"""Why a backend was out: the word beside a decision is the one for what kept the request away, and none else."""

from typing import Any

import pytest

from proxy.model import BASELINE, SPECULATIVE, BackendLoad, CircuitState, LoadSnapshot, Regime, Traits
from proxy.routing.breaker import BreakerRules, Circuit
from proxy.routing.health import Health
from proxy.routing.out import Out
from proxy.routing.policy import decide, filled
from proxy.routing.rules import Rules
from proxy.state.backend import Backend
from proxy.state.ledger import Book

DOWN, OPEN = Health(up=False), Circuit(CircuitState.OPEN, 0.0)


def seen(**speculative: Any) -> LoadSnapshot:
    return LoadSnapshot(0.0, BackendLoad(SPECULATIVE, 3)._replace(**speculative), BackendLoad(BASELINE, 2))


@pytest.mark.parametrize(
    ("loads", "outs"),
    [
        (seen(), (None, None)),
        (seen(max_in_flight=3), (Out.FULL, None)),
        (seen(max_in_flight=4), (None, None)),
        (filled(seen(), BASELINE), (None, Out.FULL)),
        (seen(eligible=False), (Out.DOWN, None)),
        (seen(eligible=False, out=Out.CIRCUIT_OPEN, max_in_flight=1), (Out.CIRCUIT_OPEN, None)),
        (seen(eligible=False, out=Out.DRAINING), (Out.DRAINING, None)),
        (seen(silent=True, max_in_flight=3), (Out.SILENT, None)),
        (seen(recovered_s=0.1), (Out.RAMPING, None)),
        (seen(recovered_s=0.1, max_in_flight=3), (Out.FULL, None)),
    ],
)
def test_because_tells_why_each_backend_was_out(loads: LoadSnapshot, outs: tuple[Out | None, Out | None]) -> None:
    because = decide(Rules(), Regime(), loads, Traits()).because
    assert (because.speculative_out, because.baseline_out) == outs


@pytest.mark.parametrize(
    ("state", "out"),
    [
        ({}, None),
        ({"health": DOWN}, Out.DOWN),
        ({"circuit": OPEN}, Out.CIRCUIT_OPEN),
        ({"draining": True}, Out.DRAINING),
        ({"draining": True, "health": DOWN, "circuit": OPEN}, Out.DRAINING),
        ({"health": DOWN, "circuit": OPEN}, Out.DOWN),
    ],
)
def test_a_backend_that_is_not_eligible_says_what_keeps_it_from_that(state: dict[str, Any], out: Out | None) -> None:
    load = Backend(SPECULATIVE, "http://a", Book("a"), **state).view(BreakerRules(), 1.0)
    assert (load.eligible, load.out) == (out is None, out)
