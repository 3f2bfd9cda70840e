"""What the desk is told in simulation: facts, loads with their decode moments, and each request that has ended."""

from itertools import islice, pairwise
from math import ceil
from random import Random

import pytest

from proxy.lab.acceptance import Acceptance
from proxy.lab.curves import Curve, find
from proxy.lab.engine import Engine, EngineLimits, Sequence
from proxy.lab.simulation import telling
from proxy.lab.simulation.arms import Bench, arm
from proxy.lab.simulation.arrivals import Gamma, Offer, open_source
from proxy.lab.simulation.course import POLL_S, Course
from proxy.lab.simulation.moments import Moments
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
from proxy.lab.simulation.trial import Trial
from proxy.model import BASELINE, ROLES, SPECULATIVE, EngineFacts, EngineLoad, Placement, RequestFacts, Role
from proxy.state.backend import Backend

KIMI = "rtx6kpro_kimi26_v1_dcp1_ctx0"
KV_TOKENS = 400_000


class _Told:
    """A trial that keeps what its desk is told."""

    def __init__(self, offers: list[Offer], said: str = "marginal", *, polled: bool = True) -> None:
        curve = find(KIMI)
        self.bench = Bench(curve, Placement.SEPARATE, paces(curve, 64), 64)
        bounds = dict.fromkeys(ROLES, Bounds(64, KV_TOKENS, curve.prefill_tokens_per_s))
        self.trial = Trial(arm(said, self.bench), bounds, open_source(iter(offers)), Course(polled=polled))
        self.desk = self.trial.desk
        self.loads: dict[Role, list[EngineLoad]] = {role: [] for role in ROLES}
        self.heard: list[RequestFacts] = []
        observe, hear = self.desk.observe_load, self.desk.heard

        def observed(backend: Backend, load: EngineLoad) -> None:
            self.loads[backend.role].append(load)
            observe(backend, load)

        def heard(facts: RequestFacts) -> None:
            self.heard.append(facts)
            hear(facts)

        self.desk.observe_load = observed  # type: ignore[method-assign]
        self.desk.heard = heard  # type: ignore[method-assign]
        self.times = self.trial.run(0, len(offers))


def _chat(count: int, rate_per_s: float = 1.0, seed: int = 3) -> list[Offer]:
    return list(islice(iter(Gamma().source(rate_per_s, seed).take, None), count))


def test_a_polled_run_tells_each_engine_s_load_once_a_second() -> None:
    told = _Told(_chat(60))
    for role in ROLES:
        instants = [load.at_s for load in told.loads[role]]
        gaps = [later - sooner for sooner, later in pairwise(instants) if sooner is not None and later is not None]
        assert gaps
        assert gaps == pytest.approx([POLL_S] * len(gaps))
        assert told.times.span_s - 2 * POLL_S < (instants[-1] or 0.0) <= told.times.span_s


def test_polls_change_no_decision_that_asks_for_none() -> None:
    offers = _chat(300)
    polled, alone = _Told(offers), _Told(offers, polled=False)
    assert not alone.loads[BASELINE]
    assert list(polled.times.e2e_s) == pytest.approx(list(alone.times.e2e_s), rel=1e-9)
    assert polled.times.speculative == alone.times.speculative


def test_moments_only_grow_and_their_differences_are_the_pace_at_the_batch() -> None:
    told = _Told([Offer(0.0, 0, 4000)] * 6, "only_speculative")
    rows = [load.moments for load in told.loads[SPECULATIVE] if load.moments is not None]
    between = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in pairwise(rows)]
    assert all(value >= 0 for row in between for value in row)
    steps, batch, time_us, squared, batch_time, generated = between[3]  # all six decode through that second
    pace = told.bench.paces[SPECULATIVE]
    assert time_us / steps == pytest.approx(1e6 * pace.step_s[6])
    assert (batch / steps, squared / steps) == pytest.approx((6, 36))
    assert batch_time == pytest.approx(6 * time_us)
    assert generated / batch == pytest.approx(pace.tokens[6])
    assert told.loads[SPECULATIVE][4].accept_length == pytest.approx(pace.tokens[6])
    assert told.loads[SPECULATIVE][4].running == 6


