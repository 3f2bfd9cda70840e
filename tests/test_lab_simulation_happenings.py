"""Acceptance that changes and engines that are lost for a while, as the desk and the requests meet them."""

from collections.abc import Sequence
from itertools import islice
from math import ceil
from random import Random
from statistics import fmean

import pytest
from fakes.stepped import stepped

from proxy.lab.acceptance import Acceptance
from proxy.lab.curves import find
from proxy.lab.engine import Engine, EngineLimits
from proxy.lab.simulation.arms import Arm, Bench, View, arm, chosen_by
from proxy.lab.simulation.arrivals import Gamma, Offer, open_source
from proxy.lab.simulation.course import AS_MEASURED, Course, Level, Loss, read_losses, read_shifts
from proxy.lab.simulation.levels import bench_at, over_levels
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.sharing import Bounds, Task
from proxy.lab.simulation.trial import Trial
from proxy.model import (
    BASELINE,
    ROLES,
    SPECULATIVE,
    ChangeKind,
    EngineLoad,
    Outcome,
    Placement,
    Reason,
    RequestFacts,
    Role,
)
from proxy.state.backend import Backend

KIMI, TREE = "rtx6kpro_kimi26_v1_dcp1_ctx0", "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21"


def _bench(placement: Placement = Placement.SEPARATE, name: str = KIMI) -> Bench:
    curve = find(name)
    return Bench(curve, placement, paces(curve, 64), 64)


def _limited(limit: int) -> Bench:
    curve = find(KIMI)
    return Bench(curve, Placement.SEPARATE, paces(curve, limit), limit)


def _trial(bench: Bench, way: str | Arm, offers: Sequence[Offer], course: Course) -> Trial:
    chosen = way if isinstance(way, Arm) else over_levels(bench, course.shifts.distinct, lambda at: [arm(way, at)])[0]
    bounds = dict.fromkeys(ROLES, Bounds(64, 400_000, bench.curve.prefill_tokens_per_s))
    return Trial(chosen, bounds, open_source(iter(offers)), course)


def _chat(count: int, rate_per_s: float = 1.0, seed: int = 3) -> list[Offer]:
    return list(islice(iter(Gamma().source(rate_per_s, seed).take, None), count))


def _hear(trial: Trial) -> list[RequestFacts]:
    heard: list[RequestFacts] = []
    trial.desk.heard = heard.append  # type: ignore[method-assign]
    return heard


# ---------------------------------------------------------------- acceptance


def test_levels_of_acceptance_come_in_their_turn_and_again_where_they_alternate() -> None:
    assert list(read_shifts("0.55@300s,1@600")) == [(300.0, Level(0.55)), (600.0, Level(1.0))]
    turns = read_shifts("coding/writing@120s")
    coding, writing = Level(3.32, absolute=True), Level(2.33, absolute=True)
    assert list(islice(turns, 4)) == [(0.0, coding), (120.0, writing), (240.0, coding), (360.0, writing)]
    assert turns.distinct == (AS_MEASURED, coding, writing)


def test_a_sequence_alone_gains_by_the_acceptance_of_the_time() -> None:
    bench, tokens = _bench(), 10_000
    pace = bench.paces[SPECULATIVE]
    trial = _trial(bench, "only_speculative", [Offer(0.0, 0, tokens)], Course(shifts=read_shifts("0.5@20s")))
    (took_s,) = trial.run(0, 1).e2e_s
    per_s = pace.tokens[1] / pace.step_s[1]
    rest = tokens + pace.surplus_tokens - 20.0 * per_s
    assert took_s == pytest.approx(20.0 + rest / (0.5 * per_s))


@pytest.mark.parametrize("placement", Placement)
def test_a_change_of_acceptance_is_that_of_the_engine_that_takes_every_step(placement: Placement) -> None:
    bench, offers, at_s = _bench(placement), _chat(900, 1.2), 300.0
    trial = _trial(bench, "only_speculative", offers, Course(shifts=read_shifts(f"0.6@{at_s:g}s")))
    took_s = fmean(trial.run(0, len(offers)).e2e_s)
    every_step = _shifted(bench, offers, at_s, 0.6)
    assert took_s == pytest.approx(fmean(every_step), rel=0.01)
    assert took_s > 1.2 * fmean(_shifted(bench, offers, float("inf"), 0.6))


