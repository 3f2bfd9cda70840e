"""H35: switching itself must not destroy throughput: at most one change of regime a dwell, and nobody is ever moved."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.held import Crowd, Held, answers, crowded
from fakes.raw import RawClient, Said, chat, request
from fakes.stage import Stage
from fakes.traffic import DWELL_S, STEP_S, TEN_MINUTES_S, Traffic, noise, steps, wave
from fakes.until import until
from fakes.waiting import leaping, run

from proxy import config
from proxy.config import InvalidConfig
from proxy.dispatch import BackendPlan, Desk, Plan
from proxy.model import ROLES, Policy, Reason, Role
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import Evidence, HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules

SPECULATIVE, BASELINE = ROLES
WALK = (3, 4, 5, 4, 5, 4)


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
@pytest.mark.parametrize("leave_at", [4, 5])
def test_h35_a_walk_around_the_threshold_changes_the_regime_once_at_most(leave_at: int, smoothing_s: float) -> None:
    """Ten minutes of 3, 4, 5, 4, 5, 4: up at one threshold, down only at another one."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=leave_at, enter_at=leave_at // 2, smoothing_s=smoothing_s)
        await traffic.walk(steps(*WALK))
        assert traffic.changes <= 1
        assert traffic.went.total() > 2000

    run(scenario)


@pytest.mark.parametrize("dwell_s", [2.0, 10.0, 60.0])
def test_h35_thresholds_next_to_each_other_change_the_regime_once_a_dwell_at_most(dwell_s: float) -> None:
    """The worst that can be configured: no smoothing, one sequence between the thresholds; the dwell still holds."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=5, enter_at=4, smoothing_s=0.0, min_dwell_s=dwell_s)
        await traffic.walk(steps(*WALK))
        assert traffic.dwelt(dwell_s)
        assert 1 < traffic.changes <= TEN_MINUTES_S / dwell_s + 1

    run(scenario)


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
@pytest.mark.parametrize("dwell_s", [2.0, 8.0, 30.0])
def test_h35_a_square_wave_changes_the_regime_once_each_half_at_most_and_never_within_the_dwell(
    dwell_s: float, smoothing_s: float
) -> None:
    """Ten seconds low, ten seconds high, for ten minutes."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=9, enter_at=5, min_dwell_s=dwell_s, smoothing_s=smoothing_s)
        await traffic.walk(wave(2, 20))
        assert traffic.dwelt(dwell_s)
        assert 1 < traffic.changes <= TEN_MINUTES_S / max(10.0, dwell_s) + 1
        assert traffic.most_on_speculative <= 9

    run(scenario)


@pytest.mark.parametrize("policy", [Policy.THRESHOLD, Policy.OVERFLOW])
def test_h35_one_burst_of_a_hundred_and_then_nothing_leaves_everything_as_it_was(policy: Policy) -> None:
    async def scenario() -> None:
        traffic = Traffic(policy=policy, leave_at=9, enter_at=5)
        for _ in range(100):
            traffic.begin()
        assert traffic.went == {SPECULATIVE: 9, BASELINE: 91}
        await asyncio.sleep(20.0)
        traffic.check_books()
        for _ in range(100):
            traffic.end()
        for _ in range(int(TEN_MINUTES_S)):
            await asyncio.sleep(1.0)
            traffic.desk.follow()
        assert traffic.dwelt()
        assert traffic.changes == (2 if policy is Policy.THRESHOLD else 0)
        traffic.begin()
        assert traffic.went[SPECULATIVE] == 10

    run(scenario)


@pytest.mark.parametrize("counts", [lambda: steps(*WALK), lambda: wave(1, 20), lambda: noise(9, 0.3)])
def test_h35_an_engine_whose_speculation_never_pays_gets_no_traffic(counts: Callable[[], Iterator[int]]) -> None:
    """Case (a), crossover never: policy `pinned` to the baseline."""

    async def scenario() -> None:
        traffic = Traffic(policy=Policy.PINNED, pin=BASELINE)
        await traffic.walk(counts())
        assert (traffic.went[SPECULATIVE], traffic.changes) == (0, 0)
        assert set(traffic.reasons) == {Reason.PINNED}

    run(scenario)


