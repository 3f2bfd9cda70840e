from dataclasses import replace

import pytest
from fakes.calibrated import context, facts, findings, of_curve, seed_box

from proxy.lab.calibration.advice import Advice, AdviceKind, advise
from proxy.lab.calibration.advice.choices import speeds_of
from proxy.lab.calibration.advice.short_chain import chain_tok_s
from proxy.lab.calibration.values import Arm, Findings
from proxy.model import Placement

CROSSING = "rtx6kpro_glm51_dcp4_ctx16384"
FAST = {1: 20.0, 2: 30.0, 4: 38.0, 8: 40.0, 16: 40.0}
WIDE = {1: 10.0, 2: 19.0, 4: 36.0, 8: 66.0, 16: 110.0}


def kinds(found: Findings) -> list[AdviceKind]:
    return [one.kind for one in advise(found)]


def one(kind: AdviceKind, found: Findings) -> Advice:
    (said,) = [each for each in advise(found) if each.kind is kind]
    return said


def told(arm: Arm, **changes: object) -> dict[Arm, object]:
    return {each: facts(each, **(changes if each is arm else {})) for each in (Arm.SPECULATIVE, Arm.BASELINE)}


def test_the_box_this_began_from_is_told_what_to_do() -> None:
    asked = [AdviceKind.RAISE_MAX_RUNNING, AdviceKind.SECOND_BASELINE, AdviceKind.TRY_CHAIN]
    assert [kind for kind in kinds(seed_box()) if kind in asked] == asked
    assert kinds(seed_box())[0] is AdviceKind.UNEQUAL_ARMS


def test_two_baselines_are_compared_at_saturation() -> None:
    said = one(AdviceKind.SECOND_BASELINE, seed_box())
    assert said.numbers["two_baselines"] == pytest.approx(2 * 773)
    assert said.numbers["now"] == pytest.approx(354 + 773, rel=0.03)
    assert "at 500 in flight two baselines would give 1546 tok/s" in said.sentence


def test_a_chain_is_predicted_by_the_law() -> None:
    said = one(AdviceKind.TRY_CHAIN, seed_box())
    speeds = speeds_of(of_curve("seed"), Placement.SEPARATE)
    # Four tokens of one sequence take what one step of four sequences takes on the baseline.
    assert chain_tok_s(speeds.curves[Arm.BASELINE], 1) == pytest.approx(2.2 / (4 / 217.0 + 0.15 / 92.7))
    assert said.numbers["chain_at_1"] == chain_tok_s(speeds.curves[Arm.BASELINE], 1)
    assert "Predicted for 3/1/4, not measured: 110 tok/s at 1 in flight (today 92.7)" in said.sentence


def test_a_chain_is_not_predicted_beyond_the_measured_baseline() -> None:
    tree = {**told(Arm.SPECULATIVE, topk=4, draft_tokens=16)}
    short = context({1: 8.0, 4: 20.0}, {1: 10.0, 4: 30.0})
    assert set(one(AdviceKind.TRY_CHAIN, findings(short, facts=tree)).numbers) == {"chain_at_1", "gain"}


def test_a_chain_is_not_advised_where_speculation_always_pays() -> None:
    tree = told(Arm.SPECULATIVE, topk=4, draft_tokens=16)
    assert AdviceKind.TRY_CHAIN not in kinds(findings(of_curve("amd_mi355x_kimi25_eagle3_bf16"), facts=tree))


def test_a_short_chain_is_not_advised_to_become_one() -> None:
    assert AdviceKind.TRY_CHAIN not in kinds(findings(of_curve(CROSSING)))


def test_advice_for_the_same_gpus_says_which_comes_first() -> None:
    first, second = one(AdviceKind.SECOND_BASELINE, seed_box()), one(AdviceKind.TRY_CHAIN, seed_box())
    assert first.numbers["gain"] > second.numbers["gain"]
    assert first.sentence.endswith("this promises most.")
    assert second.sentence.endswith("It needs the same GPUs as the second baseline, which comes first.")


