"""Finds the addresses of one backend's name: anew for each connection, and without hanging when the resolver does.

A pod that moved is found by the next connection. A lookup runs in a thread that nothing can end, so there is never more
than one at a time for a name: one whose lookups hang holds a single thread, and the other backend's name has the rest.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

from proxy import tasks

# A lookup is answered within milliseconds by a resolver nearby and within some hundred by a distant one. Later than
# this the last good address is the better answer; most of timeouts.connect_s is then left to use it.
PATIENCE_S = 0.5
# How long an address may stand in for a resolver that does not answer. Outages of resolvers last minutes and are not to
# become ours; much later the address may be somebody else's.
KEEP_S = 300.0
# What a resolver says that knows: this name has no address. The last one is then not to be used any more.
NO_ADDRESS = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


@dataclass(frozen=True, slots=True)
class Address:
    """One place where a name listens: a numeric host, with the zone of a link-local IPv6 address behind a "%"."""

    host: str
    port: int
    family: int


Addresses = list[Address]
Machine = Callable[[str, int], Awaitable[Addresses]]
_Key = tuple[str, int]


async def ask_machine(host: str, port: int) -> Addresses:
    """What this machine's resolver says, in its order of preference. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        Address(_numeric(*address), port, family)
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    ]


def _numeric(host: str | int, _port: str | int, _flow: int = 0, zone: int = 0) -> str:
    return f"{host}%{zone}" if zone else str(host)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last lookup that succeeded found, and when (monotonic seconds)."""

    addresses: Addresses
    at_s: float


class Names:
    """The resolver of one backend's connections; `machine` is asked for every one of them."""

    def __init__(self, machine: Machine = ask_machine, clock: Callable[[], float] = monotonic) -> None:
        self._machine = machine
        self._clock = clock
        self._known: dict[_Key, _Known] = {}
        self._lookups: dict[_Key, asyncio.Task[Addresses | OSError]] = {}

    async def resolve(self, host: str, port: int) -> Addresses:
        """The addresses of `host`. Where some are known already it waits PATIENCE_S at most, else as long as the lookup
        takes. Raises OSError for a name that has no address, or that was never found; failures are not kept."""
        key = (host, port)
        lookup = self._lookups.get(key) or self._look_up(key)
        known = self._known.get(key)
        usable = known is not None and self._clock() - known.at_s < KEEP_S
        await asyncio.wait({lookup}, timeout=PATIENCE_S if usable else None)
        found = lookup.result() if lookup.done() else None
        if isinstance(found, list):
            return found
        if known is None or not usable or (isinstance(found, socket.gaierror) and found.errno in NO_ADDRESS):
            raise found or OSError("the lookup did not end")
        return known.addresses

    async def close(self) -> None:
        """Give up what is being looked up."""
        await tasks.end(*self._lookups.values())

    def _look_up(self, key: _Key) -> "asyncio.Task[Addresses | OSError]":
        lookup = tasks.spawn(self._ask(key), name=f"lookup of {key[0]}")
        self._lookups[key] = lookup
        lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        return lookup

    async def _ask(self, key: _Key) -> Addresses | OSError:
        """What the machine says; a failure is returned, since those who wait may be gone and nobody else looks."""
        try:
            addresses = await self._machine(*key)
        except OSError as error:
            if isinstance(error, socket.gaierror) and error.errno in NO_ADDRESS:
                self._known.pop(key, None)
            return error
        self._known[key] = _Known(addresses, self._clock())
        return addresses
