"""Waits that last too long are ended, each at its own time, by one timer for all that have the same limit."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import pytest
from fakes.leaping import leaping, passed_s
from fakes.until import turns

from proxy.wire.deadlines import Deadlines, Queue, Wait

LIMIT_S = 600.0


class Late(Exception):
    """A wait was ended by its limit."""


@asynccontextmanager
async def limited(queue: Queue) -> AsyncIterator[None]:
    task = asyncio.current_task()
    assert task is not None
    wait = Wait(queue, task)
    try:
        yield
    except asyncio.CancelledError as error:
        if not wait.is_ours():
            raise
        raise Late from error
    finally:
        wait.close()


async def late_s(queue: Queue, after_s: float, lasts_s: float = 1e6) -> float | None:
    """How long a wait that begins then was left waiting; None when it ended by itself."""
    await asyncio.sleep(after_s)  # sleeps: on a clock that leaps
    began_s = passed_s()
    try:
        async with limited(queue):
            await asyncio.sleep(lasts_s)  # sleeps: on a clock that leaps
    except Late:
        return passed_s() - began_s
    return None


@leaping
async def test_each_wait_ends_at_its_own_limit_whenever_it_began() -> None:
    queues = Deadlines()
    waits = [late_s(queues[limit_s], begun_s) for limit_s in (LIMIT_S, 50.0) for begun_s in (0, 0, 0.001, 7, 400, 1900)]
    assert await asyncio.gather(*waits) == [pytest.approx(LIMIT_S, abs=0.01)] * 6 + [pytest.approx(50.0, abs=0.01)] * 6


@leaping
async def test_wait_that_is_over_in_time_is_left_alone_and_the_next_ones_have_their_whole_limit() -> None:
    queue = Deadlines()[LIMIT_S]
    waits = [
        late_s(queue, 0, 10),
        late_s(queue, 0, 599.9),
        late_s(queue, 5),
        late_s(queue, 20, 700),
        late_s(queue, 1300),
    ]
    limit_s = pytest.approx(LIMIT_S, abs=0.01)
    assert await asyncio.gather(*waits) == [None, None, limit_s, limit_s, limit_s]
    assert not queue.waits


async def test_many_waits_have_one_timer() -> None:
    loop = asyncio.get_running_loop()
    queue = Deadlines()[LIMIT_S]
    with patch.object(queue, "loop") as counted:
        counted.time = loop.time
        for _ in range(100):
            async with limited(queue), limited(queue):
                pass
    assert counted.call_at.call_count == 1


async def test_cancellation_by_others_in_the_same_turn_is_theirs() -> None:
    queue = Deadlines()[LIMIT_S]

    async def wait() -> None:
        async with limited(queue):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await turns()
    task.cancel()
    next(iter(queue.waits)).end()
    with pytest.raises(asyncio.CancelledError):
        await task


@leaping
async def test_forsaken_wait_ends_at_once_and_the_others_at_their_limit() -> None:
    queue = Deadlines()[LIMIT_S]
    tasks = [asyncio.ensure_future(late_s(queue, begun_s)) for begun_s in (0, 1, 2)]
    await asyncio.sleep(10)
    list(queue.waits)[1].forsake()
    limit_s = pytest.approx(LIMIT_S, abs=0.01)
    assert await asyncio.gather(*tasks) == [limit_s, 9, limit_s]


async def test_unheard_are_the_present_waits_of_every_limit_of_which_nothing_has_come() -> None:
    deadlines = Deadlines()
    task = asyncio.current_task()
    assert task is not None
    waits = [Wait(deadlines[within_s], task) for within_s in (LIMIT_S, LIMIT_S, 50.0, LIMIT_S, 50.0)]
    waits[0].heard = True
    waits[1].close()
    heads = [asyncio.get_running_loop().create_future() for _ in range(2)]
    waits[3].come, waits[4].come = (head.done for head in heads)
    heads[1].set_result(None)  # its task has not been told yet
    assert list(deadlines.unheard()) == [waits[3], waits[2], waits[4]]
    assert [wait.has_come() for wait in deadlines.unheard()] == [False, False, True]
    for wait in (waits[0], *waits[2:]):
        wait.close()
    assert list(deadlines.unheard()) == []


@pytest.mark.parametrize("end", ["in time", "too late", "forsaken", "cancelled"])
async def test_wait_that_is_over_keeps_nothing_alive(end: str) -> None:
    """The frames that a cancelled task keeps would keep the wait, and the wait the task."""
    queue = Deadlines()[LIMIT_S]
    came = asyncio.Event()

    async def waiting() -> None:
        task = asyncio.current_task()
        assert task is not None
        wait = Wait(queue, task)
        del task
        try:
            await came.wait()
        finally:
            wait.close()

    gc.collect()
    gc.disable()
    try:
        task = asyncio.ensure_future(waiting())
        await turns()
        wait = next(iter(queue.waits))
        {"in time": came.set, "too late": wait.end, "forsaken": wait.forsake, "cancelled": task.cancel}[end]()
        del wait
        await asyncio.wait([task])
        gone = weakref.ref(task)
        del task
        await turns()
        assert gone() is None
    finally:
        gc.enable()
