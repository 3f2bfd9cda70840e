"""The engine model without its steps against the one that takes every step: the same requests, the same mean times."""

import time
from collections.abc import Callable, Mapping
from itertools import islice
from math import ceil
from random import Random
from statistics import fmean

import pytest

from proxy.lab.acceptance import Acceptance
from proxy.lab.curves import Curve, find
from proxy.lab.engine import Engine, EngineLimits, Sequence
from proxy.lab.simulation.arrivals import Gamma, Offer, Sizes
from proxy.lab.simulation.pace import Pace, paces
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
from proxy.model import ROLES, Placement, Role

KIMI, TREE, GLM = (
    "rtx6kpro_kimi26_v1_dcp1_ctx0",
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21",
    "rtx6kpro_glm51_dcp4_ctx0",
)
# Prompt and output.
CONTEXT = 656.0
WARM = 200
KV_TOKENS = 400_000
CHAT = Sizes()


def _offers(rate_per_s: float, count: int, seed: int, sizes: Sizes = CHAT) -> list[Offer]:
    source = Gamma(sizes=sizes).source(rate_per_s, seed)
    return list(islice(iter(source.take, None), count))


def _stepped(engines: Mapping[Role, Engine], offers: list[Offer], choose: Callable[[int], Role]) -> list[float]:
    """Seconds of each request where both engines take their steps in turn, one after the other."""
    now_s, came = 0.0, 0
    asked: dict[int, float] = {}
    took_s = [0.0] * len(offers)

    def take_in() -> None:
        nonlocal came
        while came < len(offers) and offers[came].at_s <= now_s:
            offer = offers[came]
            asked[came] = offer.at_s
            engines[choose(came)].submit(Sequence(came, offer.prompt_tokens, offer.tokens, offer.tokens, offer.blocks))
            came += 1

    while came < len(offers) or asked:
        if not asked:
            now_s = max(now_s, offers[came].at_s)
        for engine in engines.values():
            take_in()
            step = engine.step()
            now_s += step.duration_s
            for number, _, finished in step.emitted:
                if finished:
                    took_s[number] = now_s - asked.pop(number)
    return took_s


def _engine(curve: Curve, role: Role, kv_tokens: int = KV_TOKENS) -> Engine:
    longest = max(curve.num_steps + 1, ceil(curve.tokens_per_step))
    acceptance = Acceptance(curve.tokens_per_step, longest) if role is Role.SPECULATIVE else None
    limits = EngineLimits(64, kv_tokens, prefill_tokens_per_s=curve.prefill_tokens_per_s)
    return Engine(curve.step_time(role), limits, Random(7), acceptance)


def _bounds(curve: Curve, kv_tokens: int = KV_TOKENS) -> Bounds:
    return Bounds(64, kv_tokens, curve.prefill_tokens_per_s)


def _shared(gpus: Mapping[Role, Gpus], offers: list[Offer], choose: Callable[[int], Role]) -> list[float]:
    """Seconds of each request with the engines of the simulation."""
    stations = {role: next(each for each in one.stations if _is_of(each, role)) for role, one in gpus.items()}
    tasks = [Task(offer.prompt_tokens, offer.tokens, offer.step_share, offer.blocks) for offer in offers]
    distinct = list(dict.fromkeys(gpus.values()))
    left, came = len(offers), 0
    while left:
        soonest = min(distinct, key=lambda one: one.next_at_s)
        if came < len(offers) and offers[came].at_s <= soonest.next_at_s:
            role = choose(came)
            gpus[role].submit(stations[role], tasks[came], offers[came].at_s)
            came += 1
        else:
            left -= soonest.fire() is not None
    return [task.ended_at_s - offer.at_s for task, offer in zip(tasks, offers, strict=True)]


def _is_of(station: Station, role: Role) -> bool:
    return (station.pace.tokens[1] > 1.0) is (role is Role.SPECULATIVE)


def _gpus(curve: Curve, placement: Placement, kv_tokens: int = KV_TOKENS) -> dict[Role, Gpus]:
    both = paces(curve, 64, CONTEXT)
    stations = {role: Station(both[role], _bounds(curve, kv_tokens)) for role in ROLES}
    if placement is Placement.SHARED:
        return dict.fromkeys(ROLES, Gpus(*stations.values()))
    return {role: Gpus(station) for role, station in stations.items()}


