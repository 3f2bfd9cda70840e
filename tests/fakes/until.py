"""Waiting for what other tasks bring about: the one place where a test may sleep."""

import asyncio
from collections.abc import Awaitable, Callable

LOOK_EVERY_S = 0.01
# Turns of the loop to look at each before looking every LOOK_EVERY_S: most things come within a few.
EAGER_LOOKS = 20


async def until(holds: Callable[[], object], within_s: float = 30.0, *, what: str = "the condition") -> None:
    """Return as soon as `holds()` is true; fail after `within_s` seconds, naming `what`."""
    loop = asyncio.get_running_loop()
    ends_at_s = loop.time() + within_s
    looks = 0
    while not holds():
        assert loop.time() < ends_at_s, f"{what} did not come true within {within_s:g} s"
        looks += 1
        await asyncio.sleep(0 if looks < EAGER_LOOKS else LOOK_EVERY_S)


async def until_told(holds: Callable[[], Awaitable[object]], within_s: float = 30.0) -> None:
    """The same where the answer has to be asked for."""
    async with asyncio.timeout(within_s):
        while not await holds():  # noqa: ASYNC110 - it is another process that is waited for
            await asyncio.sleep(LOOK_EVERY_S)


async def turns(count: int = 5) -> None:
    """Let every task that is ready run, `count` times over."""
    for _ in range(count):
        await asyncio.sleep(0)
