"""A passage whose backend stands still is noticed, and a slow client is not taken for one."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from fakes.waiting import leaping

from proxy.wire.stall import StallGuard

STALL_S = 3.0


@contextlib.contextmanager
def guarded(heard_s: Callable[[], float] = lambda: -1.0) -> Iterator[tuple[StallGuard, list[str]]]:
    called: list[str] = []
    guard = StallGuard(
        STALL_S, lambda: called.append("backend"), clock=asyncio.get_running_loop().time, heard_s=heard_s
    )
    try:
        yield guard, called
    finally:
        guard.close()


@leaping
async def test_backend_that_says_nothing_for_its_limit_is_stalled_once() -> None:
    with guarded() as (guard, called):
        guard.room()
        await asyncio.sleep(STALL_S - 0.1)
        assert not called
        await asyncio.sleep(5 * STALL_S)
        assert called == ["backend"]
        assert guard.stalled


@leaping
async def test_backend_is_not_stalled_while_its_client_takes_nothing() -> None:
    with guarded() as (guard, called):
        guard.room()
        guard.full()
        await asyncio.sleep(10 * STALL_S)
        assert not called, "a slow client was taken for a silent backend"
        guard.room()
        await asyncio.sleep(STALL_S - 0.1)
        assert not called, "the silence before was counted"
        await asyncio.sleep(2 * STALL_S)
        assert called == ["backend"]


@leaping
async def test_each_wait_is_measured_anew() -> None:
    with guarded() as (guard, called):
        for _ in range(6):
            guard.room()
            await asyncio.sleep(STALL_S / 2)
            guard.full()
            await asyncio.sleep(STALL_S / 2)
        assert not called


@leaping
async def test_nothing_is_called_after_the_guard_was_closed() -> None:
    with guarded() as (guard, called):
        guard.room()
    await asyncio.sleep(5 * STALL_S)
    assert not called


@leaping
async def test_backend_that_says_something_in_time_is_never_stalled() -> None:
    clock = asyncio.get_running_loop().time
    heard = [clock()]
    with guarded(lambda: heard[-1]) as (_, called):
        for _ in range(4):
            await asyncio.sleep(STALL_S - 0.1)
            heard.append(clock())
        assert not called
        await asyncio.sleep(2 * STALL_S)
        assert called == ["backend"]
