"""What a curve's file may look like: much may be unknown, the numbers must be right."""

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.curve_units import ANSWER_TOKENS, cards
from proxy.lab.curves import Curve, CurveKind
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import Role

POINTS = [{"concurrency": 4, "spec": 50, "baseline": 60}, {"concurrency": 1, "spec": 20, "baseline": 10}]
FIT = {"t0": 8, "m": 20, "ne": 10, "c": 0.2, "d0": 2, "d1": 0, "tau4": 2.3}


def _read(folder: Path, points: Any = None, **changes: object) -> Curve:
    path = folder / "own.json"
    path.write_text(json.dumps({"points": POINTS if points is None else points, **changes}))
    return curves.read(path)


def _pairs(curve: Curve) -> list[tuple[float, float, float]]:
    return [(point.concurrency, point.speculative, point.baseline) for point in curve.points]


def _tok_s(curve: Curve, role: Role, concurrency: float) -> float:
    emitted = curve.tokens_per_step if role is Role.SPECULATIVE else 1.0
    return 1000.0 * emitted * concurrency / curve.step_time(role).step_ms(concurrency, 0.0)


def test_points_alone_are_enough_for_both_engines(tmp_path: Path) -> None:
    curve = _read(tmp_path)
    assert _pairs(curve) == [(1.0, 20.0, 10.0), (4.0, 50.0, 60.0)]
    for role in Role:
        EmbeddedEngine(EngineOptions(curve=str(tmp_path / "own.json"), role=role))
    assert (curve.source, curve.verified, curve.context_tokens) == ("not given", False, 0)


def test_null_stands_wherever_something_may_be_unknown(tmp_path: Path) -> None:
    keys = "name source hardware model engine unit kind verified spec_config verify_tokens_per_req accept_len"
    more = "context_tokens workload notes num_steps topk prefill_tokens_per_s server_multiplier fit fits"
    curve = _read(tmp_path, **dict.fromkeys(f"{keys} {more}".split()))
    assert _pairs(curve) == _pairs(_read(tmp_path))


def test_numbers_may_be_text_and_keys_that_nobody_knows_do_no_harm(tmp_path: Path) -> None:
    points = [{"concurrency": "2", "spec": "20.5", "baseline": 10, "colour": "red"}]
    curve = _read(tmp_path, points, verify_tokens_per_req="4", context_tokens="16384", weather=[1])
    assert _pairs(curve) == [(2.0, 20.5, 10.0)]
    assert (curve.draft_tokens, curve.context_tokens) == (4, 16384)


def test_a_sentence_in_place_of_verified_is_a_reservation(tmp_path: Path) -> None:
    curve = _read(tmp_path, verified="only the first point is published")
    assert not curve.verified
    assert "verified only in part: only the first point is published" in curve.assumptions
    assert _read(tmp_path, verified=True).verified


def test_a_role_that_is_null_at_a_point_is_read_off_the_points_it_has(tmp_path: Path) -> None:
    points = [
        {"concurrency": 1, "spec": 40, "baseline": 20},
        {"concurrency": 2, "spec": None, "baseline": 39},
        {"concurrency": 4, "spec": 80},
        {"concurrency": 8, "spec": 100, "baseline": 120},
    ]
    curve = _read(tmp_path, points)
    assert [point.concurrency for point in curve.points] == [1.0, 8.0]
    assert [speed.concurrency for speed in curve.speeds(Role.SPECULATIVE)] == [1.0, 4.0, 8.0]
    assert _tok_s(curve, Role.SPECULATIVE, 4) == pytest.approx(80)
    assert _tok_s(curve, Role.BASELINE, 2) == pytest.approx(39)


def test_roles_measured_at_different_concurrencies_throughout_are_compared_by_their_lines(tmp_path: Path) -> None:
    curve = _read(tmp_path, [{"concurrency": 1, "spec": 40}, {"concurrency": 4, "baseline": 60}])
    assert _pairs(curve) == [pytest.approx((1, 40, 60)), pytest.approx((4, 40, 60))]
    assert curve.inferred == {1.0, 4.0}


def test_a_single_point_is_a_curve(tmp_path: Path) -> None:
    curve = _read(tmp_path, POINTS[:1])
    assert curves.kind_of(curve) is CurveKind.NEVER
    assert _tok_s(curve, Role.BASELINE, 30) == pytest.approx(60)


# ------------------------------------------------------------------ units