def test_two_baselines_are_not_advised_on_shared_gpus() -> None:
    assert AdviceKind.SECOND_BASELINE not in kinds(findings(of_curve("seed"), placement=Placement.SHARED))


def test_two_baselines_are_not_advised_where_speculation_pays() -> None:
    assert AdviceKind.SECOND_BASELINE not in kinds(findings(of_curve("amd_mi355x_kimi25_eagle3_bf16")))


def test_an_adaptive_instance_as_good_as_the_better_is_advised() -> None:
    better = {n: max(FAST[n], WIDE[n]) * 0.98 for n in FAST}
    said = one(AdviceKind.USE_ADAPTIVE, findings(context(FAST, WIDE, better)))
    assert said.numbers["worst"] == pytest.approx(-0.0202, abs=1e-3)


def test_an_adaptive_instance_that_falls_behind_somewhere_is_not_advised() -> None:
    behind = {n: max(FAST[n], WIDE[n]) * (0.9 if n == 4 else 1.0) for n in FAST}
    assert AdviceKind.USE_ADAPTIVE not in kinds(findings(context(FAST, WIDE, behind)))


def test_an_unmeasured_adaptive_instance_is_tried_where_drafts_are_chains() -> None:
    said = one(AdviceKind.USE_ADAPTIVE, findings(of_curve(CROSSING)))
    assert "not known before" in said.sentence
    assert AdviceKind.USE_ADAPTIVE not in kinds(seed_box())


@pytest.mark.parametrize(("limit", "said"), [(48, False), (16, False), (512, False), (15, True)])
def test_a_low_limit_is_to_be_raised(limit: int, said: bool) -> None:
    found = findings(of_curve(CROSSING), facts=told(Arm.SPECULATIVE, max_running_requests=limit))
    assert (AdviceKind.RAISE_MAX_RUNNING in kinds(found)) is said


def test_a_limit_below_the_most_tested_is_to_be_raised() -> None:
    found = findings(of_curve("seed"), facts=told(Arm.SPECULATIVE, max_running_requests=200))
    assert one(AdviceKind.RAISE_MAX_RUNNING, found).numbers["limit"] == 200


def test_the_option_is_called_as_the_engine_calls_it() -> None:
    arms = told(Arm.BASELINE, engine="vllm", max_running_requests=8)
    assert "--max-num-seqs 256" in one(AdviceKind.RAISE_MAX_RUNNING, findings(of_curve(CROSSING), facts=arms)).sentence


def test_an_engine_that_was_away_is_not_told_to_raise_its_limit() -> None:
    plain = findings(of_curve(CROSSING), facts={})
    away = tuple(replace(each, queued=True, errors={"unreachable": 3}) for each in plain.measurements)
    assert AdviceKind.RAISE_MAX_RUNNING not in kinds(replace(plain, measurements=away))


def test_queued_cells_call_for_a_higher_limit_even_where_none_was_told() -> None:
    plain = findings(of_curve(CROSSING), facts={})
    waited = replace(plain, measurements=tuple(replace(each, queued=True) for each in plain.measurements))
    assert AdviceKind.RAISE_MAX_RUNNING not in kinds(plain)
    assert "ran fewer sequences" in one(AdviceKind.RAISE_MAX_RUNNING, waited).sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "0.5.9"},
        {"model": "another/model"},
        {"engine": "vllm"},
        {"accelerators": 4},
        {"flags": {"tp_size": "4"}},
    ],
)
def test_arms_that_differ_are_told_first(changes: dict[str, object]) -> None:
    found = findings(of_curve(CROSSING), facts=told(Arm.BASELINE, **changes))
    assert kinds(found)[0] is AdviceKind.UNEQUAL_ARMS


def test_arms_that_differ_in_speculation_alone_are_equal() -> None:
    flags = {"tp_size": "8", "speculative_algorithm": "EAGLE3", "max_total_tokens": "343664"}
    arms = {
        Arm.SPECULATIVE: facts(Arm.SPECULATIVE, flags=flags),
        Arm.BASELINE: facts(Arm.BASELINE, flags={**flags, "speculative_algorithm": "None", "max_total_tokens": "4"}),
    }
    assert AdviceKind.UNEQUAL_ARMS not in kinds(findings(of_curve(CROSSING), facts=arms))


