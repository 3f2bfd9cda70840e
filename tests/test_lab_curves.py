import json
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.curves import Curve
from proxy.model import Role

EXPECTED_CROSSINGS = {
    "seed": None,
    "hochelaga8b_rtx5090_k2": None,
    "amd_mi355x_kimi25_eagle3_bf16": None,
    "rtx6kpro_qwen35_397b_awq_vllm_ctx64k": None,
    "h200_llama8b_sglang_tree_2_4_16": 12.9,
    "h200_llama8b_sglang_chain_3_1_4": 34.8,
    "rtx6kpro_kimi26_v1_dcp1_ctx0": 104.3,
    "rtx6kpro_kimi26_v1_dcp1_ctx10k": 38.6,
    "rtx6kpro_glm51_dcp4_ctx16384": 6.0,
}


def _written(folder: Path, **changes: object) -> str:
    raw = {
        "hardware": "1x card",
        "model": "m",
        "engine": "e",
        "spec_config": "chain",
        "source": "a test",
        "verified": True,
        "points": [{"concurrency": 4, "spec": 5, "baseline": 6}, {"concurrency": 1, "spec": 2, "baseline": 1}],
        **changes,
    }
    path = folder / "own.json"
    path.write_text(json.dumps(raw))
    return str(path)


@pytest.mark.parametrize("name", curves.shipped())
def test_every_shipped_curve_is_whole_and_says_where_it_comes_from(name: str) -> None:
    curve = curves.find(name)
    assert curve.name == name
    assert curve.source
    assert 1.0 <= curve.tokens_per_step <= curve.num_steps + 1
    assert [point.concurrency for point in curve.points] == sorted(point.concurrency for point in curve.points)


def test_the_seed_box_and_the_default_are_shipped() -> None:
    assert {"seed", curves.DEFAULT_CURVE} <= set(curves.shipped())


@pytest.mark.parametrize(("name", "expected"), EXPECTED_CROSSINGS.items())
def test_crossing_is_where_baseline_first_overtakes(name: str, expected: float | None) -> None:
    found = curves.crossing(curves.find(name))
    assert found == (None if expected is None else pytest.approx(expected, abs=0.1))


@pytest.mark.parametrize("name", [name for name in curves.shipped() if curves.find(name).fit])
def test_a_fit_is_near_the_measured_points_it_was_made_from(name: str) -> None:
    curve = curves.find(name)
    assert curve.fit is not None
    for role in Role:
        errors = sorted(
            abs(curve.fit.throughput(role, p.concurrency, curve.context_tokens) / p.of(role) - 1)
            for p in curve.points
            if p.concurrency <= 48 or role is Role.BASELINE
        )
        assert errors[len(errors) // 2] < 0.15


def test_curves_per_card_and_as_ratios_become_tokens_of_the_whole_server() -> None:
    assert curves.find("amd_mi355x_kimi25_eagle3_bf16").points[0].baseline == 4 * 83
    ratios = curves.find("specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21").points[0]
    assert ratios.baseline == pytest.approx(158, abs=1)
    assert ratios.speculative / ratios.baseline == pytest.approx(1.845)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"known curves: .*seed"):
        curves.find("no-such-curve")


def test_a_file_is_read_and_its_points_sorted(tmp_path: Path) -> None:
    curve = curves.find(_written(tmp_path))
    assert isinstance(curve, Curve)
    assert [point.concurrency for point in curve.points] == [1.0, 4.0]
    assert curves.crossing(curve) == pytest.approx(3.0, abs=0.01)


def test_fits_beside_a_file_are_used(tmp_path: Path) -> None:
    params = {"t0": 8, "m": 20, "ne": 10, "c": 0.2, "d0": 2, "d1": 0, "tau3": 1.9, "tau4": 2.3}
    (tmp_path / "fits.json").write_text(json.dumps({"fits": {"mine": {"curves": ["own"], "params": params}}}))
    curve = curves.find(_written(tmp_path, verify_tokens_per_req=4))
    assert curve.fit is not None
    assert (curve.fit.tau, curve.fit.verify_tokens) == (2.3, 4)


def test_a_file_that_is_not_json_says_so(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        curves.find(str(tmp_path / "bad.json"))


def test_step_time_from_a_fit_needs_a_fit() -> None:
    with pytest.raises(ConfigError, match="has no fit"):
        curves.find("rtx6kpro_glm51_dcp4_ctx16384").step_time(Role.BASELINE, fitted=True)


def test_step_time_from_a_fit_grows_with_context() -> None:
    time = curves.find("rtx6kpro_kimi26_v1_dcp1_ctx10k").step_time(Role.SPECULATIVE, fitted=True)
    assert time.step_ms(8, 40_000) > 1.2 * time.step_ms(8, 0)
