"""The curves that come with the project, one by one against what their sources say of them."""

import pytest

from proxy.lab import curves
from proxy.lab.curves import CurveKind

ALWAYS, CROSSOVER, NEVER, MIXED = CurveKind.ALWAYS, CurveKind.CROSSOVER, CurveKind.NEVER, CurveKind.MIXED

# Not measured, and said to be so.
INFERRED = {"seed", "seed_chain_3_1_4_counterfactual"}

# Kind, points with both roles, and speculative by baseline at the first and the last of them, from the sources' tables.
SHIPPED = {
    "amd_mi355x_kimi25_eagle3_bf16": (ALWAYS, 5, 1.892, 1.692),
    "amd_mi355x_minimax25_eagle3": (ALWAYS, 5, 1.800, 1.383),
    "dspark_dsv4pro_b300_adaptive": (ALWAYS, 6, 2.658, 1.537),
    "dspark_dsv4pro_b300_k1": (ALWAYS, 6, 1.517, 1.363),
    "dspark_dsv4pro_b300_k3": (ALWAYS, 6, 2.278, 1.539),
    "dspark_dsv4pro_b300_k6": (ALWAYS, 6, 2.547, 1.293),
    "dspark_dsv4pro_b300_k7": (ALWAYS, 6, 2.482, 1.203),
    "eagle4_sglang_b300_ratio": (ALWAYS, 3, 3.420, 1.390),
    "gpustack_qwen3_8b_h100_latency": (ALWAYS, 4, 2.677, 1.618),
    "h200_llama8b_sglang_chain_3_1_4": (CROSSOVER, 9, 1.644, 0.748),
    "h200_llama8b_sglang_tree_2_4_16": (CROSSOVER, 9, 1.489, 0.316),
    "hochelaga8b_rtx5090_k1": (NEVER, 3, 0.930, 0.439),
    "hochelaga8b_rtx5090_k2": (NEVER, 3, 0.843, 0.316),
    "hochelaga8b_rtx5090_k8": (NEVER, 3, 0.546, 0.130),
    "rtx6kpro_glm51_dcp2_ctx0": (MIXED, 7, 1.518, 1.235),
    "rtx6kpro_glm51_dcp2_ctx16384": (CROSSOVER, 4, 1.428, 0.774),
    "rtx6kpro_glm51_dcp4_ctx0": (MIXED, 7, 1.431, 1.116),
    "rtx6kpro_glm51_dcp4_ctx16384": (CROSSOVER, 5, 1.447, 0.741),
    "rtx6kpro_glm51_dcp8_ctx16384": (CROSSOVER, 5, 1.348, 0.724),
    "rtx6kpro_glm5_sglang_b12x_ctx0": (MIXED, 7, 1.843, 1.565),
    "rtx6kpro_glm5_sglang_cutlass_ctx0": (ALWAYS, 7, 1.859, 1.410),
    "rtx6kpro_kimi26_v1_dcp1_ctx0": (CROSSOVER, 8, 1.230, 0.944),
    "rtx6kpro_kimi26_v1_dcp1_ctx10k": (CROSSOVER, 8, 1.175, 0.818),
    "rtx6kpro_kimi26_v1_dcp1_ctx21k": (CROSSOVER, 8, 1.288, 0.798),
    "rtx6kpro_kimi26_v1_dcp1_ctx41k": (CROSSOVER, 8, 1.411, 0.644),
    "rtx6kpro_kimi26_v1_dcp1_ctx83k": (MIXED, 8, 1.298, 1.037),
    "rtx6kpro_kimi26_v1_dcp4_ctx0": (CROSSOVER, 8, 1.325, 0.896),
    "rtx6kpro_kimi26_v1_dcp4_ctx10k": (CROSSOVER, 8, 1.293, 0.901),
    "rtx6kpro_kimi26_v1_dcp4_ctx21k": (CROSSOVER, 8, 1.189, 0.960),
    "rtx6kpro_kimi26_v1_dcp4_ctx41k": (CROSSOVER, 8, 1.216, 1.008),
    "rtx6kpro_kimi26_v1_dcp4_ctx83k": (MIXED, 8, 1.196, 1.113),
    "rtx6kpro_kimi26_v1_dcp8_ctx0": (CROSSOVER, 8, 1.184, 0.835),
    "rtx6kpro_kimi26_v1_dcp8_ctx10k": (ALWAYS, 8, 1.186, 1.053),
    "rtx6kpro_kimi26_v1_dcp8_ctx21k": (CROSSOVER, 8, 1.160, 0.893),
    "rtx6kpro_kimi26_v1_dcp8_ctx41k": (MIXED, 8, 1.071, 0.957),
    "rtx6kpro_kimi26_v1_dcp8_ctx83k": (MIXED, 8, 1.165, 0.731),
    "rtx6kpro_kimi26_v3_dcp1_ctx0": (ALWAYS, 8, 1.205, 1.042),
    "rtx6kpro_kimi26_v3_dcp1_ctx128k": (ALWAYS, 2, 1.241, 1.011),
    "rtx6kpro_kimi26_v3_dcp1_ctx16k": (ALWAYS, 5, 1.286, 1.006),
    "rtx6kpro_kimi26_v3_dcp1_ctx32k": (ALWAYS, 4, 1.302, 0.972),
    "rtx6kpro_kimi26_v3_dcp1_ctx64k": (ALWAYS, 3, 1.297, 1.102),
    "rtx6kpro_kimi26_v3_dcp8_ctx0": (CROSSOVER, 8, 1.214, 0.832),
    "rtx6kpro_kimi26_v3_dcp8_ctx128k": (CROSSOVER, 5, 1.050, 0.833),
    "rtx6kpro_kimi26_v3_dcp8_ctx16k": (CROSSOVER, 8, 1.132, 0.894),
    "rtx6kpro_kimi26_v3_dcp8_ctx32k": (CROSSOVER, 7, 1.130, 0.859),
    "rtx6kpro_kimi26_v3_dcp8_ctx64k": (CROSSOVER, 6, 1.065, 0.863),
    "rtx6kpro_kimi26_v4_dcp1_ctx0": (ALWAYS, 8, 1.320, 1.010),
    "rtx6kpro_kimi26_v4_dcp1_ctx128k": (CROSSOVER, 2, 1.265, 0.941),
    "rtx6kpro_kimi26_v4_dcp1_ctx16k": (ALWAYS, 5, 1.274, 0.990),
    "rtx6kpro_kimi26_v4_dcp1_ctx32k": (ALWAYS, 4, 1.266, 1.015),
    "rtx6kpro_kimi26_v4_dcp1_ctx64k": (ALWAYS, 3, 1.233, 1.039),
    "rtx6kpro_kimi26_v4_dcp4_ctx0": (CROSSOVER, 8, 1.157, 0.927),
    "rtx6kpro_kimi26_v4_dcp4_ctx128k": (NEVER, 4, 1.004, 0.786),
    "rtx6kpro_kimi26_v4_dcp4_ctx16k": (CROSSOVER, 7, 1.196, 0.862),
    "rtx6kpro_kimi26_v4_dcp4_ctx32k": (CROSSOVER, 6, 1.183, 0.845),
    "rtx6kpro_kimi26_v4_dcp4_ctx64k": (CROSSOVER, 5, 1.115, 0.774),
    "rtx6kpro_kimi26_v4_dcp8_ctx0": (CROSSOVER, 8, 1.107, 0.862),
    "rtx6kpro_kimi26_v4_dcp8_ctx128k": (CROSSOVER, 5, 1.036, 0.826),
    "rtx6kpro_kimi26_v4_dcp8_ctx16k": (CROSSOVER, 8, 1.126, 0.842),
    "rtx6kpro_kimi26_v4_dcp8_ctx32k": (CROSSOVER, 7, 1.145, 0.858),
    "rtx6kpro_kimi26_v4_dcp8_ctx64k": (CROSSOVER, 6, 1.130, 0.867),
    "rtx6kpro_qwen35_397b_awq_vllm_ctx0": (ALWAYS, 8, 1.413, 1.259),
    "rtx6kpro_qwen35_397b_awq_vllm_ctx16k": (CROSSOVER, 8, 1.058, 0.840),
    "rtx6kpro_qwen35_397b_awq_vllm_ctx64k": (MIXED, 8, 0.610, 1.206),
    "rtx6kpro_qwen35_397b_sglang_ctx0": (ALWAYS, 7, 1.757, 1.076),
    "rtx6kpro_qwen35_397b_sglang_ctx128k": (NEVER, 4, 0.829, 0.740),
    "rtx6kpro_qwen35_397b_sglang_ctx32k": (ALWAYS, 5, 1.000, 1.063),
    "rtx6kpro_qwen35_397b_vllm_ctx0": (ALWAYS, 8, 1.568, 1.405),
    "rtx6kpro_qwen35_397b_vllm_ctx128k": (ALWAYS, 8, 1.584, 1.413),
    "rtx6kpro_qwen35_397b_vllm_ctx16k": (ALWAYS, 8, 1.587, 1.341),
    "rtx6kpro_qwen35_397b_vllm_ctx32k": (ALWAYS, 8, 1.587, 1.264),
    "rtx6kpro_qwen35_397b_vllm_ctx64k": (ALWAYS, 8, 1.641, 1.145),
    "rtx6kpro_qwen35_397b_vllm_mtp2_users": (ALWAYS, 6, 1.515, 1.523),
    "seed": (NEVER, 13, 0.873, 0.458),
    "seed_chain_3_1_4_counterfactual": (CROSSOVER, 9, 1.184, 0.683),
    "specdecodebench_sglang_llama3-70b_gsm8k_chain_k3": (ALWAYS, 4, 1.780, 1.188),
    "specdecodebench_sglang_llama3-70b_gsm8k_tree_k21": (CROSSOVER, 4, 2.100, 0.540),
    "specdecodebench_sglang_llama3-70b_gsm8k_tree_k6": (ALWAYS, 4, 1.914, 1.016),
    "specdecodebench_sglang_qwen3-8b_gsm8k_chain_k3": (ALWAYS, 4, 1.650, 1.205),
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21": (CROSSOVER, 4, 1.845, 0.555),
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k6": (ALWAYS, 4, 1.680, 1.035),
    "specdecodebench_sglang_qwen3-8b_instructcoder_chain_k3": (ALWAYS, 4, 1.800, 1.242),
    "specdecodebench_sglang_qwen3-8b_instructcoder_tree_k21": (CROSSOVER, 4, 1.820, 0.598),
    "specdecodebench_sglang_qwen3-8b_instructcoder_tree_k6": (ALWAYS, 4, 1.790, 1.045),
    "specforge339_qwen3_30b_h100x2": (NEVER, 2, 0.718, 0.791),
}


