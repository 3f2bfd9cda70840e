"""The proxy's desk on a virtual clock in front of two engine models."""

from collections.abc import Sequence
from itertools import islice
from statistics import fmean

import pytest

from proxy.lab.curves import find
from proxy.lab.simulation.arms import Bench, arm, chosen_by, names
from proxy.lab.simulation.arrivals import Closed, Gamma, Offer, Sizes, open_source
from proxy.lab.simulation.pace import Pace, Work, capacity, paces
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Times, Trial
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Policy, Role

KIMI, TREE = "rtx6kpro_kimi26_v1_dcp1_ctx0", "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21"
CHAT = Sizes()
# Without prefill, and without a step to wait for: what the closed forms speak of.
BARE = Sizes(0, 256.0, in_step=False)


def _bench(placement: Placement = Placement.SEPARATE, limit: int = 128, name: str = KIMI) -> Bench:
    curve = find(name)
    return Bench(curve, placement, paces(curve, limit), limit)


def _steady(tok_s: float, limit: int) -> Bench:
    """Two engines that make as many tokens a second whatever their batch."""
    pace = Pace((0.0, *(batch / tok_s for batch in range(1, limit + 1))), (0.0, *[1.0] * limit))
    return Bench(find(KIMI), Placement.SEPARATE, dict.fromkeys(ROLES, pace), limit)


def _bounds(bench: Bench) -> dict[Role, Bounds]:
    return dict.fromkeys(ROLES, Bounds(bench.max_in_flight, 400_000, bench.curve.prefill_tokens_per_s))


