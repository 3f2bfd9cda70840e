import json
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.curves import Curve, CurveKind
from proxy.lab.step_time import Point
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


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"known curves begin with .*seed.*curves list"):
        curves.find("no-such-curve")
    with pytest.raises(ConfigError, match=r"like it: hochelaga8b_rtx5090_k1, .*k8$"):
        curves.find("Hochelaga")


def _of(*pairs: tuple[float, float, float]) -> Curve:
    points = tuple(Point(*pair) for pair in pairs)
    return Curve("c", "h", "m", "e", "s", None, None, points, None, "a test", verified=True)


def test_crossings_are_every_change_of_the_winner() -> None:
    found = curves.crossings(_of((1, 4, 2), (4, 2, 4), (16, 4, 2), (64, 2, 2), (128, 4, 3)))
    assert found == ((pytest.approx(2), Role.BASELINE), (pytest.approx(8), Role.SPECULATIVE))
    assert curves.crossing(_of((1, 2, 4), (4, 4, 2))) is None


def test_a_tie_on_the_way_is_where_the_lead_was_lost() -> None:
    assert curves.crossings(_of((1, 4, 2), (2, 2, 2), (8, 2, 2), (16, 2, 4))) == ((2.0, Role.BASELINE),)


@pytest.mark.parametrize(
    ("ratios", "kind"),
    [
        ((1.5, 1.02, 1.2), CurveKind.ALWAYS),
        ((1.5, 0.98, 1.2), CurveKind.ALWAYS),
        ((1.5, 1.0, 0.9), CurveKind.CROSSOVER),
        ((0.9, 1.01, 0.5), CurveKind.NEVER),
        ((0.9, 1.2), CurveKind.MIXED),
        ((1.2, 0.9, 1.2), CurveKind.MIXED),
        ((1.02, 0.98), CurveKind.TIED),
    ],
)
def test_the_kind_of_a_curve_forgets_what_is_within_the_dead_band(ratios: tuple[float, ...], kind: CurveKind) -> None:
    curve = _of(*((2.0**place, ratio, 1.0) for place, ratio in enumerate(ratios)))
    assert curves.kind_of(curve) is kind


def test_a_wider_dead_band_ties_more() -> None:
    curve = _of((1, 1.2, 1), (2, 0.85, 1))
    assert curves.kind_of(curve) is CurveKind.CROSSOVER
    assert curves.kind_of(curve, margin=0.25) is CurveKind.TIED


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


@pytest.mark.parametrize("file", ["own.json", "fits.json"])
def test_a_file_larger_than_any_is_not_read(tmp_path: Path, file: str) -> None:
    path = _written(tmp_path)
    with (tmp_path / file).open("ab") as long:
        long.truncate(1 << 21)
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        curves.find(path)


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


@pytest.mark.parametrize("role", Role)
def test_a_slowed_curve_is_slower_at_everything_alike(role: Role) -> None:
    plain = curves.find(curves.DEFAULT_CURVE)
    slow = curves.slowed(plain, 4.0)
    for batch in (1, 3, 17, 90):
        plain_ms, slow_ms = (one.step_time(role).step_ms(batch, 0.0) for one in (plain, slow))
        assert slow_ms == pytest.approx(4.0 * plain_ms)
    assert slow.prefill_tokens_per_s == plain.prefill_tokens_per_s / 4.0
    assert slow.tokens_per_step == plain.tokens_per_step
