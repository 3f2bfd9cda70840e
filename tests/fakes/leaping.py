"""A loop with real sockets that never waits: when they are quiet too, its clock leaps to the next timer.

So a case that speaks of minutes takes milliseconds with its own numbers. Its clock moves by leaps alone, and a slow
machine adds nothing to it. Everything that talks must live in this loop: threads and processes are not waited for.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from heapq import heappop
from types import SimpleNamespace
from typing import ParamSpec
from unittest.mock import patch

from fakes.loops import EndingLoop

P = ParamSpec("P")

# Bytes on loopback arrive within the call that sends them; this is for a kernel that hands them over late. It is spent
# at every leap, and twenty minutes have thousands.
QUIET_S = 0.0001
# What a client waits for, at most: longer than any wait of a case.
DAYS_S = 1e6


class LeapingSocketLoop(asyncio.SelectorEventLoop):
    """Leaps only while no callback is due and no socket has anything to say."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt_s = 0.0
        self._began_s = time.monotonic()

    def time(self) -> float:
        return self._began_s + self.leapt_s

    def _run_once(self) -> None:
        if not self._ready and not self._stopping and self._is_quiet():
            self._leap()
        super()._run_once()

    def _leap(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._timer_cancelled_count -= 1
            heappop(self._scheduled)._scheduled = False
        if self._scheduled:
            self.leapt_s += max(0.0, self._scheduled[0].when() - self.time())

    def _is_quiet(self) -> bool:
        if self._selector.select(0):
            return False
        time.sleep(QUIET_S)  # sleeps: QUIET_S says what for
        return not self._selector.select(0)


def passed_s() -> float:
    """Seconds that have passed on such a loop's clock; the difference of two is what a wait took."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingSocketLoop)
    return loop.leapt_s


def leaping(scenario: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test on such a loop, with the proxy's own clock on it as well."""

    @functools.wraps(scenario)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def all_of_it() -> None:
            clock = asyncio.get_running_loop().time
            with (
                patch("proxy.app.time", SimpleNamespace(monotonic=clock, time=time.time)),
                patch("fakes.raw.WITHIN_S", DAYS_S),
            ):
                await scenario(*args, **kwargs)

        with asyncio.Runner(loop_factory=LeapingSocketLoop) as runner:
            runner.run(all_of_it())

    return test


def leaping_where(
    silent: Callable[..., bool],
) -> Callable[[Callable[P, Awaitable[None]]], Callable[P, None]]:
    """Run a test on such a loop where `silent` says of its parameters that something is waited for, and on the loop of
    the product elsewhere."""

    def decorate(scenario: Callable[P, Awaitable[None]]) -> Callable[P, None]:
        leaps = leaping(scenario)

        @functools.wraps(scenario)
        def test(*args: P.args, **kwargs: P.kwargs) -> None:
            async def all_of_it() -> None:
                await scenario(*args, **kwargs)

            if silent(**kwargs):
                return leaps(*args, **kwargs)
            with asyncio.Runner(loop_factory=EndingLoop) as runner:
                return runner.run(all_of_it())

        return test

    return decorate
