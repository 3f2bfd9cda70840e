"""Quick runs: few cells, the right verdict, and never a prediction that is not marked as one."""

import math
from collections.abc import Mapping

import pytest
from fakes.cells import Bench, Speed, crossing_at, facts
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.findings import conclude
from proxy.lab.calibration.deciding.plan import Stage
from proxy.lab.calibration.deciding.quick import QUICK_BUDGET_S, QUICK_CONCURRENCIES, next_quick_step, quick_grid
from proxy.lab.calibration.values import Arm, ArmFacts, Findings, Measurement
from proxy.model import Role
from proxy.routing.verdict import VerdictKind

AIM = Aim(quick=True, budget_s=QUICK_BUDGET_S, concurrencies=QUICK_CONCURRENCIES)


def carried_out(speeds: Mapping[Arm, Speed], aim: Aim = AIM, told: Mapping[Arm, ArmFacts] | None = None) -> Findings:
    bench = Bench(dict(speeds))
    known = told if told is not None else facts(draft_tokens=4)
    done: list[Measurement] = []
    stages: list[Stage] = []
    while (step := next_quick_step(aim, known, done, sum(one.spent_s for one in done))) is not None:
        assert len(done) < 60
        stages.append(step.stage)
        done.extend(bench.measure(cell, step.span) for cell in step.cells)
    assert sum(one.spent_s for one in done) <= aim.budget_s
    return conclude(aim, known, done, measured_at="x", spent_s=0.0)


def test_a_crossing_is_found_and_measured_on_both_sides() -> None:
    (found,) = carried_out(crossing_at(9.4)).main
    (crossing,) = found.verdict.crossings
    assert crossing.low <= 9.4 <= crossing.high
    measured = {one.concurrency for one in found.contrasts if not one.predicted}
    assert {crossing.low, crossing.high} <= measured
    assert crossing.faster_above is Role.BASELINE


@pytest.mark.parametrize(("factor", "kind"), [(0.8, "never_speculate"), (1.4, "always_speculate")])
def test_one_sided_boxes_are_told_as_such_and_checked_at_the_top(factor: float, kind: str) -> None:
    base = crossing_at(9.4)[Arm.BASELINE]
    findings = carried_out({Arm.SPECULATIVE: lambda n: factor * base(n), Arm.BASELINE: base})
    (found,) = findings.main
    assert found.verdict.kind is VerdictKind(kind)
    assert not found.contrasts[-1].predicted


def test_what_the_law_filled_in_is_marked_and_what_was_measured_is_not() -> None:
    base = crossing_at(9.4)[Arm.BASELINE]
    findings = carried_out({Arm.SPECULATIVE: lambda n: 1.4 * base(n), Arm.BASELINE: base})
    (found,) = findings.main
    assert found.predicted
    measured = {one.cell.concurrency for one in findings.measurements if one.cell.arm is Arm.SPECULATIVE}
    assert {point.concurrency for point in found.curves[Arm.SPECULATIVE] if not point.predicted} == measured
    assert all(point.low is None for point in found.curves[Arm.SPECULATIVE] if point.predicted)


def test_the_speculative_limit_caps_what_is_predicted() -> None:
    base = crossing_at(1000.0)[Arm.BASELINE]
    told = facts(draft_tokens=4, max_running_requests=8)
    speeds = {Arm.SPECULATIVE: lambda n: 1.3 * base(min(n, 8)), Arm.BASELINE: base}
    (found,) = carried_out(speeds, told=told).main
    capped = [p for p in found.curves[Arm.SPECULATIVE] if p.predicted and p.concurrency > 8]
    assert all(point.queued for point in capped)


def test_a_grid_without_doublings_is_taken_as_it_is() -> None:
    assert quick_grid(Aim(concurrencies=(3, 5, 7))) == (3, 5, 7)
    assert quick_grid(AIM) == QUICK_CONCURRENCIES


@pytest.mark.parametrize("asked", [(1, 2, 4, 250), (3, 5, 7, 9, 11, 13, 15, 17, 250), tuple(range(1, 251))])
def test_the_ends_of_the_grid_asked_for_are_always_in_it(asked: tuple[int, ...]) -> None:
    grid = quick_grid(Aim(concurrencies=asked))
    assert (grid[0], grid[-1]) == (asked[0], asked[-1])
    assert len(grid) <= len(QUICK_CONCURRENCIES)
    assert set(grid) <= set(asked)


def test_a_crossing_below_the_highest_asked_for_is_no_always() -> None:
    (found,) = carried_out(crossing_at(9.4), Aim(quick=True, concurrencies=(1, 2, 4, 250))).main
    assert found.verdict.kind is VerdictKind.CROSSOVER_AT


def test_a_quick_run_of_one_arm_is_its_curve() -> None:
    aim = Aim(quick=True, budget_s=QUICK_BUDGET_S, concurrencies=(1, 2, 4), arms=(Arm.BASELINE,))
    (found,) = carried_out(crossing_at(9.4), aim).main
    assert [point.concurrency for point in found.curves[Arm.BASELINE]] == [1, 2, 4]
    assert found.verdict.kind is VerdictKind.UNKNOWN


@settings(max_examples=30)
@given(place=st.floats(1.5, 20.0))
def test_wherever_the_crossing_is_the_interval_holds_it(place: float) -> None:
    (found,) = carried_out(crossing_at(place)).main
    assert found.verdict.kind is VerdictKind.CROSSOVER_AT
    (crossing,) = found.verdict.crossings
    assert crossing.low * 0.97 <= place <= crossing.high * 1.03
    assert math.isfinite(crossing.at)


@settings(max_examples=20)
@given(place=st.floats(20.0, 60.0))
def test_a_crossing_too_near_the_top_to_tell_is_not_turned_into_another_verdict(place: float) -> None:
    (found,) = carried_out(crossing_at(place)).main
    assert found.verdict.kind in (VerdictKind.CROSSOVER_AT, VerdictKind.UNKNOWN, VerdictKind.ALWAYS_SPECULATE)
    if found.verdict.kind is VerdictKind.ALWAYS_SPECULATE:
        assert abs(found.contrasts[-1].log_ratio) < 0.12
        assert "undecided at" in found.verdict.reason
