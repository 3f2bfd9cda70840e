"""An answer that comes as its engine is found to stand still is not thrown away and made again."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.freezing import A_PROBE_S, Freezing, freezing
from fakes.held import Held
from fakes.leaping import leaping
from fakes.raw import Said
from fakes.stage import Stage
from fakes.until import until

from proxy.dispatch import Assignment
from proxy.model import Outcome, Role, Traits
from proxy.relay import TURNS
from proxy.state.backend import Backend

CHAT = "/v1/chat/completions"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
    b"",
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS)
# What comes while the engine is not seen to stand still yet, and what comes then.
FORMS = pytest.mark.parametrize(
    ("before", "then"), [(b"", PLAIN), (b"", HEAD + BODY), (HEAD, BODY)], ids=["plain", "stream", "headed stream"]
)


async def stuck_there(
    stage: Stage, frozen: Freezing, count: int = 1, *, stream: bool = False, before: bytes = b""
) -> list[asyncio.Task[Said]]:
    waits = []
    for number in range(1, count + 1):
        waits.append(asyncio.create_task(stage.ask(stream=stream)))
        await until(lambda enough=number: len(frozen.asked()) == enough, what="its being stuck")
    if before:
        frozen.asked()[0].writer.write(before)
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


@FORMS
@leaping
async def test_answer_that_comes_in_the_turn_of_the_last_missed_probe_is_the_answer_and_nobody_moves(
    before: bytes, then: bytes
) -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        answered, stuck = await stuck_there(stage, frozen, 2, stream=then != PLAIN, before=before)
        as_it_is_found(stage, lambda: frozen.asked()[0].writer.write(then))
        said = await answered
        assert (said.status, said.whole, said.header("x-crossover-backend")) == (200, True, "speculative")
        facts = await stage.ended_one()
        assert (facts.outcome, facts.attempts) == (Outcome.FINISHED, 1)
        await asyncio.sleep(A_PROBE_S)
        assert not stuck.done() and not other.requests, "an engine that has just spoken does not stand still"
        frozen.moves.set()
        assert (await stuck).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize("late", range(TURNS + 3))
@FORMS
@leaping
async def test_answer_is_passed_on_once_in_whatever_turn_it_comes(before: bytes, then: bytes, late: int) -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen, stream=then != PLAIN, before=before)
        as_it_is_found(stage, lambda: frozen.asked()[0].writer.write(then), late)
        said = await stuck
        assert (said.status, said.whole) == (200, True)
        moved = said.header("x-crossover-backend") == "baseline"
        assert moved == (len(other.requests) == 1) == ((await stage.ended_one()).attempts == 2)
        assert not (moved and late < TURNS - 1), "it had come before"
        frozen.moves.set()


# ---------------------------------------------------------------- its place elsewhere


def as_it_moves(stage: Stage, act: Callable[[], None]) -> None:
    """Have `act` called in the turn in which what waits is told to leave, behind that."""
    move = stage.app.relay._move_from

    def moved(backend: Backend) -> None:
        move(backend)
        stage.app.relay._move_from = move  # type: ignore[method-assign]
        act()

    stage.app.relay._move_from = moved  # type: ignore[method-assign]


QUEUES = pytest.mark.parametrize("most", [0, 100], ids=["no queue", "queue"])


@QUEUES
@leaping
async def test_what_moves_has_its_place_before_anybody_else_can_take_it(most: int) -> None:
    async with freezing(max_in_flight=(8, 1), queue={"max_waiting": most}) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen)
        another: list[Assignment | None] = []
        as_it_moves(stage, lambda: another.append(stage.app.admission.at_once(Traits(), "another", CHAT)))
        said = await stuck
        assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")
        assert another == [None]
        frozen.moves.set()


@QUEUES
@leaping
async def test_what_has_its_place_goes_there_though_its_engine_takes_nothing_more_from_then_on(most: int) -> None:
    async with freezing(queue={"max_waiting": most}) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen)

        def change() -> None:
            stage.app.drain_backend(Role.BASELINE, draining=True)
            stage.app.desk.tokens_flowed(stage.app.desk.backend(Role.SPECULATIVE))

        as_it_moves(stage, change)
        said = await stuck
        assert (said.status, said.header("x-crossover-backend")) == (200, "baseline")
        frozen.moves.set()


@leaping
async def test_client_that_leaves_in_the_turn_in_which_its_request_moves_leaves_no_place_taken() -> None:
    async with freezing() as (stage, frozen, other):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen)
        [trip] = stage.app.relay.trips
        task = trip.task
        assert task is not None
        as_it_moves(stage, task.cancel)
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_WAITING
        assert stage.app.desk.snapshot().baseline.in_flight == 0
        assert not other.requests
        stuck.cancel()
        frozen.moves.set()


@leaping
async def test_budget_is_spent_only_by_what_moves() -> None:
    held = Held()
    async with freezing(
        max_in_flight=(8, 1), queue={"max_waiting": 0}, retries={"reserve": 1, "max_ratio": 0.0}, b=held
    ) as (stage, frozen, _):
        frozen.moves.clear()
        [stuck] = await stuck_there(stage, frozen)
        await until(lambda: stage.app.desk.backend(Role.SPECULATIVE).silent, what="its silence")
        full = asyncio.create_task(stage.ask())
        await until(lambda: held.ids, what="the other engine being full")
        await asyncio.sleep(60.0)
        assert not stuck.done() and stage.app.desk.budget.left == 1.0
        held.opened.set()
        assert (await stuck).header("x-crossover-backend") == "baseline"
        assert stage.app.desk.budget.left == 0.0
        await full
        frozen.moves.set()