@pytest.mark.parametrize(("name", "rate_per_s"), [(KIMI, 1.2), (TREE, 5.0), (GLM, 0.5)])
@pytest.mark.parametrize("role", ROLES)
def test_an_engine_alone_gives_the_mean_time_of_one_that_takes_every_step(
    name: str, rate_per_s: float, role: Role
) -> None:
    curve = find(name)
    offers = _offers(rate_per_s, 1200, seed=3)
    stepped = _stepped({role: _engine(curve, role)}, offers, lambda _: role)
    shared = _shared({role: _gpus(curve, Placement.SEPARATE)[role]}, offers, lambda _: role)
    assert fmean(shared[WARM:]) == pytest.approx(fmean(stepped[WARM:]), rel=0.01)
    worst = round(0.99 * len(offers))
    assert sorted(shared)[worst] == pytest.approx(sorted(stepped)[worst], rel=0.03)


@pytest.mark.parametrize(("name", "rate_per_s"), [(KIMI, 0.8), (TREE, 2.5), (GLM, 0.3)])
def test_two_engines_on_the_same_gpus_do_as_two_that_take_their_steps_in_turn(name: str, rate_per_s: float) -> None:
    curve = find(name)
    offers = _offers(rate_per_s, 900, seed=4)

    def choose(number: int) -> Role:
        return ROLES[number % 3 == 0]

    stepped = _stepped({role: _engine(curve, role) for role in ROLES}, offers, choose)
    shared = _shared(_gpus(curve, Placement.SHARED), offers, choose)
    apart = _shared(_gpus(curve, Placement.SEPARATE), offers, choose)
    assert fmean(shared[WARM:]) == pytest.approx(fmean(stepped[WARM:]), rel=0.02)
    assert fmean(apart[WARM:]) < 0.8 * fmean(shared[WARM:])


def test_long_prompts_are_filled_chunk_by_chunk_and_hold_the_others_up() -> None:
    curve = find(KIMI)
    offers = [Offer(0.05 * n, 20_000 if n % 10 == 0 else 100, 60, 0.5) for n in range(60)]
    stepped = _stepped({Role.BASELINE: _engine(curve, Role.BASELINE)}, offers, lambda _: Role.BASELINE)
    one = {Role.BASELINE: _gpus(curve, Placement.SEPARATE)[Role.BASELINE]}
    assert fmean(_shared(one, offers, lambda _: Role.BASELINE)) == pytest.approx(fmean(stepped), rel=0.02)


def test_a_full_pool_makes_requests_wait_as_in_the_engine() -> None:
    curve = find(KIMI)
    offers = [Offer(0.01 * n, 100, 200, 0.5) for n in range(40)]
    room = 1000
    stepped = _stepped({Role.BASELINE: _engine(curve, Role.BASELINE, room)}, offers, lambda _: Role.BASELINE)
    tight, wide = (
        fmean(_shared({Role.BASELINE: gpus[Role.BASELINE]}, offers, lambda _: Role.BASELINE))
        for gpus in (_gpus(curve, Placement.SEPARATE, room), _gpus(curve, Placement.SEPARATE))
    )
    assert tight == pytest.approx(fmean(stepped), rel=0.03)
    assert tight > 1.5 * wide


def test_a_full_pool_of_one_shared_prompt_holds_as_many_as_in_the_engine() -> None:
    curve = find(KIMI)
    blocks = tuple(range(8))
    offers = [Offer(0.05 * n, 4200, 200, 0.5, blocks) for n in range(40)]
    room = 4200 + 20 * 400  # of so many for themselves, and of two with a prompt for each
    stepped = _stepped({Role.BASELINE: _engine(curve, Role.BASELINE, room)}, offers, lambda _: Role.BASELINE)
    gpus = _gpus(curve, Placement.SEPARATE, room)[Role.BASELINE]
    shared = _shared({Role.BASELINE: gpus}, offers, lambda _: Role.BASELINE)
    (station,) = gpus.stations
    assert fmean(shared) == pytest.approx(fmean(stepped), rel=0.03)
    assert (station.reserved, station.cache.in_use(())) == (0, 0)
    apart = [offer._replace(blocks=tuple(range(10 * n, 10 * n + 8))) for n, offer in enumerate(offers)]
    alone = _shared(
        {Role.BASELINE: _gpus(curve, Placement.SEPARATE, room)[Role.BASELINE]}, apart, lambda _: Role.BASELINE
    )
    assert fmean(alone) > 1.5 * fmean(shared)