def test_these_and_no_others_are_shipped() -> None:
    assert set(curves.shipped()) == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_curve_says_what_its_source_says(name: str) -> None:
    kind, points, first, last = SHIPPED[name]
    curve = curves.find(name)
    assert curves.kind_of(curve) is kind
    ratios = [point.speculative / point.baseline for point in curve.points]
    assert (len(ratios), ratios[0], ratios[-1]) == (
        points,
        pytest.approx(first, abs=1e-3),
        pytest.approx(last, abs=1e-3),
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_curve_is_whole_and_says_where_it_comes_from(name: str) -> None:
    curve = curves.find(name)
    assert (curve.name, curve.verified) == (name, name not in INFERRED)
    assert "not given" not in (curve.source, curve.hardware, curve.model, curve.engine, curve.spec_config, curve.kind)
    assert not curve.notes or len(curve.notes) < 300
    assert 1.0 <= curve.tokens_per_step <= curve.num_steps + 1
    concurrencies = [point.concurrency for point in curve.points]
    assert concurrencies == sorted(concurrencies)


def test_curves_of_mere_ratios_are_marked() -> None:
    marked = {name for name in SHIPPED if curves.find(name).assumed_baseline}
    ratios = {name for name in SHIPPED if name.startswith("specdecodebench_")}
    assert marked == ratios | {"eagle4_sglang_b300_ratio", "gpustack_qwen3_8b_h100_latency"}


def test_no_note_tells_of_more_changes_of_the_winner_than_the_points_have() -> None:
    told = [curve for name in SHIPPED if "more than once" in ((curve := curves.find(name)).notes or "")]
    assert {
        curve.name for curve in told if len(curves.crossings(curve)) < 2 and "here once" not in str(curve.notes)
    } == set()
    assert len(told) > 2


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("rtx6kpro_glm51_dcp4_ctx16384", "MTP"),
        ("h200_llama8b_sglang_tree_2_4_16", "EAGLE3"),
        ("dspark_dsv4pro_b300_k1", "DSPARK"),
        ("rtx6kpro_kimi26_v1_dcp1_ctx0", "EAGLE3"),
        ("specdecodebench_sglang_qwen3-8b_gsm8k_tree_k6", "EAGLE3"),
    ],
)
def test_what_drafts_is_read_from_the_words_of_the_source(name: str, method: str) -> None:
    assert curves.find(name).method == method
