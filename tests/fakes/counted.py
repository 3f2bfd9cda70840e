"""What is called meanwhile: a cost in calls is the same on every machine. Not here: seconds and bytes."""

import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def calls_of(act: Callable[[], object], *, of_c: bool = False) -> Counter[str]:
    """How often Python's functions, and C's where asked for, are called by `act`, itself among them; by name."""
    calls: Counter[str] = Counter()
    with _without_the_collector():
        before = sys.getprofile()
        sys.setprofile(_noting(calls, of_c))
        try:
            act()
        finally:
            sys.setprofile(before)
    return calls


async def calls_until(act: Callable[[], Awaitable[object]]) -> int:
    """How many of Python's functions are called until `act` is over, those of the loop among them."""
    calls: Counter[str] = Counter()
    with _without_the_collector():
        before = sys.getprofile()
        sys.setprofile(_noting(calls, False))
        try:
            await act()
        finally:
            sys.setprofile(before)
    return calls.total()


@contextmanager
def _without_the_collector() -> Iterator[None]:
    """It comes when it likes, and calls what others hung on it and what frees the garbage of other tests."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _noting(calls: Counter[str], of_c: bool) -> Callable[[FrameType, str, Any], None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif of_c and event == "c_call":
            calls[argument.__qualname__] += 1

    return note
