"""What a probe makes of an engine's pages."""

import asyncio

import pytest
from fakes.control import FakeControl, Said
from fakes.desk import Clock, desk
from fakes.leaping import LeapingSocketLoop, leaping
from fakes.until import turns

from proxy.errors import BackendBroken, BackendUnreachable, FirstByteTimeout, OutOfSockets, UpstreamError
from proxy.model import Change, ChangeKind, Role
from proxy.protocol.routes import EngineKind
from proxy.routing.health import Evidence
from proxy.wire.control import Reply
from proxy.wire.health import DEEP_EVERY_S, DEEP_PROBE_S, LATE_S, STEP_S, HealthProbe, Late


class Rig:
    def __init__(self, engine: EngineKind = EngineKind.SGLANG, **pages: Said | UpstreamError) -> None:
        self.clock = Clock()
        self.desk = desk(self.clock)
        self.backend = self.desk.backend(Role.BASELINE)
        self.control = FakeControl(**pages)
        self.probe = HealthProbe(self.desk, self.backend, self.control, engine, interval_s=1, timeout_s=5)

    async def probes(self, count: int) -> list[Evidence | None]:
        return [await self.probe.probe() for _ in range(count)]


async def test_ready_engine_is_a_hit() -> None:
    assert await Rig(ready=Said()).probe.probe() is Evidence.HIT


async def test_ready_engine_is_not_asked_for_its_health() -> None:
    """On SGLang that page runs a generation."""
    rig = Rig(ready=Said())
    await rig.probes(20)
    assert set(rig.control.asked) == {"/ready"}


@pytest.mark.parametrize("engine", list(EngineKind))
@pytest.mark.parametrize(
    ("failure", "evidence"), [(BackendUnreachable("no"), Evidence.REFUSED), (BackendBroken("late"), Evidence.MISS)]
)
async def test_engine_that_is_not_there_is_told_from_one_that_does_not_answer(
    failure: UpstreamError, evidence: Evidence, engine: EngineKind
) -> None:
    rig = Rig(engine, ready=failure, health=failure)
    rig.control.pages["/v1/models"] = failure
    assert await rig.probe.probe() is evidence


async def test_failing_page_is_a_miss() -> None:
    assert await Rig(ready=Said(500)).probe.probe() is Evidence.MISS


async def test_page_behind_a_key_is_a_hit() -> None:
    assert await Rig(ready=Said(401)).probe.probe() is Evidence.HIT


async def test_engine_that_says_no_is_not_ready() -> None:
    assert await Rig(ready=Said(503), health=Said(503)).probe.probe() is Evidence.NOT_READY


async def test_engine_that_says_no_and_generates_is_a_hit() -> None:
    """It was marked unhealthy by a probe that starved, and stays so until one succeeds."""
    assert await Rig(ready=Said(503), health=Said()).probe.probe() is Evidence.HIT


async def test_generating_probe_is_rare_while_the_engine_says_no() -> None:
    rig = Rig(ready=Said(503), health=Said(503))
    await rig.probes(20)
    assert rig.control.asked.count("/health") == 1


async def test_engine_still_counts_as_not_ready_between_two_generating_probes() -> None:
    rig = Rig(ready=Said(503), health=Said())
    assert await rig.probes(2) == [Evidence.HIT, Evidence.NOT_READY]


async def test_generating_probe_comes_again_after_its_pause() -> None:
    rig = Rig(ready=Said(503), health=Said(503))
    await rig.probes(1)
    rig.clock.now_s += DEEP_EVERY_S
    await rig.probes(1)
    assert rig.control.asked.count("/health") == 2


async def test_generating_probe_has_the_engines_own_patience() -> None:
    rig = Rig(ready=Said(503), health=Said(503))
    await rig.probes(1)
    assert rig.control.limits_s == [5, DEEP_PROBE_S]


@pytest.mark.parametrize("status", [404, 405])
async def test_old_engine_is_asked_for_its_health(status: int) -> None:
    assert await Rig(ready=Said(status), health=Said()).probe.probe() is Evidence.HIT