@pytest.mark.parametrize("lost", ["health", "drain"])
def test_h35_an_engine_whose_speculation_never_pays_serves_while_the_other_is_away_and_no_longer(lost: str) -> None:
    async def scenario() -> None:
        traffic = Traffic(policy=Policy.PINNED, pin=BASELINE)
        await traffic.walk(steps(*WALK), 60.0)
        away(traffic.desk, lost, away=True)
        await traffic.walk(steps(*WALK), 60.0)
        assert set(traffic.reasons) == {Reason.PINNED, Reason.ONLY_ELIGIBLE}
        served = traffic.went[SPECULATIVE]
        assert served == traffic.reasons[Reason.ONLY_ELIGIBLE] > 100
        away(traffic.desk, lost, away=False)
        await traffic.walk(steps(*WALK), 60.0)
        assert traffic.went[SPECULATIVE] == served

    run(scenario)


def away(desk: Desk, lost: str, *, away: bool) -> None:
    if lost == "drain":
        desk.drain(BASELINE, draining=away)
    else:
        for _ in range(5):
            desk.observe_health(desk.backend(BASELINE), Evidence.MISS if away else Evidence.HIT)


@pytest.mark.parametrize(
    ("counts", "smoothing_s"),
    [
        (lambda: steps(*WALK), 0.0),
        (lambda: steps(*WALK), 2.0),
        (lambda: noise(5, 0.3), 0.0),
        (lambda: noise(5, 0.3), 2.0),
        (lambda: steps(1, 1), 2.0),
    ],
)
def test_h35_an_engine_whose_crossover_is_at_one_gets_a_hundredth_of_steady_traffic_at_most(
    counts: Callable[[], Iterator[int]], smoothing_s: float
) -> None:
    """Case (b): leave_at 1. Under load that is the first request of all."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=1, enter_at=0, smoothing_s=smoothing_s)
        await traffic.walk(counts())
        assert traffic.share_of_speculative <= 0.01
        assert (traffic.changes <= 1, traffic.most_on_speculative) == (True, 1)

    run(scenario)


@leaping
async def test_h35_leave_at_one_still_speculates_on_a_request_that_comes_after_a_long_quiet() -> None:
    """Case (b) seen from the other end: nothing in flight is below any threshold; who wants none says `pinned`."""
    traffic = Traffic(leave_at=1, enter_at=0)
    for _ in range(60):
        traffic.begin()
        await asyncio.sleep(STEP_S)
        traffic.end()
        await asyncio.sleep(9 * STEP_S)
    assert traffic.dwelt()
    assert (traffic.went[SPECULATIVE], traffic.most_on_speculative) == (60, 1)


@leaping
async def test_h35_an_engine_whose_crossover_is_at_one_never_has_more_than_one_with_overflow() -> None:
    """Case (b): leave_at 1 keeps that one place in use under this policy; who wants none says `pinned`."""
    traffic = Traffic(policy=Policy.OVERFLOW, leave_at=1, enter_at=0)
    await traffic.walk(steps(*WALK))
    assert (traffic.most_on_speculative, traffic.changes) == (1, 0)


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
@pytest.mark.parametrize("around", [5, 7, 9])
def test_h35_a_load_that_is_noisy_by_thirty_per_cent_does_not_make_the_regime_oscillate(
    around: int, smoothing_s: float
) -> None:
    """Case (c), seen from the load."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=9, enter_at=5, smoothing_s=smoothing_s)
        await traffic.walk(noise(around, 0.3))
        assert traffic.dwelt()
        # On the bare count noise may span both thresholds: then the dwell alone bounds what it does.
        assert traffic.changes <= (1 if smoothing_s else TEN_MINUTES_S / DWELL_S)

    run(scenario)


