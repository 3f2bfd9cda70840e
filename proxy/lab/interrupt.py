"""Ends a long measurement at the first Ctrl-C with what there is, and keeps a progress line meanwhile."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from proxy.tasks import end, spawn

# The shell's word for "ended by SIGINT"; the figures so far are printed all the same.
EXIT_INTERRUPTED = 130

_REDRAW_S = 0.2

# Where nobody watches, a log: often enough to see that it goes on.
_LOG_EVERY_S = 30.0


async def until_interrupted(coro: Coroutine[Any, Any, None], name: str) -> bool:
    """Run to the end or to the first Ctrl-C; whether it was that. A second Ctrl-C has its usual effect."""
    working = spawn(coro, name=name)
    try:
        with _on_interrupt(working.cancel):
            await asyncio.wait([working])
    finally:
        await end(working)
    if working.cancelled():
        return True
    working.result()
    return False


@asynccontextmanager
async def progress(line: Callable[[], str | None], name: str) -> AsyncIterator[None]:
    """Keep what `line` says on standard error up to date and wipe it at the end; where that is no terminal, say it now
    and then."""
    watching = spawn(_redraw(line) if sys.stderr.isatty() else _log(line), name=name)
    try:
        yield
    finally:
        await end(watching)


async def _redraw(line: Callable[[], str | None]) -> None:
    try:
        while True:
            text = line()
            if text is not None:
                sys.stderr.write(f"\r\x1b[K{text}")
                sys.stderr.flush()
            await asyncio.sleep(_REDRAW_S)
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


async def _log(line: Callable[[], str | None]) -> None:
    while True:
        await asyncio.sleep(_LOG_EVERY_S)
        text = line()
        if text is not None:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()


@contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, first)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)