async def test_old_engine_is_not_asked_again_for_what_it_has_not() -> None:
    rig = Rig(ready=Said(404), health=Said())
    await rig.probes(5)
    assert rig.control.asked.count("/ready") == 1


async def test_old_engine_is_asked_for_its_ready_page_again_after_a_while() -> None:
    """It may have been replaced by a newer one between two probes."""
    rig = Rig(ready=Said(404), health=Said())
    await rig.probes(2)
    rig.control.pages["/ready"] = Said()
    rig.clock.now_s += DEEP_EVERY_S
    assert await rig.probes(3) == [Evidence.HIT] * 3
    assert rig.control.asked[-3:] == ["/ready"] * 3


async def test_old_engine_is_asked_for_its_ready_page_again_once_it_was_gone() -> None:
    rig = Rig(ready=Said(404), health=BackendUnreachable("no"))
    await rig.probes(1)
    rig.control.pages["/ready"] = Said()
    assert await rig.probes(1) == [Evidence.HIT]


async def test_green_page_is_not_asked_while_generations_are_silent() -> None:
    rig = Rig(ready=Said(), health=Said(503))
    rig.probe.tell(Evidence.HIT)
    rig.probe.tell(Evidence.SILENCE)
    rig.probe.tell(await rig.probe.probe())
    assert (rig.control.asked, rig.backend.health.up) == (["/health"], False)


async def test_green_page_that_was_asked_before_a_generations_silence_takes_no_doubt_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(ready=Said(), health=Said(503))
    rig.probe.tell(Evidence.HIT)
    get = rig.control.get

    async def meanwhile(path: str, *, within_s: float) -> Reply:
        reply = await get(path, within_s=within_s)
        rig.probe.tell(Evidence.SILENCE)
        return reply

    monkeypatch.setattr(rig.control, "get", meanwhile)
    rig.probe.tell(await rig.probe.probe())
    assert rig.backend.health.doubtful


async def test_green_page_is_believed_again_after_the_engine_has_generated() -> None:
    rig = Rig(ready=Said(), health=Said())
    rig.probe.tell(Evidence.HIT)
    rig.probe.tell(Evidence.SILENCE)
    for _ in range(2):
        rig.probe.tell(await rig.probe.probe())
    assert rig.control.asked == ["/health", "/ready"]


async def test_old_engine_tells_nothing_between_two_generating_probes() -> None:
    assert await Rig(ready=Said(404), health=Said()).probes(2) == [Evidence.HIT, None]


async def test_old_engine_that_is_gone_is_missed_at_every_probe() -> None:
    """No generation runs there that asking again could pile up on."""
    rig = Rig(ready=Said(404), health=BackendUnreachable("no"))
    assert await rig.probes(3) == [Evidence.REFUSED] * 3


async def test_old_engine_that_hangs_is_missed_once_in_a_while() -> None:
    rig = Rig(ready=Said(404), health=BackendBroken("late"))
    assert await rig.probes(3) == [Evidence.MISS, None, None]


@pytest.mark.parametrize(
    ("page", "evidence"),
    [(Said(), Evidence.HIT), (Said(503), Evidence.NOT_READY), (BackendBroken("late"), Evidence.MISS)],
)
async def test_vllm_is_asked_for_its_health_each_time(page: Said | UpstreamError, evidence: Evidence) -> None:
    assert await Rig(EngineKind.VLLM, health=page).probes(2) == [evidence, evidence]


@pytest.mark.parametrize(
    ("page", "evidence"),
    [(Said(), Evidence.HIT), (Said(503), Evidence.NOT_READY), (BackendBroken("late"), Evidence.MISS)],
)
async def test_llamacpp_is_asked_for_its_health_each_time(page: Said | UpstreamError, evidence: Evidence) -> None:
    """It answers 503 while it reads its weights."""
    rig = Rig(EngineKind.LLAMACPP, health=page)
    assert await rig.probes(2) == [evidence, evidence]
    assert set(rig.control.asked) == {"/health"}