@pytest.mark.parametrize("smoothing_s", [0.0, 2.0])
def test_h35_a_crossover_that_is_noisy_by_thirty_per_cent_does_not_make_the_regime_oscillate(
    smoothing_s: float,
) -> None:
    """Case (c), seen from the measurement: the threshold is set anew each ten seconds, the load stands still at it."""

    async def scenario() -> None:
        traffic = Traffic(leave_at=9, enter_at=5, smoothing_s=smoothing_s)
        measured = noise(9, 0.3)
        for _ in range(int(TEN_MINUTES_S / 10)):
            leave_at = next(measured)
            rules = Rules(
                policy=Policy.THRESHOLD,
                leave_at=leave_at,
                enter_at=leave_at // 2,
                smoothing_s=smoothing_s,
                min_dwell_s=DWELL_S,
            )
            backends = (BackendPlan(SPECULATIVE, "http://a"), BackendPlan(BASELINE, "http://b"))
            traffic.desk.reload(Plan(backends, rules, BreakerRules(), HealthRules(), RetryRules()))
            await traffic.walk(steps(9, 9), 10.0)
        assert traffic.dwelt()
        assert traffic.changes <= 1

    run(scenario)


@pytest.mark.parametrize("bounds", [{"leave_at": 5, "enter_at": 5}, {"leave_at": 4, "enter_at": 6}])
def test_h35_one_threshold_for_both_ways_cannot_be_configured(bounds: dict[str, int]) -> None:
    backends = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:1"}}
    with pytest.raises(InvalidConfig, match="enter_at"):
        config.from_mapping({"backends": backends, "routing": bounds})


# ---------------------------------------------------------------- the same over sockets, and what is said of it