def _shifted(bench: Bench, offers: list[Offer], at_s: float, factor: float) -> list[float]:
    """Seconds of each request where every step is taken, the accepted lengths of which change at an instant."""
    curve = bench.curve
    longest = max(curve.num_steps + 1, ceil(curve.tokens_per_step))
    before, after = (Acceptance(part * curve.tokens_per_step, longest) for part in (1.0, factor))
    limits = EngineLimits(64, 400_000, prefill_tokens_per_s=curve.prefill_tokens_per_s)
    engine = Engine(curve.step_time(SPECULATIVE), limits, Random(7), before)

    def accepts(now_s: float) -> None:
        engine._acceptance = before if now_s < at_s else after

    return stepped(engine, offers, accepts)


def test_acceptance_stays_between_one_token_and_the_longest() -> None:
    bench = _bench()
    for level, tokens in ((Level(0.1), 1.0), (Level(9.0), 4.0), (Level(3.32, absolute=True), 3.32)):
        assert bench_at(bench, level).paces[SPECULATIVE].tokens[1] == tokens
        assert bench_at(bench, level).paces[BASELINE] == bench.paces[BASELINE]


def test_arms_that_know_true_speeds_choose_by_those_of_the_time() -> None:
    bench, course = _bench(), Course(shifts=read_shifts("0.3@50s"))
    offers = [Offer(20.0 * n, 0, 50) for n in range(8)]  # each alone
    trials = {said: _trial(bench, said, offers, course) for said in ("least_delay", "faster", "first")}
    for trial in trials.values():
        trial.run(0, len(offers))
    assert trials["least_delay"].times.speculative == trials["faster"].times.speculative == 3
    # An operator's number is not told.
    assert trials["first"].times.speculative == 8


def test_engines_that_switch_speculation_themselves_know_what_is_accepted() -> None:
    bench = _bench(Placement.SHARED)
    made = over_levels(bench, (AS_MEASURED, Level(0.3)), lambda at: [arm("adaptive:0", at), arm("two_baselines", at)])
    adaptive, plain = made
    assert adaptive.at(AS_MEASURED).paces[SPECULATIVE].tokens[1] > 2.0
    assert adaptive.at(Level(0.3)).paces[SPECULATIVE].tokens[1] == 1.0
    assert plain.at(Level(0.3)).paces == plain.paces


# ---------------------------------------------------------------- engines that are lost


def test_a_loss_is_read_as_it_is_said() -> None:
    said = "speculative@300s+60s,baseline@900+5"
    assert read_losses(said) == (Loss(SPECULATIVE, 300.0, 60.0), Loss(BASELINE, 900.0, 5.0))


def _lost(at_s: float = 30.0, lasts_s: float = 20.0, role: Role = SPECULATIVE) -> Course:
    return Course(losses=(Loss(role, at_s, lasts_s),))


def test_answers_that_had_begun_fail_with_their_engine_and_others_move() -> None:
    # The prompt of the last one is still being filled when the engine dies.
    offers = [Offer(0.0, 0, 100_000), Offer(1.0, 0, 100_000), Offer(29.5, 8_000, 10)]
    trial = _trial(_bench(), "only_speculative", offers, _lost())
    heard = _hear(trial)
    times = trial.run(0, 3)
    assert [facts.outcome for facts in heard] == [Outcome.FAILED_AFTER_COMMIT] * 2 + [Outcome.FINISHED]
    assert (times.failed, times.failed_tokens, times.retried, len(times.e2e_s)) == (2, 200_000, 1, 1)
    assert heard[2].decision is not None
    assert (heard[2].decision.role, heard[2].decision.reason, heard[2].attempts) == (BASELINE, Reason.FAILOVER, 2)
    # Its time counts from when it was first asked, and its prompt is filled anew.
    assert times.e2e_s[0] > 0.5 + 1.0


