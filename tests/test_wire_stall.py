"""Silence in the middle of an answer is noticed; a slow client is not taken for it."""

import asyncio

from fakes.until import until
from fakes.waiting import leaping

from proxy.wire.stall import StallGuard

STALL_S = 0.03


@leaping
async def test_guard_calls_when_a_read_waits_too_long() -> None:
    called = asyncio.Event()
    guard = StallGuard(STALL_S, called.set)
    guard.waiting()
    async with asyncio.timeout(2):
        await called.wait()
    assert guard.stalled


@leaping
async def test_guard_says_nothing_while_no_read_waits() -> None:
    called: list[int] = []
    guard = StallGuard(STALL_S, lambda: called.append(1))
    guard.waiting()
    guard.came()
    await asyncio.sleep(3 * STALL_S)
    guard.close()
    assert not called, "a slow client was taken for a silent backend"


@leaping
async def test_guard_measures_each_read_anew() -> None:
    called: list[int] = []
    guard = StallGuard(2 * STALL_S, lambda: called.append(1))
    for _ in range(6):
        guard.waiting()
        await asyncio.sleep(STALL_S / 2)
        guard.came()
    guard.close()
    assert not called


@leaping
async def test_guard_calls_once() -> None:
    called: list[int] = []
    guard = StallGuard(STALL_S, lambda: called.append(1))
    guard.waiting()
    await until(lambda: called, what="the guard's call")
    await asyncio.sleep(3 * STALL_S)
    assert called == [1]


@leaping
async def test_guard_is_silent_after_it_was_closed() -> None:
    called: list[int] = []
    guard = StallGuard(STALL_S, lambda: called.append(1))
    guard.waiting()
    guard.close()
    await asyncio.sleep(3 * STALL_S)
    assert not called
