"""Asks a disk without being held up by one that hangs: a network file system that is gone answers nothing, for ever.

The loop's own threads are few and shared by all who wait for something; what is asked here has a thread to itself, and
one that keeps no process from ending. What is read or written is where it is asked.
"""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

# A file comes within milliseconds. After so long whoever waits is told what for.
SLOW_S = 5.0


class Disk:
    """One thing at a time is asked, so that a disk that hangs has one thread, however often it is asked. `told` gets a
    sentence on each thing that does not come."""

    def __init__(self, told: Callable[[str], None] | None = None) -> None:
        self._told = told
        self._asked: asyncio.Future[Any] | None = None  # the last

    async def ask(self, what: str, act: Callable[..., T], *given: Any, within_s: float | None = None) -> T:
        """What `act` gives, called in a thread; `what` names it for people. Awaits what was asked before.

        Raises what `act` raises, and OSError where it is not there within `within_s`, or there is no thread for it.
        Cancelled or late, it leaves the thread behind, since nothing can end it.
        """
        slow = asyncio.get_running_loop().call_later(SLOW_S, self._tell, what)
        try:
            async with asyncio.timeout(within_s):
                while self._asked is not None and not self._asked.done():
                    await asyncio.wait({self._asked})
                self._asked = asked = _by_thread(act, given)
                await asyncio.wait({asked})
        except TimeoutError as late:
            raise OSError(errno.ETIMEDOUT, f"its disk did not answer within {within_s:g} s") from late
        finally:
            slow.cancel()
        return asked.result()

    def _tell(self, what: str) -> None:
        if self._told is not None:
            self._told(f"{what}: its disk has not answered for {SLOW_S:g} s, and is waited for")


def _by_thread(act: Callable[..., T], given: tuple[Any, ...]) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    answer.add_done_callback(asyncio.Future.exception)  # nobody may be waiting any more

    def run() -> None:
        try:
            settle = partial(answer.set_result, act(*given))
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to who asked
            settle = partial(answer.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle)

    try:
        threading.Thread(target=run, name="disk", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "there is no thread to ask its disk by") from error
    return answer