def test_the_desk_finds_a_dead_engine_by_failures_and_probes_and_takes_it_back() -> None:
    offers = [Offer(0.25 * n, 0, 20) for n in range(400)]
    trial = _trial(_bench(), "only_speculative", offers, _lost(30.0, 20.0))
    heard = _hear(trial)
    times = trial.run(0, 400)
    assert times.failed <= 1
    assert 0 < times.retried < 10  # those that came before it was known to be down
    roles = [facts.decision.role for facts in heard if facts.decision is not None and facts.outcome is Outcome.FINISHED]
    # Down for 20 s, and the ramp takes it back bit by bit.
    assert 70 < roles.count(BASELINE) < 160
    assert roles[-1] is SPECULATIVE
    assert set(roles[130:190]) == {BASELINE}


def test_an_engine_that_comes_back_has_nothing_cached() -> None:
    blocks = tuple(range(6))
    offers = [Offer(at_s, 6 * 512 + 9, 5, 0.0, blocks) for at_s in (0.0, 10.0, 90.0)]
    trial = _trial(_bench(), "only_baseline", offers, _lost(30.0, 20.0, BASELINE))
    heard = _hear(trial)
    trial.run(0, 3)
    assert [facts.usage.cached_tokens for facts in heard] == [0, 6 * 512, 0]


def test_no_more_requests_are_tried_again_than_the_retry_budget_has() -> None:
    offers = [Offer(29.0, 8_000, 10) for _ in range(40)]  # of which the engine fills one a second
    times = _trial(_bench(), "only_speculative", offers, _lost()).run(0, 40)
    assert times.retried == 10
    assert times.failed == 30


def test_what_moves_waits_before_those_that_have_not_failed_in_its_order() -> None:
    def choose(view: View, task: Task) -> Role:
        return SPECULATIVE if task.prompt_tokens else BASELINE

    # Both are full; what one engine loses has to wait for the other, and somebody waits already.
    plain, filling = [Offer(0.0, 0, 6_000 + 600 * n) for n in range(3)], [Offer(29.0, 9_000, 10)] * 3
    bench = _limited(3)
    trial = _trial(bench, chosen_by("mine", choose, bench), [*plain, *filling, Offer(29.5, 0, 10)], _lost(30.0, 500.0))
    numbers = []
    trial.desk.heard = lambda facts: numbers.append(round(trial.now_s - facts.duration_s, 1))  # type: ignore[method-assign]
    times = trial.run(0, 7)
    assert (times.retried, times.failed) == (3, 0)
    assert [came_s for came_s in numbers if came_s > 0] == [29.0, 29.0, 29.0, 29.5]


def test_a_long_queue_fails_one_after_the_other() -> None:
    course = Course(losses=(Loss(SPECULATIVE, 1.0, 50.0), Loss(BASELINE, 1.0, 50.0)))
    times = _trial(_limited(1), "marginal", [Offer(0.0, 0, 1_000)] * 3_000, course).run(0, 3_000)
    assert times.failed == 3_000


def test_the_first_token_of_a_request_that_tests_a_circuit_closes_it() -> None:
    # Gone for three seconds, in which five requests in a row fail: the circuit stays open for ten.
    offers = [*(Offer(0.1 * n, 0, 10) for n in range(390)), *(Offer(39.0 + 0.5 * n, 0, 20_000) for n in range(40))]
    trial = _trial(_bench(), "only_speculative", offers, _lost(30.0, 3.0))
    sent: list[tuple[float, Role | None]] = []
    trial.desk.on_decision = lambda decision: sent.append((trial.now_s, decision.role))
    trial.run(0, len(offers))
    assert {role for at_s, role in sent if 31.0 < at_s < 39.0} == {BASELINE}
    # Long answers, none of which ends for two minutes.
    assert sum(role is SPECULATIVE for at_s, role in sent if 40.0 < at_s < 49.0) > 5