@pytest.mark.parametrize(
    "changes",
    [
        {"hardware": "4x AMD MI355X"},
        {"hardware": "4\u00d7 AMD MI355X, TP=2"},
        {"hardware": "AMD MI355X, TP=4"},
        {"hardware": "8x AMD MI355X", "server_multiplier": 4},
        {"gpus": "4"},
    ],
)
def test_figures_per_gpu_are_multiplied_for_the_whole_server(tmp_path: Path, changes: dict[str, object]) -> None:
    curve = _read(tmp_path, unit="output tok/s per GPU", **changes)
    assert _pairs(curve)[0] == (1.0, 80.0, 40.0)
    assert not curve.assumed_baseline


def test_figures_per_request_are_multiplied_by_the_concurrency(tmp_path: Path) -> None:
    assert _pairs(_read(tmp_path, unit="tokens/s per request"))[1] == (4.0, 200.0, 240.0)


@pytest.mark.parametrize("unit", ["speedup", "speed-up ratio (baseline = 1)", "relative throughput"])
def test_ratios_go_by_several_names(tmp_path: Path, unit: str) -> None:
    assert _read(tmp_path, unit=unit).assumed_baseline


def test_ratios_get_a_baseline_that_is_said_to_be_assumed(tmp_path: Path) -> None:
    points = [{"concurrency": 1, "spec": 1.8, "baseline": 1}, {"concurrency": 64, "spec": 0.6}]
    curve = _read(tmp_path, points, unit="speed-up ratio (baseline = 1)")
    assert curve.assumed_baseline
    assert any("only ratios are published" in said for said in curve.assumptions)
    assert [point.speculative / point.baseline for point in curve.points] == pytest.approx([1.8, 0.6])
    assert curve.points[0].baseline == pytest.approx(158, abs=1)
    assert curve.points[1].baseline > 20 * curve.points[0].baseline


def test_mean_latencies_become_speeds_that_grow_with_the_concurrency(tmp_path: Path) -> None:
    points = [{"concurrency": n, "spec": 1.5, "baseline": 0.5} for n in (1, 8)]
    curve = _read(tmp_path, points, unit="1/mean latency (1/s)")
    assert curve.assumed_baseline
    assert _pairs(curve)[1] == (8.0, 8 * 1.5 * ANSWER_TOKENS, 8 * 0.5 * ANSWER_TOKENS)


def test_the_number_of_cards_is_read_from_the_hardware() -> None:
    told = ("8x RTX PRO 6000", "2 x H100", "H100, TP=2", "1x RTX 5090 (sm_120)", "H100 80GB", "")
    assert [cards(hardware) for hardware in told] == [8, 2, 2, 1, None, None]


# ------------------------------------------------------------------ the drafting shape and fits


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec_config": "--speculative-num-steps 2 --speculative-eagle-topk 4"}, (2, 4)),
        ({"spec_config": "EAGLE3 5/4/16 tree"}, (5, 4)),
        ({"spec_config": "mtp num_speculative_tokens=2"}, (2, 1)),
        ({"spec_config": "EAGLE3 K=8", "verify_tokens_per_req": 9}, (8, 1)),
        ({"spec_config": "tree_k21 (depth 3)", "verify_tokens_per_req": 22}, (3, 7)),
        ({"verify_tokens_per_req": 6}, (5, 1)),
        ({"num_steps": 4, "topk": 2, "spec_config": "steps 9"}, (4, 2)),
        ({"spec_config": "steps 1", "accept_len": 2.9}, (2, 1)),
        ({}, (3, 1)),
    ],
)
def test_the_drafting_shape_is_told_or_worked_out(
    tmp_path: Path, changes: dict[str, object], expected: tuple[int, int]
) -> None:
    curve = _read(tmp_path, **changes)
    assert (curve.num_steps, curve.topk) == expected
    assert 1.0 <= curve.tokens_per_step <= curve.num_steps + 1