class Walk:
    """Streams of one dialect under way, so many at a time; the oldest ends first, and whole."""

    def __init__(self, stage: Stage, crowd: Crowd, held: Held, sample: Sample) -> None:
        self.stage, self.crowd, self.held, self.sample = stage, crowd, held, sample
        self.running: deque[tuple[RawClient, asyncio.Event, str | None]] = deque()
        self.heads: list[Said] = []

    async def to(self, wanted: int) -> None:
        while len(self.running) < wanted:
            self.held.opened = asyncio.Event()
            client = await self.crowd.connect()
            await client.send(request(self.sample.target, self.sample.body))
            head = await client.head()
            self.heads.append(head)
            self.running.append((client, self.held.opened, head.header("x-crossover-backend")))
        while len(self.running) > wanted:
            await self.end_the_oldest()

    async def end_the_oldest(self) -> None:
        client, gate, _ = self.running.popleft()
        gate.set()
        body = b""
        while piece := await client.chunk():
            body += piece
        assert piece == b""
        assert body == b"".join((*self.sample.events, self.sample.end))
        await until(lambda: self.stage.in_flight == len(self.running))

    @property
    def went(self) -> list[str | None]:
        return [head.header("x-crossover-backend") for head in self.heads]

    def count(self, role: Role) -> int:
        return sum(1 for _, _, went in self.running if went == role)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_h35_a_walk_over_sockets_changes_once_a_dwell_moves_nobody_and_says_why(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dwell of an hour: one change is all there may be, though the count falls to one again."""
    routing = {"policy": "threshold", "leave_at": 4, "enter_at": 2, "smoothing_s": 0.0, "min_dwell_s": 3600}
    async with crowded(routing=routing, log={"level": "info"}) as (stage, crowd, held):
        walk = Walk(stage, crowd, held, sample)
        for wanted in (*WALK, 5, 4, 1, 3, 5):
            await walk.to(wanted)
            snapshot = stage.app.desk.snapshot()
            assert (snapshot.speculative.in_flight, snapshot.baseline.in_flight) == (
                walk.count(SPECULATIVE),
                walk.count(BASELINE),
            )
        assert walk.went == [SPECULATIVE] * 4 + [BASELINE] * (len(walk.went) - 4)
        last = walk.heads[-1]
        assert last.header("x-crossover-reason") == "regime"
        assert last.header("x-crossover-in-flight") == "speculative=0, baseline=4"
        assert last.header("x-crossover-because") == (
            "policy=threshold, regime=baseline, smoothed=4.00, enter_at=2, leave_at=4"
        )
        decisions = await check_what_is_told(stage, len(walk.heads))
        await walk.to(0)
        assert stage.a.cut == stage.b.cut == 0
    check_log(capsys.readouterr().out, decisions)


async def check_what_is_told(stage: Stage, decided: int) -> list[Any]:
    """On the operators' port: every decision with its numbers, which are returned, and the state behind them."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.app.admin_port}") as admin:
        decisions = (await (await admin.get("/decisions")).json())["decisions"]
        text = await (await admin.get("/metrics")).text()
    assert len(decisions) == decided
    newest = decisions[0]
    assert (newest["role"], newest["reason"], newest["because"]["regime"]) == ("baseline", "regime", "baseline")
    assert {name: newest["because"][name] for name in ("baseline_in_flight", "smoothed", "enter_at", "leave_at")} == {
        "baseline_in_flight": 4,
        "smoothed": 4.0,
        "enter_at": 2,
        "leave_at": 4,
    }
    said = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("crossover_"))
    assert float(said['crossover_changes_total{kind="regime_changed",role="baseline"}']) == 1
    assert 'crossover_changes_total{kind="regime_changed",role="speculative"}' not in said
    assert float(said['crossover_decisions_total{reason="regime",role="speculative"}']) == 4
    assert float(said['crossover_decisions_total{reason="regime",role="baseline"}']) == decided - 4
    assert float(said['crossover_regime{role="baseline"}']) == 1
    assert float(said['crossover_threshold_sequences{bound="enter_at"}']) == 2
    assert float(said['crossover_threshold_sequences{bound="leave_at"}']) == 4
    assert float(said["crossover_smoothed_in_flight"]) == 5
    assert float(said["crossover_regime_age_seconds"]) > 0
    return list(decisions)


NUMBERS = ("speculative_in_flight", "baseline_in_flight", "smoothed", "enter_at", "leave_at")


def check_log(text: str, decisions: list[Any]) -> None:
    """One change, and each request with the numbers of its own decision."""
    lines = [orjson.loads(line) for line in text.splitlines()]
    changes = [line for line in lines if line["event"] == "regime_changed"]
    assert [(line["before"], line["after"]) for line in changes] == [("speculative", "baseline")]
    settled = [line for line in lines if line["event"] == "request_settled"]
    assert {line["reason"] for line in settled} == {"regime"}
    assert all(line["role"] == line["regime"] for line in settled)
    logged = {line["request_id"]: {name: line[name] for name in NUMBERS} for line in settled}
    told = {each["request_id"]: {name: each["because"][name] for name in NUMBERS} for each in decisions}
    assert len(logged) == len(settled) == len(decisions)
    assert logged == told


async def test_h35_a_pinned_backend_over_sockets_gets_all_traffic_and_the_other_one_none_but_failover() -> None:
    """Case (a): the reason says which it was."""
    async with crowded(routing={"policy": "pinned", "pin": "baseline"}, health={"interval_s": 300}) as (
        stage,
        crowd,
        h,
    ):
        h.opened.set()
        for _ in range(2):
            asked = await crowd.of_every_kind(12)
            assert {(said.status, said.header("x-crossover-reason")) for said in await answers(asked)} == {
                (200, "pinned")
            }
        assert stage.a.requests == []
        await stage.b.close()
        client = await crowd.connect()
        await client.send(request(body=chat()))
        said = await client.answer()
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
        assert len(stage.a.requests) == 1
