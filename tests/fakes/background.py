"""Runs an async context in a thread with a loop of its own: for clients that block, and for other programs."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 60.0


@contextlib.contextmanager
def in_background(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter `context` in a thread, give what it gives, and leave it there at the end."""
    entered: list[T] = []
    ready, leave = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    failures: list[BaseException] = []

    async def stay() -> None:
        loops.append(asyncio.get_running_loop())
        async with context as value:
            entered.append(value)
            ready.set()
            await leave.wait()

    def run() -> None:
        try:
            asyncio.run(stay())
        except BaseException as error:  # noqa: BLE001 - raised again where the thread was started
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="background", daemon=True)
    thread.start()
    assert ready.wait(WITHIN_S), "the background did not start"
    try:
        if entered:
            yield entered[0]
    finally:
        if thread.is_alive():
            loops[0].call_soon_threadsafe(leave.set)
        thread.join(WITHIN_S)
    if failures:
        raise failures[0]
