"""The wires of both backends, and what a reload keeps of them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fakes.desk import Clock, desk, plan
from fakes.engine import FakeEngine
from fakes.until import until

from proxy import tasks
from proxy.dispatch import Desk
from proxy.model import ROLES, Role
from proxy.wire import pair as module
from proxy.wire.connection import Call
from proxy.wire.deadlines import Wait
from proxy.wire.pair import LineRules, Pair


class Rig:
    def __init__(self, a: FakeEngine, b: FakeEngine) -> None:
        self.a, self.b = a, b
        self.clock = Clock()
        self.desk: Desk = desk(self.clock, plan(a.url, b.url))
        self.pair = Pair(self.desk, lambda _: None)
        self.rules = {ROLES[0]: rules(a.url), ROLES[1]: rules(b.url)}

    def swap(self, url: str) -> None:
        """Take a plan over in which the baseline is elsewhere."""
        self.desk.reload(plan(self.a.url, url))
        self.rules[Role.BASELINE] = rules(url)


def rules(url: str) -> LineRules:
    return LineRules(url, interval_s=0.1, timeout_s=30.0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        rig = Rig(a, b)
        yield rig
        await rig.pair.stop()


async def test_first_connection_makes_both_lines(rig: Rig) -> None:
    assert [line.backend.role for line in rig.pair.connect(rig.rules)] == list(ROLES)


async def test_same_rules_keep_both_lines(rig: Rig) -> None:
    rig.pair.connect(rig.rules)
    assert rig.pair.connect(dict(rig.rules)) == []


async def test_backends_that_change_places_keep_their_lines(rig: Rig) -> None:
    before = rig.pair.connect(rig.rules)
    rig.desk.reload(plan(rig.b.url, rig.a.url))
    swapped = {ROLES[0]: rules(rig.b.url), ROLES[1]: rules(rig.a.url)}
    assert rig.pair.connect(swapped) == []
    assert [rig.pair.line(backend) for backend in rig.desk.backends] == before[::-1]
    assert [line.rules.url for line in before] == [rig.a.url, rig.b.url]


async def test_changed_rules_make_a_new_line_for_that_backend_alone(rig: Rig) -> None:
    rig.pair.connect(rig.rules)
    changed = {**rig.rules, Role.BASELINE: replace(rig.rules[Role.BASELINE], api_key="k")}
    assert [line.backend.role for line in rig.pair.connect(changed)] == [Role.BASELINE]


async def test_first_look_knows_a_backend_that_is_there(rig: Rig) -> None:
    for line in rig.pair.connect(rig.rules):
        await line.first_look()
    assert [rig.desk.backend(role).health.up for role in ROLES] == [True, True]


async def test_first_look_knows_a_backend_that_is_not_there(rig: Rig) -> None:
    await rig.b.close()
    for line in rig.pair.connect(rig.rules):
        await line.first_look()
    assert rig.desk.backend(Role.BASELINE).health.up is False


async def test_first_look_learns_limits(rig: Rig) -> None:
    for line in rig.pair.connect(rig.rules):
        await line.first_look()
    assert rig.desk.backend(Role.BASELINE).max_in_flight == 256


async def test_started_line_goes_on_looking(rig: Rig) -> None:
    for line in rig.pair.connect(rig.rules):
        line.start()
    await until(lambda: rig.desk.backend(Role.BASELINE).health.up, what="the backend being seen")
    rig.b.ready = False
    await until(lambda: rig.desk.backend(Role.BASELINE).health.up is False, what="the backend being seen down")


async def test_no_task_is_left_when_all_is_stopped(rig: Rig) -> None:
    before = tasks.running()
    for line in rig.pair.connect(rig.rules):
        line.start()
    await rig.pair.stop()
    assert tasks.running() == before


async def test_host_is_the_backends_own(rig: Rig) -> None:
    line = rig.pair.connect(rig.rules)[0]
    assert line.host == b"127.0.0.1:%d" % rig.a.port


async def test_dropped_backend_keeps_its_line_while_a_request_is_on_it(rig: Rig) -> None:
    rig.pair.connect(rig.rules)
    old = rig.desk.backend(Role.BASELINE)
    async with FakeEngine(role="baseline") as other:
        with rig.pair.line(old) as line:
            rig.swap(other.url)
            rig.pair.connect(rig.rules)
            assert rig.pair.line(old) is line
            await rig.pair.stop()


async def test_request_on_a_dropped_backend_goes_on(rig: Rig) -> None:
    rig.pair.connect(rig.rules)
    async with FakeEngine(role="baseline") as other:
        with rig.pair.line(rig.desk.backend(Role.BASELINE)) as line:
            rig.swap(other.url)
            rig.pair.connect(rig.rules)
            head = b"POST /generate HTTP/1.1\r\nHost: %b\r\nContent-Length: 2\r\n\r\n" % line.host
            answer = await line.upstream.send(Call("POST", head, b"{}"))
            assert (answer.status, len(rig.b.requests)) == (200, 1)
            answer.close()
        await rig.pair.stop()


async def test_waits_for_a_backend_are_found_on_every_line_that_it_has_or_had(rig: Rig) -> None:
    rig.pair.connect(rig.rules)
    backend, task = rig.desk.backend(Role.BASELINE), asyncio.current_task()
    assert task is not None
    old = rig.pair.line(backend)
    rig.rules = {**rig.rules, Role.BASELINE: replace(rig.rules[Role.BASELINE], api_key="another")}
    rig.pair.connect(rig.rules)
    new = rig.pair.line(backend)
    assert new is not old
    lines = (old, new, rig.pair.line(rig.desk.backend(Role.SPECULATIVE)))
    waits = [Wait(line.upstream.deadlines[1.0], task) for line in lines]
    assert list(rig.pair.unheard(backend)) == waits[:2]
    for wait in waits:
        wait.close()
    await rig.pair.stop()


def watching(role: Role) -> set[str]:
    """The tasks that watch a backend of that role."""
    names = {task.get_name() for task in asyncio.all_tasks() if not task.cancelling()}
    return names & {f"health {role}", f"engine poll {role}"}


async def test_dropped_backend_is_watched_until_no_request_waits_there_for_its_answer_to_begin(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETIRE_LOOK_S", 0.01)
    for line in rig.pair.connect(rig.rules):
        line.start()
    task = asyncio.current_task()
    assert task is not None
    async with FakeEngine(role="baseline") as other:
        with rig.pair.line(rig.desk.backend(Role.BASELINE)) as line:
            wait = Wait(line.upstream.deadlines[30.0], task)
            rig.swap(other.url)
            rig.pair.connect(rig.rules)
            rig.clock.now_s += module.RETIRE_AFTER_S
            await asyncio.sleep(5 * module.RETIRE_LOOK_S)  # sleeps: several looks find it waiting
            assert len(watching(Role.BASELINE)) == 2
            wait.close()
            await until(lambda: not watching(Role.BASELINE), what="its being watched no more")
        await rig.pair.stop()


async def test_line_that_another_takes_the_place_of_is_not_watched_any_more(rig: Rig) -> None:
    # Each probe that one engine leaves unanswered would count twice.
    for line in rig.pair.connect(rig.rules):
        line.start()
    rig.pair.connect({**rig.rules, Role.BASELINE: replace(rig.rules[Role.BASELINE], api_key="another")})
    assert not watching(Role.BASELINE)
    await rig.pair.stop()


async def test_line_of_a_dropped_backend_is_closed_when_nobody_uses_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETIRE_LOOK_S", 0.01)
    rig.pair.connect(rig.rules)
    old = rig.desk.backend(Role.BASELINE)
    async with FakeEngine(role="baseline") as other:
        rig.swap(other.url)
        rig.pair.connect(rig.rules)
        rig.clock.now_s += module.RETIRE_AFTER_S
        await until(lambda: _is_gone(rig.pair, old), what="the old line being closed")
        await rig.pair.stop()


def _is_gone(pair: Pair, backend: object) -> bool:
    try:
        pair.line(backend)  # type: ignore[arg-type]
    except StopIteration:
        return True
    return False