def test_a_prompt_that_the_cache_holds_is_not_filled_again() -> None:
    curve = find(KIMI)
    blocks = tuple(range(10))
    offers = [Offer(10.0 * n, 5200, 20, 0.5, blocks) for n in range(3)]
    first_s, *later_s = _shared(
        {Role.BASELINE: _gpus(curve, Placement.SEPARATE)[Role.BASELINE]}, offers, lambda _: Role.BASELINE
    )
    stepped = _stepped({Role.BASELINE: _engine(curve, Role.BASELINE)}, offers, lambda _: Role.BASELINE)
    assert [first_s, *later_s] == pytest.approx(stepped, rel=0.03)
    assert max(later_s) < first_s - 0.6


def test_sequences_gain_in_turn_what_the_batch_leaves_them() -> None:
    # One second a step, whatever the batch: each of two gains a token in each second.
    gpus = Gpus(station := Station(Pace((0.0, 1.0, 1.0), (0.0, 1.0, 1.0)), Bounds(2, 1000, 1000.0)))
    gpus.submit(station, short := Task(0, 3), 0.0)
    gpus.submit(station, long := Task(0, 5), 0.0)
    ended = []
    while gpus.next_at_s < float("inf"):
        if task := gpus.fire():
            ended.append(task)
    assert ended == [short, long]
    assert (short.ended_at_s, long.ended_at_s) == pytest.approx((3.0, 5.0))
    assert short.first_at_s == pytest.approx(1.0)


def test_a_request_waits_for_what_is_left_of_the_step_and_not_where_nothing_runs() -> None:
    # A step takes two seconds and its prompt none.
    gpus = Gpus(station := Station(Pace((0.0, 2.0, 2.0), (0.0, 1.0, 1.0)), Bounds(2, 1000, 1e12)))
    gpus.submit(station, first := Task(1, 100, step_share=0.75), 0.0)
    for _ in range(2):
        gpus.fire()
    gpus.submit(station, second := Task(1, 100, step_share=0.75), 10.0)
    assert gpus.next_at_s == pytest.approx(11.5)
    for _ in range(2):
        gpus.fire()
    assert (first.first_at_s, second.first_at_s) == pytest.approx((2.0, 13.5))


def test_single_steps_take_many_times_the_computing() -> None:
    curve = find(GLM)
    offers = _offers(0.3, 400, seed=5)

    def shared() -> None:
        _shared({Role.BASELINE: _gpus(curve, Placement.SEPARATE)[Role.BASELINE]}, offers, lambda _: Role.BASELINE)

    def steps() -> None:
        _stepped({Role.BASELINE: _engine(curve, Role.BASELINE)}, offers, lambda _: Role.BASELINE)

    # Some thirty times; a twin that goes through all of its batch at each event is not worth having. Of so few
    # milliseconds the collector alone, when it comes, takes many times as much: the least of three counts.
    assert min(_cpu_s(steps) for _ in range(3)) > 5 * min(_cpu_s(shared) for _ in range(3))


def _cpu_s(act: Callable[[], None]) -> float:
    began_s = time.process_time()
    act()
    return time.process_time() - began_s


def test_a_first_token_on_shared_gpus_comes_a_step_of_its_own_engine_after_its_prompt() -> None:
    quick, slow = (Pace((0.0, *[step_s] * 4), (0.0, *[1.0] * 4)) for step_s in (0.1, 0.3))
    bounds = Bounds(4, KV_TOKENS, 8000.0)
    one, other = Station(quick, bounds), Station(slow, bounds)
    gpus = Gpus(one, other)
    gpus.submit(other, Task(0, 100), 0.0)
    while gpus.next_at_s < 1.0:
        gpus.fire()
    task = Task(800, 10)
    gpus.submit(one, task, 1.0)
    while task.first_at_s == float("inf"):
        gpus.fire()
    # 0.1 s for the prompt and 0.1 s for a step; the other engine's step comes after it.
    assert task.first_at_s == pytest.approx(1.2)
