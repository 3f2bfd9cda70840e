"""An answer that comes as its engine is found to stand still is not thrown away and made again."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.freezing import A_PROBE_S, Freezing, freezing
from fakes.leaping import leaping
from fakes.raw import Said
from fakes.stage import Stage
from fakes.until import until

from proxy.model import Outcome
from proxy.relay import TURNS
from proxy.state.backend import Backend

PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
    b"",
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS
)


async def stuck_there(stage: Stage, frozen: Freezing, count: int, *, stream: bool) -> list[asyncio.Task[Said]]:
    waits = []
    for number in range(1, count + 1):
        waits.append(asyncio.create_task(stage.ask(stream=stream)))
        await until(lambda enough=number: len(frozen.asked()) == enough, what="its being stuck")
    return waits


def later(turns: int, act: Callable[[], None]) -> None:
    if turns:
        asyncio.get_running_loop().call_soon(later, turns - 1, act)
    else:
        act()


def as_it_is_found(stage: Stage, act: Callable[[], None], late: int = 0) -> None:
    """Have `act` called once, so many turns of the loop after an engine is found to stand still."""
    rescue = stage.app.desk.on_standstill

    def found(backend: Backend) -> None:
        stage.app.desk.on_standstill = rescue
        later(late, act)
        rescue(backend)

    stage.app.desk.on_standstill = found


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@leaping
async def test_answer_that_comes_in_the_turn_of_the_last_missed_probe_is_the_answer_and_nobody_moves(
    stream: bool,
) -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        answered, stuck = await stuck_there(stage, frozen, 2, stream=stream)
        as_it_is_found(stage, lambda: frozen.asked()[0].writer.write(STREAM if stream else PLAIN))
        said = await answered
        assert (said.status, said.whole, said.header("x-crossover-backend")) == (200, True, "speculative")
        facts = await stage.ended_one()
        assert (facts.outcome, facts.attempts) == (Outcome.FINISHED, 1)
        await asyncio.sleep(A_PROBE_S)
        assert not stuck.done() and not other.requests, "an engine that has just spoken does not stand still"
        frozen.moves.set()
        assert (await stuck).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize("late", range(TURNS + 3))
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@leaping
async def test_answer_is_passed_on_once_in_whatever_turn_it_comes(stream: bool, late: int) -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen, 1, stream=stream)
        as_it_is_found(stage, lambda: frozen.asked()[0].writer.write(STREAM if stream else PLAIN), late)
        said = await stuck
        assert (said.status, said.whole) == (200, True)
        moved = said.header("x-crossover-backend") == "baseline"
        assert moved == (len(other.requests) == 1) == ((await stage.ended_one()).attempts == 2)
        assert not (moved and late < TURNS - 1), "it had come before"
        frozen.moves.set()