def test_a_fixed_limit_as_good_as_the_curves_is_enough() -> None:
    found = findings(of_curve("specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21"))
    said = one(AdviceKind.HAPROXY_ENOUGH, found)
    assert said.numbers["over_overflow_most"] <= 0.02
    assert "(n = 1)" in said.sentence
    assert AdviceKind.CROSSOVER_GAIN not in kinds(found)


def test_a_fixed_limit_that_loses_somewhere_is_not_enough() -> None:
    found = findings(of_curve(CROSSING))
    assert AdviceKind.HAPROXY_ENOUGH not in kinds(found)
    said = one(AdviceKind.CROSSOVER_GAIN, found)
    assert said.numbers["over_overflow_most"] == pytest.approx(0.094, abs=0.001)
    assert ", but with twice its GPUs; on the same GPUs " in said.sentence, "whose gain is of more hardware is said"


def test_a_fixed_limit_that_is_good_on_average_alone_is_not_enough() -> None:
    flat = {1: 15.0, 2: 27.0, 4: 45.0, 8: 60.0, 16: 60.0, 32: 60.0}
    found = findings(context(flat, {n: 10 * n**0.93 for n in flat}))
    said = one(AdviceKind.CROSSOVER_GAIN, found)
    assert said.numbers["over_overflow_mean"] < 0.02 < said.numbers["over_overflow_most"]


def test_a_balancer_is_not_advised_where_speculation_never_pays() -> None:
    flat = {1: 10.0, 2: 18.0, 4: 30.0, 8: 40.0, 16: 40.0, 32: 40.0}
    found = findings(context(flat, {n: 10 * n**0.97 for n in flat}))
    assert one(AdviceKind.CROSSOVER_GAIN, found).numbers["over_overflow_most"] < 0.02


def test_a_crossover_that_moves_with_the_context_is_told() -> None:
    moving = findings(of_curve(CROSSING), of_curve("rtx6kpro_kimi26_v1_dcp1_ctx41k", tokens=41_000))
    assert (
        "up to 5 in flight at 16384 and up to 2 in flight at 41000 tokens"
        in one(AdviceKind.CONTEXT_MOVES, moving).sentence
    )
    still = findings(of_curve(CROSSING, tokens=1024), of_curve(CROSSING, tokens=8192))
    assert AdviceKind.CONTEXT_MOVES not in kinds(still)


def test_a_busy_client_is_told() -> None:
    plain = findings(of_curve(CROSSING))
    busy = tuple(replace(each, client_cpu=0.95 if each.cell.concurrency > 4 else 0.3) for each in plain.measurements)
    said = one(AdviceKind.CLIENT_LIMIT, replace(plain, measurements=busy))
    assert (said.numbers["from"], said.numbers["most"]) == (8, 0.95)
    assert AdviceKind.CLIENT_LIMIT not in kinds(plain)


def test_wide_intervals_and_others_traffic_are_told() -> None:
    wide = findings(context(FAST, WIDE, spread=0.2))
    assert AdviceKind.NOISY not in kinds(replace(wide, quick=True))
    assert "±" in one(AdviceKind.NOISY, wide).sentence
    plain = findings(of_curve(CROSSING))
    shared = tuple(replace(each, disturbed=each.cell.repeat == 0) for each in plain.measurements)
    assert "disturbed" in one(AdviceKind.NOISY, replace(plain, measurements=shared)).sentence
    assert AdviceKind.NOISY not in kinds(plain)


def test_nothing_measured_gives_no_advice() -> None:
    assert advise(findings()) == ()


def test_one_arm_gives_no_advice_that_compares() -> None:
    found = kinds(findings(context({}, WIDE)))
    assert not {AdviceKind.SECOND_BASELINE, AdviceKind.CROSSOVER_GAIN, AdviceKind.HAPROXY_ENOUGH} & set(found)
