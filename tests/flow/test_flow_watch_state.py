"""How often a running proxy makes its whole status for those who watch, and that they miss nothing of it."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from fakes.events import events
from fakes.held import Held
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import watch
from proxy.model import Role
from proxy.watch.due import EVERY_TURNS


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns come when the test takes one."""
    start = watch.Watch.start
    monkeypatch.setattr(watch.Watch, "start", lambda self: start(self, every_s=3600.0))
    return iter(())


class Reader:
    """One who watches, and what it has been told of the state."""

    def __init__(self, stage: Stage, answer: aiohttp.ClientResponse) -> None:
        self._watch = stage.app.watch
        self._events = events(answer)
        self.states: list[dict[str, Any]] = []

    async def begin(self) -> None:
        name, state = await anext(self._events)
        assert name == "state"
        self.states.append(state)

    async def turns(self, count: int) -> int:
        """Takes so many turns; how many states came with them."""
        before = len(self.states)
        for _ in range(count):
            self._watch.turn()
        self._watch.stream.publish(b"event: end\ndata: {}\n\n")
        async for name, told in self._events:
            if name == "end":
                break
            if name == "state":
                self.states.append(told)
        return len(self.states) - before


@contextlib.asynccontextmanager
async def reading(stage: Stage) -> AsyncIterator[Reader]:
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.get(f"http://127.0.0.1:{stage.app.admin_port}/stream") as answer,
    ):
        reader = Reader(stage, answer)
        await reader.begin()
        await reader.turns(EVERY_TURNS + 1)  # what the start brought is told
        yield reader


def counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each whole status that is made from now on."""
    made: list[int] = []
    monkeypatch.setattr(stage.app.watch, "_status", lambda: made.append(1) or stage.app.status())
    return made


async def test_in_calm_a_fifth_of_the_turns_makes_a_whole_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage, reading(stage) as reader:
        made = counted(stage, monkeypatch)
        assert await reader.turns(10 * EVERY_TURNS) == 10
        assert len(made) == 10


async def test_it_is_made_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage, reading(stage) as one, reading(stage), reading(stage):
        made = counted(stage, monkeypatch)
        await one.turns(10 * EVERY_TURNS)
        assert len(made) == 10


async def test_what_an_operator_does_is_in_the_state_of_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage, reading(stage) as reader:
        made = counted(stage, monkeypatch)
        stage.app.pin(Role.BASELINE)
        assert await reader.turns(1) == 1
        assert reader.states[-1]["pinned"] == "baseline"
        stage.app.drain_backend(Role.SPECULATIVE, draining=True)
        assert await reader.turns(1) == 1
        assert reader.states[-1]["backends"][0]["draining"] is True
        assert len(made) == 2


async def test_requests_that_wait_are_in_the_state_of_the_next_turn() -> None:
    held = Held()
    async with (
        staged(held, held, max_in_flight=1) as stage,
        reading(stage) as reader,
        RawClient(stage.app.port) as one,
        RawClient(stage.app.port) as two,
        RawClient(stage.app.port) as three,
    ):
        for client in (one, two, three):
            await client.send(request("/v1/chat/completions", chat()))
        await until(lambda: stage.app.admission.waiting == 1)
        assert await reader.turns(1) == 1
        assert [each["code"] for each in reader.states[-1]["troubles"]] == ["waiting"]
        held.opened.set()
        await until(lambda: stage.in_flight == 0)
        await reader.turns(EVERY_TURNS)
        assert reader.states[-1]["troubles"] == []


async def test_what_nothing_tells_of_is_in_the_state_five_turns_later() -> None:
    async with staged() as stage, reading(stage) as reader:
        stage.app.refused = ("crossover.yaml:3: it is wrong; mend it",)
        await reader.turns(EVERY_TURNS)
        assert reader.states[-1]["reload_failed"] is True