@pytest.mark.parametrize(
    ("page", "evidence"),
    [(Said(), Evidence.HIT), (Said(401), Evidence.HIT), (Said(404), Evidence.HIT), (Said(500), Evidence.NOT_READY)],
)
async def test_a_server_of_unknown_kind_is_asked_for_its_models(page: Said, evidence: Evidence) -> None:
    rig = Rig(EngineKind.OPENAI)
    rig.control.pages["/v1/models"] = page
    assert await rig.probes(2) == [evidence, evidence]
    assert set(rig.control.asked) == {"/v1/models"}


async def test_evidence_reaches_the_desk() -> None:
    rig = Rig()
    rig.probe.tell(Evidence.HIT)
    assert rig.backend.health.up is True


async def test_no_evidence_changes_nothing() -> None:
    rig = Rig()
    before = rig.backend.health
    rig.probe.tell(None)
    assert rig.backend.health is before


# ---------------------------------------------------------------- answers that are late


class SlowControl(FakeControl):
    """Every page takes so long."""

    after_s = 0.0

    async def get(self, path: str, *, within_s: float) -> Reply:
        if self.after_s >= within_s:
            await asyncio.sleep(within_s)
            raise FirstByteTimeout("late")
        await asyncio.sleep(self.after_s)
        return await super().get(path, within_s=within_s)


class SlowRig(Rig):
    """An engine whose pages take as long as a test says."""

    def __init__(self, **pages: Said | UpstreamError) -> None:
        super().__init__(**pages)
        self.slow = SlowControl(**pages)
        self.probe = HealthProbe(self.desk, self.backend, self.slow, EngineKind.SGLANG, interval_s=1, timeout_s=5)
        self.desk.observe_health(self.backend, Evidence.HIT)
        self.silent_s: list[float] = []
        self.desk.on_change = self._note

    def _note(self, change: Change) -> None:
        if change.kind is ChangeKind.SILENCE:
            self.silent_s.append(asyncio.get_running_loop().time() - self.began_s)

    async def take(self, after_s: float) -> list[float]:
        """The instants within one probe at which the backend became silent and spoke again."""
        self.slow.after_s, self.began_s = after_s, asyncio.get_running_loop().time()
        self.silent_s.clear()
        await self.probe.probe()
        return [round(each, 6) for each in self.silent_s]


@leaping
async def test_engine_is_silent_from_the_moment_its_answer_is_late_until_it_comes() -> None:
    rig = SlowRig(ready=Said())
    assert await rig.take(0.01) == []
    assert await rig.take(3.0) == [LATE_S, 3.0]
    assert not rig.backend.silent


@leaping
async def test_engine_stays_silent_over_its_misses() -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    assert await rig.take(9.0) == [LATE_S]
    assert await rig.take(9.0) == []
    assert rig.backend.silent
    assert await rig.take(0.01) == [0.01]


@leaping
async def test_one_standstill_puts_off_the_finding_of_the_next_by_as_much_as_it_took_to_find_and_no_more() -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    assert await rig.take(4.9) == [LATE_S, 4.9]
    assert await rig.take(4.9) == [2.0 * LATE_S, 4.9]


@leaping
async def test_page_that_has_become_slow_is_known_after_some_answers() -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    assert [len(await rig.take(3.0)) for _ in range(4)] == [2, 2, 0, 0]


@pytest.mark.parametrize("after_s", [1.1, 2.4, 4.9])
@leaping
async def test_engine_whose_page_is_always_slow_is_never_silent(after_s: float) -> None:
    rig = SlowRig(ready=Said())
    assert [await rig.take(after_s) for _ in range(3)] == [[], [], []]


@leaping
async def test_anything_that_comes_while_a_probe_is_unanswered_keeps_the_engine_from_being_silent() -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    asyncio.get_running_loop().call_later(0.5, rig.desk.tokens_flowed, rig.backend)
    assert await rig.take(3.0) == []


