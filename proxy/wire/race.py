"""Connects to one of several addresses: each gets its turn, and one that hangs does not hold the next one up.

Known as happy eyeballs (RFC 8305). Not here: how a name becomes addresses (names.py), and how long all may take.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, zip_longest
from typing import Protocol, TypeVar

from proxy import tasks
from proxy.wire.lack import is_lack
from proxy.wire.names import Address, Addresses

# What RFC 8305 recommends: longer than a round trip to anywhere, so that a second attempt is rarely made in vain.
STAGGER_S = 0.25


class Connected(Protocol):
    """What an attempt brings."""

    def abort(self) -> None:
        """Close at once."""
        ...


C = TypeVar("C", bound=Connected)


async def first_to_connect(addresses: Addresses, connect: Callable[[Address], Awaitable[C]]) -> C:
    """The first connection that any address gives; what the others give is closed. Raises the first failure, an
    OSError, when none gives any; one of our own before all others, since it says nothing of who was called."""
    if len(addresses) == 1:
        return await connect(addresses[0])
    found = await _race(_by_turns(addresses), connect)
    try:
        if isinstance(found, OSError):
            raise found
        return found
    finally:
        del found  # an error knows the frame that it was raised in: the two would keep each other alive


async def _race(waiting: Addresses, connect: Callable[[Address], Awaitable[C]]) -> C | OSError:
    attempts: set[asyncio.Task[C | OSError]] = set()
    failure: OSError | None = None
    try:
        while waiting or attempts:
            if waiting:
                attempts.add(tasks.spawn(_attempt(connect, waiting.pop(0)), name="connection to a backend"))
            timeout_s = STAGGER_S if waiting else None
            done, _ = await asyncio.wait(attempts, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                attempts.discard(each)
                found = each.result()
                if not isinstance(found, OSError):
                    return found
                failure = found if failure is None or is_lack(found) else failure
        return failure or OSError("the name has no address")
    finally:
        for each in attempts:
            each.cancel()
            each.add_done_callback(_close_late)


async def _attempt(connect: Callable[[Address], Awaitable[C]], address: Address) -> C | OSError:
    try:
        return await connect(address)
    except OSError as error:
        return error


def _close_late(attempt: "asyncio.Task[C | OSError]") -> None:
    """It had connected before it could be cancelled."""
    if attempt.cancelled() or attempt.exception() is not None:
        return
    late = attempt.result()
    if not isinstance(late, OSError):
        late.abort()


def _by_turns(addresses: Addresses) -> Addresses:
    """The families alternate, beginning with the resolver's first: else one that is not routed hangs many times over
    before the other has its turn."""
    first = [each for each in addresses if each.family == addresses[0].family] if addresses else []
    others = [each for each in addresses if each not in first]
    return [each for each in chain.from_iterable(zip_longest(first, others)) if each is not None]
