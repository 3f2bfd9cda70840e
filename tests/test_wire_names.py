"""A backend's name is looked up anew for each connection, and a resolver that fails or hangs holds nothing up."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from fakes.engine import FakeEngine, plain
from fakes.leaping import leaping as leaping_with_sockets
from fakes.proxy import running, settings
from fakes.raw import ask, chat, request
from fakes.until import turns
from fakes.waiting import leaping

from proxy import tasks
from proxy.wire.names import KEEP_S, PATIENCE_S, Address, Addresses, Names

GONE = socket.gaierror(socket.EAI_NONAME, "no such name")
TROUBLE = socket.gaierror(socket.EAI_AGAIN, "try again")


class Machine:
    """A resolver that says what a test tells it: an address, an error, or nothing ever."""

    def __init__(self, says: str | OSError | None = "10.0.0.1") -> None:
        self.says = says
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Addresses:
        self.asked += 1
        if self.says is None:
            await asyncio.Event().wait()
        if isinstance(self.says, OSError):
            raise self.says
        return [Address(str(self.says), port, socket.AF_INET)]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def address(names: Names) -> str:
    return (await names.resolve("engine", 80))[0].host


async def test_name_is_looked_up_for_each_connection() -> None:
    machine = Machine()
    names = Names(machine)
    await address(names)
    machine.says = "10.0.0.2"
    assert await address(names) == "10.0.0.2"


async def test_failed_lookup_is_not_kept() -> None:
    machine = Machine(TROUBLE)
    names = Names(machine)
    with pytest.raises(OSError):
        await address(names)
    machine.says = "10.0.0.2"
    assert await address(names) == "10.0.0.2"


async def test_last_good_address_stands_in_for_a_resolver_in_trouble() -> None:
    machine, clock = Machine(), Clock()
    names = Names(machine, clock)
    await address(names)
    machine.says = TROUBLE
    assert await address(names) == "10.0.0.1"
    clock.now_s += KEEP_S
    with pytest.raises(OSError):
        await address(names)


async def test_name_that_has_no_address_any_more_is_believed() -> None:
    machine = Machine()
    names = Names(machine)
    await address(names)
    machine.says = GONE
    with pytest.raises(socket.gaierror):
        await address(names)
    machine.says = TROUBLE
    with pytest.raises(OSError):
        await address(names)


@leaping
async def test_lookup_that_hangs_holds_up_no_connection_whose_address_is_known() -> None:
    machine = Machine()
    names = Names(machine)
    await address(names)
    machine.says = None
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await address(names) == "10.0.0.1"
    assert loop.time() - began_s < PATIENCE_S + 0.1
    await names.close()


@leaping
async def test_lookups_that_hang_never_hold_more_than_one_thread() -> None:
    machine = Machine(None)
    names = Names(machine)
    waiting = [tasks.spawn(address(names), name="connection") for _ in range(50)]
    await turns()
    assert machine.asked == 1
    await tasks.end(*waiting)
    assert machine.asked == 1
    await names.close()


async def test_lookups_that_nobody_waits_for_any_more_say_nothing_to_the_loop() -> None:
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    machine = Machine(None)
    names = Names(machine)
    waiter = tasks.spawn(address(names), name="connection")
    await turns()
    await tasks.end(waiter)
    await names.close()
    assert not said
    assert not names._lookups


async def test_addresses_are_the_machines_in_its_order_and_with_their_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        stream_of = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [
            (socket.AF_INET6, *stream_of, ("fe80::1", port, 0, 3)),
            (socket.AF_INET, *stream_of, ("10.0.0.1", port)),
            (socket.AF_INET6, *stream_of, ("fd00::1", port, 0, 0)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    assert await Names().resolve("engine", 80) == [
        Address("fe80::1%3", 80, socket.AF_INET6),
        Address("10.0.0.1", 80, socket.AF_INET),
        Address("fd00::1", 80, socket.AF_INET6),
    ]


@asynccontextmanager
async def named(monkeypatch: pytest.MonkeyPatch, look_up: Callable[[str], Awaitable[str]]) -> AsyncIterator[int]:
    """The proxy in front of two engines that it knows by their names; `look_up` is the machine's resolver."""

    async def getaddrinfo(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        found = host if host[0].isdigit() else await look_up(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    async with FakeEngine(script=plain) as a, FakeEngine(role="baseline", script=plain) as b:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
        urls = f"http://engine-a.test:{a.port}", f"http://engine-b.test:{b.port}"
        async with running(settings(*urls, timeouts={"connect_s": 0.3, "settle_s": 0.0})) as app:
            yield app.port


@leaping_with_sockets
async def test_backend_whose_name_never_resolves_costs_the_other_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(host: str) -> str:
        if host == "engine-a.test":
            await asyncio.Event().wait()
        return "127.0.0.1"

    async with named(monkeypatch, look_up) as port:
        said = [await ask(port, request(body=chat())) for _ in range(5)]
        assert [(each.status, each.header("x-crossover-backend")) for each in said] == [(200, "baseline")] * 5
