"""What measurements add up to: curves and contrasts per condition, the third arm, and what a reader must know."""

from dataclasses import replace

import pytest
from fakes.cells import Bench, crossing_at, facts

from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.findings import conclude
from proxy.lab.calibration.values import Arm, Findings, Measurement, Sweep
from proxy.routing.verdict import VerdictKind

AIM = Aim(concurrencies=(1, 4, 16, 64), budget_s=1e5)


def found(aim: Aim, measurements: list[Measurement], **more: object) -> Findings:
    return conclude(aim, facts(), measurements, measured_at="x", spent_s=1.0, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole() -> list[Measurement]:
    return Bench(crossing_at(9.4)).carry_out(AIM)


def test_every_condition_that_was_measured_has_its_findings(whole: list[Measurement]) -> None:
    findings = found(AIM, whole)
    (main,) = findings.main
    assert main.verdict.kind is VerdictKind.CROSSOVER_AT
    assert main.condition == AIM.main(1024)
    assert len(findings.side) == 3
    assert findings.measurements == tuple(whole)


def test_contexts_keep_their_order_and_those_without_cells_are_left_out() -> None:
    aim = replace(AIM, contexts=(8192, 1024, 65536))
    cells = Bench(crossing_at(9.4)).carry_out(aim, at_most=16)
    findings = found(aim, cells)
    assert [one.condition.context_tokens for one in findings.main] == [8192, 1024]


def test_nothing_measured_gives_nothing_and_does_not_raise() -> None:
    assert found(AIM, []).main == ()


def test_the_adaptive_arm_is_compared_with_the_better_of_the_two() -> None:
    aim = replace(AIM, arms=tuple(Arm))
    (main,) = found(aim, Bench(crossing_at(9.4), noise=0.001).carry_out(aim)).main
    assert [one.concurrency for one in main.against_best] == [one.concurrency for one in main.contrasts]
    by_place = {one.concurrency: one.log_ratio for one in main.against_best}
    # 95 against 100 tok/s where baseline is faster, and against 150 where speculation is.
    assert by_place[64] == pytest.approx(-0.05, abs=0.01)
    assert by_place[1] == pytest.approx(-0.457, abs=0.01)


def test_up_and_down_sweeps_that_differ_are_told(whole: list[Measurement]) -> None:
    def slower_down(one: Measurement) -> Measurement:
        hot = one.cell.sweep is Sweep.DOWN and one.cell.arm is Arm.BASELINE
        return replace(one, decode_tok_s=one.tok_s * 0.9) if hot else one

    findings = found(AIM, [slower_down(one) for one in whole])
    assert findings.main[0].hysteresis[Arm.BASELINE] == pytest.approx(0.105, abs=0.01)
    assert any("baseline was 1" in note and "faster while concurrency rose" in note for note in findings.notes)
    assert not any("while concurrency rose" in note for note in found(AIM, whole).notes)


def test_cells_that_close_in_or_repeat_show_no_hysteresis_since_nothing_was_swept(whole: list[Measurement]) -> None:
    def slower_later(one: Measurement) -> Measurement:
        late = one.cell.repeat >= 3 or one.cell.concurrency not in AIM.concurrencies
        return replace(one, decode_tok_s=one.tok_s * (0.5 if one.cell.sweep is Sweep.DOWN else 1.0)) if late else one

    assert any(one.cell.concurrency not in AIM.concurrencies for one in whole)
    assert not any("while concurrency rose" in note for note in found(AIM, [slower_later(one) for one in whole]).notes)


@pytest.mark.parametrize(
    ("cells", "complete", "said"),
    [
        (6, False, "before every concurrency was measured"),
        (26, True, "while the crossover was being closed in on"),
        (2000, True, None),
    ],
)
def test_what_the_budget_did_not_hold_is_told(cells: int, complete: bool, said: str | None) -> None:
    findings = found(AIM, Bench(crossing_at(9.4), noise=0.001).carry_out(AIM, at_most=cells))
    assert findings.complete is complete
    told = [note for note in findings.notes if note.startswith("the time ended")]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


def test_a_run_that_was_stopped_is_not_told_that_its_time_ended() -> None:
    findings = found(AIM, Bench(crossing_at(9.4)).carry_out(AIM, at_most=6), complete=False)
    assert not findings.complete
    assert findings.notes == ()


def test_failed_disturbed_and_client_bound_cells_are_told(whole: list[Measurement]) -> None:
    cells = [replace(whole[0], errors={"status 503": 2}), replace(whole[1], disturbed=True)]
    notes = found(AIM, [*cells, replace(whole[2], client_cpu=0.95), *whole[3:]], notes=("stopped early",)).notes
    assert notes[0] == "stopped early"
    assert any("left out: 1 cell in which requests failed" in note and "status 503" in note for note in notes)
    assert any("left out: 1 cell in which other traffic" in note for note in notes)
    assert any("this program itself" in note for note in notes)


def test_an_arm_that_keeps_the_others_decoding_from_being_used_is_named(whole: list[Measurement]) -> None:
    mute = [replace(one, decode_tok_s=None) if one.cell.arm is Arm.BASELINE else one for one in whole]
    (note,) = [note for note in found(AIM, mute).notes if "clients got" in note]
    assert "baseline told no speed" in note
    assert not [note for note in found(AIM, whole).notes if "clients got" in note]