def test_a_fit_in_the_file_itself_is_used_and_the_nearest_of_several(tmp_path: Path) -> None:
    far, near = {**FIT, "t0": 99}, {**FIT, "m": None, "ne": None}
    fits = {
        "far": {"params": far, "mape_baseline_pct": 9, "mape_spec_pct": None},
        "near": {"params": near, "mape_baseline_pct": 1, "mape_spec_pct": 2},
    }
    curve = _read(tmp_path, fits=fits)
    assert curve.fit is not None
    assert (curve.fit.t0, curve.fit.m, curve.fit.tau, curve.fit.verify_tokens) == (8.0, 0.0, 2.3, 4.0)
    single = _read(tmp_path, fit={"params": {**FIT, "tau": 1.7, "V": 3}}).fit
    assert single is not None
    assert (single.tau, single.verify_tokens) == (1.7, 3.0)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"points": []}, "at least one point"),
        ({"points": "none"}, "at least one point"),
        ({"points": [7]}, "without concurrency"),
        ({"points": [{"spec": 1, "baseline": 1}]}, "without concurrency"),
        ({"points": [{"concurrency": 1, "spec": 0, "baseline": 1}]}, "spec at concurrency 1 is 0"),
        ({"points": [{"concurrency": 1, "spec": 1, "baseline": -2}]}, "above zero"),
        ({"points": [{"concurrency": 0, "spec": 1, "baseline": 2}]}, "above zero"),
        ({"points": [{"concurrency": 1, "spec": "nan", "baseline": 2}]}, "above zero"),
        ({"points": [{"concurrency": 1, "spec": True, "baseline": 2}]}, "above zero"),
        ({"points": [{"concurrency": 1, "spec": "fast", "baseline": 2}]}, "'fast'"),
        ({"points": [{"concurrency": 1, "spec": float("nan"), "baseline": 2}]}, "never NaN"),
        ({"points": [{"concurrency": 2, "spec": 1, "baseline": 1}, {"concurrency": "2.0", "spec": 1}]}, "2 twice"),
        ({"points": [{"concurrency": 1, "spec": 2}]}, "no point has a baseline"),
        ({"unit": "furlongs"}, "whole server"),
        ({"unit": "output tok/s per GPU", "hardware": "a rack"}, "server_multiplier"),
        ({"unit": "output tok/s per GPU", "gpus": "many"}, "number of GPUs"),
        ({"accept_len": 0.6}, "acceptance rate"),
        ({"accept_len": "long"}, "accept_len is 'long'"),
        ({"verify_tokens_per_req": 4.5}, "whole number"),
        ({"context_tokens": "16k"}, "at least 0"),
        ({"prefill_tokens_per_s": 0}, "above zero"),
        ({"fit": {"model": "M"}}, "no params"),
        ({"fit": {"params": {"t0": 8, "tau": 2, "V": 4}}}, "lacks c, d0"),
        ({"fit": {"params": {**FIT, "t0": "quick"}}}, "t0 of its fit"),
        ({"fit": {"params": {"t0": 8, "c": 0.1, "d0": 2}}}, "no tau"),
        ({"fit": {"params": {"t0": 8, "c": 0.1, "d0": 2, "tau": 2}}}, "tau and no V"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_the_mend(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as refused:
        _read(tmp_path, **changes)
    assert refused.value.message.startswith(str(tmp_path / "own.json"))
    assert "mend: " in refused.value.message


def test_a_misspelt_arm_is_an_error_and_not_an_unknown_speed(tmp_path: Path) -> None:
    whole = {"concurrency": 8, "spec": 300.0, "baseline": 310.0}
    for point, told in (
        ({"concurrency": 1, "speculative": 72.5, "baseline": 60.0}, "'speculative' and no 'spec'"),
        ({"concurrency": 1, "spec": 72.5, "base": 60.0}, "'base' and no 'baseline'"),
    ):
        with pytest.raises(ConfigError, match=told):
            _read(tmp_path, [point, whole])
    _read(tmp_path, [{"concurrency": 1, "baseline": 60.0, "baseline_ttft_ms": 30.0}, whole])


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"speed": 1}'])
def test_json_that_is_no_curve_is_refused_with_an_example(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ConfigError, match=r'has no points; mend: .*"concurrency": 1'):
        curves.find(str(tmp_path / "other.json"))


@pytest.mark.parametrize("name", ["_index.json", "fits.json"])
def test_a_table_beside_the_curves_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"points": POINTS}))
    with pytest.raises(ConfigError, match=r"not a curve; mend: "):
        curves.find(str(tmp_path / name))


def test_a_folder_and_a_file_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        curves.find(str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot be read .*mend: check the path"):
        curves.read(tmp_path / "missing.json")


def test_fits_beside_a_file_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "fits.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"fits\.json beside it"):
        _read(tmp_path)
