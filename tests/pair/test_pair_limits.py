"""The numbers of the rules that have numbers."""

import pytest
from pair.limits import NEVER_LEFT, limits, peak_tok_s

from proxy.model import Placement
from proxy.routing.curves import ContextCurves, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Verdict, VerdictKind

UNKNOWN = Verdict(VerdictKind.UNKNOWN, reason="one sweep")


def curve(*tok_s: float) -> SpeedCurve:
    return SpeedCurve(tuple(SpeedPoint(1 << place, value) for place, value in enumerate(tok_s)))


def both(speculative: SpeedCurve | None, baseline: SpeedCurve) -> ContextCurves:
    return ContextCurves(512, speculative, baseline, UNKNOWN)


def test_the_crossing_is_the_first_number_at_which_the_baseline_is_faster_though_no_verdict_is_believed() -> None:
    found = both(curve(150, 280, 500, 800, 900), curve(100, 200, 400, 800, 1500))

    assert limits(found, Placement.SHARED).crossing == 9


def test_one_number_is_the_crossing_on_shared_gpus_and_below_it_on_separate_ones() -> None:
    found = both(curve(150, 280, 500, 800, 900), curve(100, 200, 400, 800, 1500))

    assert limits(found, Placement.SHARED).fixed == 9
    assert 1 < limits(found, Placement.SEPARATE).fixed < 9


def test_the_speculative_instance_is_never_left_when_it_is_faster_everywhere() -> None:
    assert limits(both(curve(150, 300), curve(100, 200)), Placement.SHARED).crossing == NEVER_LEFT


def test_the_speculative_instance_gets_next_to_nothing_when_it_is_slower_everywhere() -> None:
    assert limits(both(curve(90, 150), curve(100, 200)), Placement.SHARED).crossing == 1


def test_limits_are_refused_when_an_instance_has_no_curve() -> None:
    with pytest.raises(ValueError, match="both instances need a curve"):
        limits(both(None, curve(100)), Placement.SHARED)


def test_loads_are_measured_by_the_peak_of_the_faster_instance() -> None:
    assert peak_tok_s(both(curve(150, 280), curve(100, 350))) == 350