def test_answers_between_short_losses_keep_the_circuit_closed() -> None:
    # Less than five requests in a row fail in each, which is what it takes.
    losses = tuple(Loss(SPECULATIVE, at_s, 0.3) for at_s in (5.05, 20.05, 35.05))
    trial = _trial(_bench(), "only_speculative", [Offer(0.1 * n, 0, 5) for n in range(450)], Course(losses=losses))
    kinds = []
    trial.desk.on_change = lambda change: kinds.append(change.kind)
    times = trial.run(0, 450)
    assert times.retried + times.failed > 5
    assert ChangeKind.CIRCUIT not in kinds


def test_while_both_engines_are_lost_requests_fail_and_later_ones_are_served() -> None:
    course = Course(losses=(Loss(SPECULATIVE, 30.0, 20.0), Loss(BASELINE, 30.0, 20.0)))
    offers = [Offer(0.5 * n, 0, 20) for n in range(300)]
    times = _trial(_bench(), "marginal", offers, course).run(0, 300)
    assert times.failed + len(times.e2e_s) == 300
    assert 30 <= times.failed <= 70


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("said", ["auto", "marginal", "overflow", "least_delay"])
def test_every_request_comes_to_one_end_through_losses_and_aborts(said: str, placement: Placement) -> None:
    offers = [
        offer._replace(patience_s=0.2 if n % 7 == 0 else float("inf"), read=0.5 if n % 11 == 0 else 1.0)
        for n, offer in enumerate(_chat(700, 3.0))
    ]
    course = Course(losses=read_losses("speculative@40s+20s,baseline@100s+10s,speculative@105s+10s"), aborts=0.1)
    trial = _trial(_bench(placement), said, offers, course)
    heard = _hear(trial)
    times = trial.run(0, 700)
    assert len(times.e2e_s) + times.failed + times.gone == len(heard) == 700
    # Nothing is left anywhere, but for what lingers of clients who have left.
    assert (trial.speculative, trial.baseline, len(trial.queue)) == (0, 0, 0)
    books = [trial.desk.backend(role).book for role in ROLES]
    assert [book.in_flight - book.lingering for book in books] == [0, 0]
    assert [book.opened - book.settled for book in books] == [0, 0]
    assert all(not station.running and not station.waiting for station in trial.stations.values())


def test_with_shared_gpus_the_other_engine_has_them_alone_while_one_is_lost() -> None:
    def both(view: View, _task: Task) -> Role:
        return SPECULATIVE if not view.speculative else BASELINE

    bench, offers = _bench(Placement.SHARED), [Offer(0.0, 0, 50_000), Offer(0.0, 0, 2_000)]
    ends = []
    for course in (Course(), _lost(1.0, 500.0)):
        trial = _trial(bench, chosen_by("both", both, bench), offers, course)
        heard = _hear(trial)
        trial.run(0, 2)
        ends.append(next(facts.duration_s for facts in heard if facts.outcome is Outcome.FINISHED))
    pace, beside = (bench.paces[role].step_s[1] for role in (BASELINE, SPECULATIVE))
    assert ends[0] == pytest.approx(2_000 * (pace + beside), rel=0.01)
    assert ends[1] == pytest.approx(1.0 + (2_000 - 1.0 / (pace + beside)) * pace, rel=0.01)


def test_a_polled_engine_that_is_lost_says_nothing_and_counts_anew_when_it_is_back() -> None:
    offers = [Offer(0.5 * n, 0, 40) for n in range(200)]
    trial = _trial(_bench(), "only_speculative", offers, Course(polled=True, losses=(Loss(SPECULATIVE, 30.0, 20.0),)))
    told: list[tuple[float, float]] = []
    observe = trial.desk.observe_load

    def observed(backend: Backend, load: EngineLoad) -> None:
        if backend.role is SPECULATIVE and load.at_s is not None and load.moments is not None:
            told.append((load.at_s, load.moments[0]))
        observe(backend, load)

    trial.desk.observe_load = observed  # type: ignore[method-assign]
    trial.run(0, 200)
    steps = dict(told)
    assert 29.0 in steps
    assert not [at_s for at_s in steps if 30.0 <= at_s < 50.0]
    assert steps[51.0] < steps[29.0]
