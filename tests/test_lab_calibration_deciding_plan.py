"""What is measured next: order, budget, closing in, giving up, and going on after a cut."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import groupby

import pytest
from fakes.cells import Bench, crossing_at, measured
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.calibration.deciding.aim import Aim, grid_of, span_of
from proxy.lab.calibration.deciding.estimates import Book
from proxy.lab.calibration.deciding.past import MAX_ATTEMPTS
from proxy.lab.calibration.deciding.plan import CLOSE_ENOUGH, MAX_REPEATS, Stage, next_step
from proxy.lab.calibration.values import Arm, Cell, Ending, Measurement, Prefix, Sweep
from proxy.lab.prompts import PromptKind
from proxy.routing.verdict import MIN_REPEATS, VerdictKind, judge

BOTH = (Arm.SPECULATIVE, Arm.BASELINE)


def main_cells(bench: Bench, aim: Aim) -> list[Cell]:
    return [one.cell for one in bench.done if one.cell.condition == aim.main(aim.contexts[0])]


def test_the_sweeps_go_up_and_down_with_the_arms_in_turn() -> None:
    aim = Aim(concurrencies=(1, 4, 16), budget_s=1e5)
    bench = Bench(crossing_at(6.0))
    bench.carry_out(aim, at_most=18)
    asked = [(cell.repeat, cell.concurrency, cell.arm) for cell in main_cells(bench, aim)]
    up = [(n, arm) for n in (1, 4, 16) for arm in BOTH]
    down = [(n, arm) for n in (16, 4, 1) for arm in BOTH[::-1]]
    assert asked == [(0, *one) for one in up] + [(1, *one) for one in down] + [(2, *one) for one in up]
    assert {cell.sweep for cell in main_cells(bench, aim) if cell.repeat == 1} == {Sweep.DOWN}


def test_a_change_of_sign_is_closed_in_on_to_neighbouring_concurrencies() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    bench.carry_out(aim)
    (crossing,) = judge(Book(aim.main(1024), bench.done).contrasts(*BOTH)).crossings
    assert crossing.low <= 9.4 <= crossing.high
    assert crossing.high - crossing.low <= 2 or crossing.high / crossing.low <= CLOSE_ENOUGH


def test_repeats_end_when_intervals_are_narrow_and_never_before_three() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4), noise=0.001)
    bench.carry_out(aim)
    counts = Counter((cell.concurrency, cell.arm) for cell in main_cells(bench, aim))
    assert set(counts.values()) == {MIN_REPEATS}


def test_noisy_cells_are_repeated_but_not_for_ever() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e6)
    bench = Bench(crossing_at(9.4), noise=0.1)
    bench.carry_out(aim)
    counts = Counter((cell.concurrency, cell.arm) for cell in main_cells(bench, aim))
    assert MIN_REPEATS < max(counts.values()) <= MAX_REPEATS


def test_side_conditions_are_looked_at_alone_and_at_the_crossing() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    bench.carry_out(aim)
    side = [one.cell for one in bench.done if one.cell.condition != aim.main(1024)]
    assert {cell.condition.prompts for cell in side} == {PromptKind.MIXED, PromptKind.PROSE}
    assert {cell.condition.prefix for cell in side} == {Prefix.WARM, Prefix.COLD}
    assert {cell.condition.ending for cell in side} == {Ending.FIXED, Ending.NATURAL}
    low, high = sorted({cell.concurrency for cell in side})
    assert low == 1
    assert 8 <= high <= 11


def test_every_context_has_its_own_sweeps() -> None:
    aim = Aim(concurrencies=(1, 4, 16), contexts=(1024, 8192), budget_s=1e5)
    bench = Bench(crossing_at(6.0))
    bench.carry_out(aim)
    for context in aim.contexts:
        book = Book(aim.main(context), bench.done)
        assert all(len(book.repeats(n, arm)) >= MIN_REPEATS for n in (1, 4, 16) for arm in BOTH)


@pytest.mark.parametrize("budget_s", [60.0, 200.0, 1000.0, 3600.0, 1e5])
def test_the_budget_is_kept(budget_s: float) -> None:
    bench = Bench(crossing_at(9.4), noise=0.05)
    bench.carry_out(Aim(budget_s=budget_s))
    assert sum(one.spent_s for one in bench.done) <= budget_s


def test_a_small_budget_thins_the_grid_and_keeps_its_ends() -> None:
    aim = Aim(budget_s=900.0)
    grid = grid_of(aim)
    assert len(grid) < len(aim.concurrencies)
    assert (grid[0], grid[-1]) == (1, 250)
    assert grid_of(Aim(budget_s=1e5)) == aim.concurrencies


def test_windows_grow_with_the_budget_within_their_bounds() -> None:
    windows = [span_of(Aim(budget_s=budget_s)).window_s for budget_s in (60.0, 3600.0, 7200.0, 1e6)]
    assert windows == sorted(windows)
    assert windows[0] == 5.0
    assert windows[-1] == 60.0


def test_a_cell_that_fails_is_tried_once_more_and_higher_ones_of_that_arm_are_left_out() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4))

    def failing(cell: Cell, measurement: Measurement) -> Measurement:
        full = cell.arm is Arm.SPECULATIVE and cell.concurrency == 16
        return replace(measurement, errors={"status 503": 3}) if full else measurement

    bench.shape = failing
    bench.carry_out(aim)
    tries = Counter(one.cell for one in bench.done)
    failed = [count for cell, count in tries.items() if cell.arm is Arm.SPECULATIVE and cell.concurrency == 16]
    assert set(failed) == {MAX_ATTEMPTS}
    speculative = {cell.concurrency for cell in tries if cell.arm is Arm.SPECULATIVE}
    assert 64 not in speculative
    assert 64 in {cell.concurrency for cell in tries if cell.arm is Arm.BASELINE}


def test_a_disturbed_cell_is_measured_again_and_the_first_is_not_used() -> None:
    aim = Aim(concurrencies=(1, 4), budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    first = next_step(aim, (), 0.0)
    assert first is not None
    disturbed = replace(measured(first.cells[0], 1.0), disturbed=True)
    again = next_step(aim, [disturbed], 15.0)
    assert again is not None
    assert again.cells[0] == first.cells[0]
    bench.carry_out(aim, [disturbed])
    assert 1.0 not in Book(aim.main(1024), bench.done).repeats(1, first.cells[0].arm).values()


def test_above_the_first_queued_concurrency_only_the_highest_is_measured() -> None:
    aim = Aim(concurrencies=(1, 8, 48, 64, 96, 250), budget_s=1e5)
    bench = Bench(crossing_at(400.0))
    bench.shape = lambda cell, one: replace(one, queued=cell.arm is Arm.SPECULATIVE and cell.concurrency > 48)
    bench.carry_out(aim)
    cells = main_cells(bench, aim)
    assert {c.concurrency for c in cells if c.arm is Arm.SPECULATIVE} == {1, 8, 48, 64, 250}
    assert {c.concurrency for c in cells if c.arm is Arm.BASELINE} == {1, 8, 48, 64, 96, 250}


def test_one_hiccup_that_looked_like_a_queue_leaves_no_concurrency_out() -> None:
    aim = Aim(concurrencies=(1, 2, 4, 8, 16, 32, 64), budget_s=1e5)
    bench = Bench(crossing_at(400.0))
    bench.shape = lambda cell, one: replace(one, queued=(cell.concurrency, cell.repeat) == (2, 0))
    bench.carry_out(aim)
    counts = Counter(cell.concurrency for cell in main_cells(bench, aim) if cell.arm is Arm.SPECULATIVE)
    assert set(counts) == set(aim.concurrencies)
    assert min(counts.values()) >= MIN_REPEATS


def test_a_crossing_within_a_queue_is_closed_in_on() -> None:
    aim = Aim(budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    bench.shape = lambda cell, one: replace(one, queued=cell.arm is Arm.SPECULATIVE and cell.concurrency > 1)
    bench.carry_out(aim)
    (crossing,) = judge(Book(aim.main(1024), bench.done).contrasts(*BOTH)).crossings
    assert crossing.low <= 9.4 <= crossing.high
    assert crossing.high - crossing.low <= 4


def test_an_engine_that_was_away_for_a_while_is_measured_above_as_well() -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4))

    def away(cell: Cell, one: Measurement) -> Measurement:
        gone = cell.arm is Arm.SPECULATIVE and (cell.concurrency, cell.repeat) == (4, 0)
        return replace(one, errors={"unreachable": 3}) if gone else one

    bench.shape = away
    bench.carry_out(aim)
    usable = Book(aim.main(1024), bench.done)
    assert all(len(usable.repeats(n, Arm.SPECULATIVE)) >= MIN_REPEATS - 1 for n in aim.concurrencies)


@pytest.mark.parametrize("fault", [{"disturbed": True}, {"errors": {"cut": 1}}])
def test_repeats_end_where_one_arm_gives_no_more_of_them(fault: dict[str, object]) -> None:
    aim = Aim(concurrencies=(1, 4, 16), budget_s=1e6)
    bench = Bench(crossing_at(9.4), noise=0.1)

    def failing(cell: Cell, one: Measurement) -> Measurement:
        lost = cell.arm is Arm.SPECULATIVE and cell.repeat >= MIN_REPEATS
        return replace(one, **fault) if lost else one  # type: ignore[arg-type]

    bench.shape = failing
    bench.carry_out(aim, at_most=1000)
    assert max(cell.repeat for cell in main_cells(bench, aim)) < 2 * MAX_REPEATS
    assert next_step(aim, bench.done, 0.0) is None


def test_one_arm_alone_gives_a_curve_and_ends() -> None:
    aim = Aim(concurrencies=(1, 4, 16), arms=(Arm.BASELINE,), budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    bench.carry_out(aim)
    assert {one.cell.arm for one in bench.done} == {Arm.BASELINE}
    assert [point.concurrency for point in Book(aim.main(1024), bench.done).curve(Arm.BASELINE)] == [1, 4, 16]


def test_the_third_arm_is_measured_beside_the_two() -> None:
    aim = Aim(concurrencies=(1, 4), arms=(*BOTH, Arm.ADAPTIVE), budget_s=1e5)
    bench = Bench(crossing_at(9.4))
    bench.carry_out(aim)
    for _, cells in groupby(main_cells(bench, aim), key=lambda cell: (cell.concurrency, cell.repeat)):
        assert {cell.arm for cell in cells} == set(Arm)


def test_two_equal_engines_are_hardly_ever_told_apart_however_often_it_is_looked_again() -> None:
    """Each run looks at sixteen concurrencies, up to eight times: one in twenty would see a difference each time."""
    aim = Aim(prompts=(PromptKind.MIXED,))
    equal = dict.fromkeys(BOTH, crossing_at(9.4)[Arm.BASELINE])
    runs = [Bench(equal, noise=0.025, seed=seed).carry_out(aim) for seed in range(12)]
    kinds = [judge(Book(aim.main(1024), done).contrasts(*BOTH)).kind for done in runs]
    assert len(kinds) - kinds.count(VerdictKind.UNKNOWN) <= 1


@cache
def uncut(aim: Aim, seed: int) -> list[Measurement]:
    return Bench(crossing_at(9.4), seed=seed).carry_out(aim)


@given(cut=st.integers(0, 200), seed=st.integers(0, 5))
def test_a_run_that_was_cut_anywhere_ends_with_the_same_verdict(cut: int, seed: int) -> None:
    aim = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)
    bench = Bench(crossing_at(9.4), seed=seed + 100)
    gone_on = bench.carry_out(aim, Bench(crossing_at(9.4), seed=seed).carry_out(aim, at_most=cut))
    verdicts = [judge(Book(aim.main(1024), done).contrasts(*BOTH)) for done in (uncut(aim, seed), gone_on)]
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.CROSSOVER_AT}
    assert all(v.crossings[0].low <= 9.4 <= v.crossings[0].high for v in verdicts)


@given(done=st.integers(0, 120), spent_s=st.floats(0.0, 5000.0))
def test_the_same_past_gives_the_same_next_step_and_never_one_that_is_over(done: int, spent_s: float) -> None:
    aim = Aim(budget_s=5000.0)
    past = Bench(crossing_at(9.4)).carry_out(aim, at_most=done)
    step = next_step(aim, past, spent_s)
    assert step == next_step(aim, list(past), spent_s)
    if step is not None:
        assert step.cells
        assert not {one.cell for one in past if one.usable} & set(step.cells)
        assert step.stage in Stage
