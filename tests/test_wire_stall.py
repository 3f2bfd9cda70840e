"""A passage that stands still is noticed, and the right side is held to it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from fakes.waiting import leaping

from proxy.wire.stall import Side, StallGuard

STALL_S = 3.0
UNREAD_S = 10.0


@contextlib.contextmanager
def guarded(heard_s: Callable[[], float] = lambda: -1.0) -> Iterator[tuple[StallGuard, list[str]]]:
    called: list[str] = []
    backend, client = Side(STALL_S, lambda: called.append("backend")), Side(UNREAD_S, lambda: called.append("client"))
    guard = StallGuard(backend, client, clock=asyncio.get_running_loop().time, heard_s=heard_s)
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


@leaping
async def test_client_that_takes_nothing_for_its_limit_is_stalled_and_the_backend_is_not() -> None:
    with guarded() as (guard, called):
        guard.room()
        guard.full()
        await asyncio.sleep(UNREAD_S - 0.1)
        assert not called, "a slow client was taken for a silent backend"
        await asyncio.sleep(2 * STALL_S)
        assert called == ["client"]


@leaping
async def test_each_read_and_each_write_is_measured_anew() -> None:
    with guarded() as (guard, called):
        for _ in range(6):
            guard.room()
            await asyncio.sleep(STALL_S / 2)
            guard.full()
            await asyncio.sleep(UNREAD_S / 2)
        assert not called


@leaping
async def test_client_that_does_not_take_the_news_of_a_stalled_backend_is_stalled_as_well() -> None:
    with guarded() as (guard, called):
        guard.room()
        await asyncio.sleep(2 * STALL_S)
        guard.full()
        await asyncio.sleep(2 * UNREAD_S)
        assert called == ["backend", "client"]


@leaping
async def test_nothing_is_called_after_the_guard_was_closed() -> None:
    with guarded() as (guard, called):
        guard.room()
    await asyncio.sleep(5 * UNREAD_S)
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