@leaping
async def test_engine_that_refuses_its_probe_is_gone_and_not_silent() -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    rig.slow.pages["/ready"] = BackendUnreachable("no")
    assert await rig.take(0.01) == []
    assert not rig.backend.silent


@leaping
async def test_page_that_generates_has_longer() -> None:
    rig = SlowRig(health=Said())
    for after_s, silent_s in ((1.0, []), (4.0, []), (9.0, [8.0, 9.0]), (1.0, [])):
        rig.desk.observe_health(rig.backend, Evidence.SILENCE)
        rig.clock.now_s += DEEP_EVERY_S
        assert await rig.take(after_s) == silent_s


@pytest.mark.parametrize("still_s", [1.0, 1.2, 7.0])
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.6])
@leaping
async def test_time_in_which_this_process_stood_still_is_not_the_engines(still_s: float, after_s: float) -> None:
    """But for the step in which it began, whose length counts however late it ends."""
    loop, told = asyncio.get_running_loop(), []
    assert isinstance(loop, LeapingSocketLoop)
    late, began_s = Late(1.0, lambda: told.append(loop.time() - began_s)), loop.time()
    await asyncio.sleep(after_s)
    loop.leapt_s += still_s
    await asyncio.sleep(0.9 - after_s)
    assert told == []
    await asyncio.sleep(after_s + STEP_S)
    [told_s] = told
    assert still_s + 1.0 - 1e-6 <= told_s <= still_s + 1.0 + STEP_S
    late.cancel()


@pytest.mark.parametrize(
    ("last_s", "over", "ran"), [(STEP_S - 0.01, False, True), (STEP_S, True, True), (3 * STEP_S, False, False)]
)
@leaping
async def test_time_that_is_over_in_this_turn_is_told_once_before_its_timer_has_come(
    last_s: float, over: bool, ran: bool
) -> None:
    loop, told = asyncio.get_running_loop(), []
    assert isinstance(loop, LeapingSocketLoop)
    late = Late(4 * STEP_S, lambda: told.append(True))
    await asyncio.sleep(3 * STEP_S)
    await turns()
    loop.leapt_s += last_s
    assert [late.ran(), late.ran()] == [ran, ran]
    late.cancel()
    await asyncio.sleep(8 * STEP_S)
    assert told == [True] * over


@leaping
async def test_a_step_that_ends_a_little_late_counts() -> None:
    loop, told = asyncio.get_running_loop(), []
    assert isinstance(loop, LeapingSocketLoop)
    late, began_s = Late(1.0, lambda: told.append(loop.time() - began_s)), loop.time()
    loop.leapt_s += 2 * STEP_S
    await asyncio.sleep(1.0)
    assert told == [pytest.approx(1.0)]
    late.cancel()


@pytest.mark.parametrize(
    ("result", "count"),
    [
        (None, 2),
        (FirstByteTimeout("no connection"), 2),
        (BackendUnreachable("no"), 0),
        (BackendBroken("broke off"), 0),
        (Said(500), 0),
    ],
    ids=["nothing came", "no connection in less time", "refused", "broken", "an answer"],
)
@leaping
async def test_probes_are_unanswered_in_a_row_that_get_nothing_of_any_kind(
    result: Said | UpstreamError | None, count: int
) -> None:
    rig = SlowRig(ready=Said())
    await rig.take(0.01)
    await rig.take(9.0)
    if result is not None:
        rig.slow.pages["/ready"] = result
    await rig.take(9.0 if result is None else 0.01)
    assert rig.backend.unanswered == count


@pytest.mark.parametrize("engine", list(EngineKind))
async def test_probe_for_which_the_proxy_has_no_socket_says_nothing(engine: EngineKind) -> None:
    failure = OutOfSockets("no file")
    rig = Rig(engine, ready=failure, health=failure)
    rig.control.pages["/v1/models"] = failure
    assert await rig.probes(3) == [None] * 3