def test_loads_tell_who_runs_and_who_waits_at_the_engine() -> None:
    bench_limit = Bounds(2, KV_TOKENS, 8000.0)
    gpus = Gpus(station := Station(paces(find(KIMI), 8)[BASELINE], bench_limit))
    for _ in range(5):
        gpus.submit(station, Task(10, 100), 0.0)
    gpus.fire()
    gpus.fire()
    told = telling.load(station, BASELINE, 1.0)
    assert (told.running, told.waiting, told.moments, told.accept_length) == (2, 3, None, None)


def test_the_desk_knows_the_size_of_each_engine_s_pool_from_the_start() -> None:
    told = _Told(_chat(5), polled=False)
    assert [told.desk.backend(role).facts for role in ROLES] == [
        EngineFacts(max_running_requests=64, speculative_algorithm="EAGLE", kv_tokens=KV_TOKENS),
        EngineFacts(max_running_requests=64, kv_tokens=KV_TOKENS),
    ]


def test_the_desk_hears_usage_and_times_of_each_request_with_its_blocks_and_conversation() -> None:
    blocks = (11, 12, 13)
    offers = [Offer(20.0 * n, 3 * 512 + 100, 80, 0.0, blocks, conversation=7) for n in range(2)]
    first, second = _Told(offers, "only_baseline").heard
    assert [one.traits.prefix for one in (first, second)] == [blocks, blocks]
    assert [one.traits.conversation for one in (first, second)] == [7, 7]
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 3 * 512)
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (3 * 512 + 100, 80)
    assert first.ttft_s is not None
    assert second.ttft_s is not None
    assert second.ttft_s < first.ttft_s
    assert first.tpot_s == pytest.approx((first.duration_s - first.ttft_s) / 79)


def test_what_had_to_wait_is_told_with_the_time_it_waited() -> None:
    heard = _Told([Offer(0.0, 10, 50)] * 200).heard
    assert len(heard) == 200
    waited = [facts.queue_s for facts in heard if facts.queue_s > 0]
    assert len(waited) == 200 - 128


@pytest.mark.parametrize("role", ROLES)
def test_moments_of_an_hour_are_those_of_the_engine_that_takes_every_step(role: Role) -> None:
    curve = find(KIMI)
    offers = _chat(1200, 1.2)
    stepped = _stepped(curve, role, offers)
    gpus = Gpus(station := Station(paces(curve, 64, 656.0)[role], Bounds(64, KV_TOKENS, curve.prefill_tokens_per_s)))
    station.moments = Moments()
    _play(gpus, station, offers)
    shared = station.moments.told()
    # A step's time is right to the part of it that a request meets, and the last step of an answer yields more than the
    # engine counts.
    assert shared == pytest.approx(stepped, rel=0.02)
    assert shared[2] / shared[0] == pytest.approx(stepped[2] / stepped[0], rel=0.01)
    assert shared[5] / shared[1] == pytest.approx(stepped[5] / stepped[1], rel=0.01)


def _play(gpus: Gpus, station: Station, offers: list[Offer]) -> None:
    left, came = len(offers), 0
    while left:
        if came < len(offers) and offers[came].at_s <= gpus.next_at_s:
            offer = offers[came]
            gpus.submit(station, Task(offer.prompt_tokens, offer.tokens, offer.step_share), offer.at_s)
            came += 1
        else:
            left -= gpus.fire() is not None


def _stepped(curve: Curve, role: Role, offers: list[Offer]) -> tuple[float, ...]:
    longest = max(curve.num_steps + 1, ceil(curve.tokens_per_step))
    acceptance = Acceptance(curve.tokens_per_step, longest) if role is SPECULATIVE else None
    limits = EngineLimits(64, KV_TOKENS, prefill_tokens_per_s=curve.prefill_tokens_per_s)
    engine = Engine(curve.step_time(role), limits, Random(7), acceptance)
    record = engine._record
    # The simulation tells every step; which ones an engine leaves out is for who reads it (simulate/tellings.py).
    engine._record = lambda *step, after_prefill: record(*step, after_prefill=False)  # type: ignore[method-assign]
    now_s, came = 0.0, 0
    while came < len(offers) or engine.busy:
        if not engine.busy:
            now_s = max(now_s, offers[came].at_s)
        while came < len(offers) and offers[came].at_s <= now_s:
            offer = offers[came]
            engine.submit(Sequence(came, offer.prompt_tokens, offer.tokens, offer.tokens))
            came += 1
        now_s += engine.step().duration_s
    return engine.books().moments