def _run(
    bench: Bench,
    said: str,
    load: float,
    *,
    seed: int = 1,
    count: int = 3000,
    sizes: Sizes = CHAT,
    burst: float = 1.0,
) -> Times:
    work = Work(sizes.output_tokens, sizes.prompt_tokens / bench.curve.prefill_tokens_per_s)
    rate = load * capacity(bench.paces, bench.placement, dict.fromkeys(ROLES, work))
    source = Gamma(burst, sizes).source(rate, seed)
    return Trial(arm(said, bench), _bounds(bench), source).run(count // 10, count)


def _mean(times: Times) -> float:
    return fmean(times.e2e_s)


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    one, again, other = (_run(_bench(), "overflow", 0.4, seed=seed, count=500) for seed in (1, 1, 2))
    assert (one.e2e_s, one.ttft_s, one.tpot_s, one.speculative) == (
        again.e2e_s,
        again.ttft_s,
        again.tpot_s,
        again.speculative,
    )
    assert one.e2e_s != other.e2e_s


@pytest.mark.parametrize("placement", Placement)
def test_little_s_law_holds(placement: Placement) -> None:
    bench = _bench(placement)
    rate = 0.3 * capacity(bench.paces, placement, dict.fromkeys(ROLES, Work(256.0)))
    offers = list(islice(iter(Gamma().source(rate, 5).take, None), 4000))
    times = Trial(arm("least_delay", bench), _bounds(bench), open_source(iter(offers))).run(0, 4000)
    # All that came has ended, so the law is exact: time in the system, summed over requests or over the clock.
    assert times.in_flight_s == pytest.approx(sum(times.e2e_s), rel=1e-9)
    assert len(times.e2e_s) == 4000


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_steady_engine_alone_is_the_processor_sharing_queue_of_the_textbook(load: float) -> None:
    tok_s, output = 2560.0, 256.0
    bench = _steady(tok_s, 400)
    service = tok_s / output
    source = Gamma(sizes=BARE).source(load * service, 11)
    times = Trial(arm("only_baseline", bench), _bounds(bench), source).run(2000, 16_000)
    assert _mean(times) == pytest.approx(1.0 / (service * (1.0 - load)), rel=0.05)


def test_a_closed_loop_keeps_as_many_in_flight_as_there_are_clients() -> None:
    bench = _bench()
    source = Closed(8, BARE).source(0.0, 3)
    times = Trial(arm("only_baseline", bench), _bounds(bench), source).run(200, 3200)
    assert times.in_flight_s / times.span_s == pytest.approx(8.0, rel=1e-6)
    assert times.tokens / sum(times.e2e_s) == pytest.approx(bench.paces[BASELINE].tok_s(8) / 8, rel=0.02)


@pytest.mark.parametrize("said", [name for name in names() if name != Policy.PINNED])
@pytest.mark.parametrize("placement", Placement)
def test_in_flight_never_passes_the_limits_and_everybody_is_served(said: str, placement: Placement) -> None:
    times = _run(_bench(placement, limit=6), said, 1.5, count=600)
    assert max(times.most.values()) <= 6
    assert times.waited > 0
    assert len(times.e2e_s) == 540


def test_what_waits_is_served_in_its_order() -> None:
    bench = _bench(limit=1)
    offers = [Offer(0.001 * n, 10, 50) for n in range(20)]
    trial = Trial(arm("only_baseline", bench), _bounds(bench), open_source(iter(offers)))
    took_s = trial.run(0, 20).e2e_s
    assert list(took_s) == sorted(took_s)
    assert trial.times.waited == 19


def test_two_engines_on_their_own_gpus_are_faster_than_on_the_same_ones() -> None:
    rate_per_s = 1.0
    means = []
    for placement in Placement:
        bench = _bench(placement)
        source = Gamma().source(rate_per_s, 1)
        means.append(_mean(Trial(arm("least_delay", bench), _bounds(bench), source).run(100, 1500)))
    apart, together = means
    assert together > 1.5 * apart


def test_each_engine_alone_is_the_same_on_either_placement() -> None:
    apart, together = (
        Trial(arm("only_baseline", _bench(placement)), _bounds(_bench(placement)), Gamma().source(1.0, 1)).run(0, 500)
        for placement in Placement
    )
    assert apart.e2e_s == together.e2e_s


def test_policy_overflow_fills_speculative_to_its_number_first() -> None:
    times = _run(_bench(), "overflow:3", 0.3)
    assert times.most[SPECULATIVE] == 3
    assert times.most[BASELINE] > 3


def test_policy_threshold_changes_its_regime_and_is_counted() -> None:
    times = _run(_bench(Placement.SHARED, name=TREE), "threshold:20/10", 0.15, burst=4.0)
    assert times.switches > 2
    assert 0.1 < times.speculative / len(times.e2e_s) < 0.9


def test_a_control_arm_never_counts_as_switching() -> None:
    assert _run(_bench(Placement.SHARED), "faster", 0.5).switches == 0


def test_least_delay_beats_the_faster_engine_and_every_arm_that_uses_one_engine_alone() -> None:
    means = {said: _mean(_run(_bench(name=TREE), said, 0.3, sizes=BARE)) for said in ("least_delay", "faster", "first")}
    alone = {said: _mean(_run(_bench(name=TREE), said, 0.3, sizes=BARE)) for said in ("only_baseline", "threshold")}
    assert means["least_delay"] < min([means["faster"], means["first"], *alone.values()])


def test_a_tax_makes_an_adaptive_engine_slower_where_it_does_not_speculate() -> None:
    bench = _bench(Placement.SHARED, name=TREE)
    free, taxed, plain = (_mean(_run(bench, said, 0.8)) for said in ("adaptive:0", "adaptive:0.3", "only_baseline"))
    assert free < taxed
    assert free < 1.02 * plain < taxed


def test_what_a_control_arm_sends_to_a_full_engine_goes_to_the_other() -> None:
    bench = _bench(limit=2)
    trial = Trial(
        chosen_by("mine", lambda *_: BASELINE, bench), _bounds(bench), open_source(iter([Offer(0.0, 0, 9)] * 5))
    )
    times = trial.run(0, 5)
    assert times.most == {SPECULATIVE: 2, BASELINE: 2}
    assert times.waited == 1


def test_an_arm_of_one_s_own_sees_the_counts_of_the_desk() -> None:
    bench, seen = _bench(), []

    def choose(view: Trial, _task: object) -> Role:
        seen.append((view.speculative, view.baseline))
        return ROLES[len(seen) % 2]

    offers: Sequence[Offer] = [Offer(0.0, 0, 100)] * 6
    Trial(chosen_by("mine", choose, bench), _bounds(bench), open_source(iter(offers))).run(0, 6)
    assert seen == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]


@pytest.mark.parametrize(("times_too_much", "given_up"), [(5.0, False), (20.0, True)])
def test_a_run_is_given_up_only_where_far_more_comes_than_the_engines_carry(
    times_too_much: float, given_up: bool
) -> None:
    bench, sizes = _steady(100.0, 4), Sizes(0, 1.0, in_step=False)
    rate_per_s = times_too_much * 200.0
    for known_per_s in (0.0, rate_per_s):
        source = Gamma(sizes=sizes).source(rate_per_s, 1)
        times = Trial(arm("overflow:4", bench), _bounds(bench), source).run(0, 1500, known_per_s)
        assert (times.left_waiting > 9 * 1500) is given_up
        assert (len(times.e2e_s) == 1500) is not given_up


@pytest.mark.parametrize(("came", "at_s", "rate_per_s"), [(2000, 1.0, 0.0), (20_000, 1.0, 2.0), (2000, 1e4, 2.0)])
def test_a_burst_that_engines_get_done_with_is_no_overload(came: int, at_s: float, rate_per_s: float) -> None:
    bench = _steady(100.0, 4)
    burst = (Offer(at_s + n * 1e-6, 0, 1) for n in range(came))
    times = Trial(arm("overflow:4", bench), _bounds(bench), open_source(burst)).run(0, 20, rate_per_s)
    assert (times.left_waiting, len(times.e2e_s)) == (0, 20)
