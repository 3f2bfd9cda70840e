"""Of several addresses one that answers is found, in the resolver's order, and what else was opened is closed."""

import asyncio
import contextlib
import errno
import gc
import socket

import pytest
from fakes.until import turns
from fakes.waiting import leaping

from proxy import tasks
from proxy.wire.names import Address
from proxy.wire.race import STAGGER_S, first_to_connect

V6, V4 = socket.AF_INET6, socket.AF_INET


class Opened:
    def __init__(self, host: str) -> None:
        self.host = host
        self.closed = False

    def abort(self) -> None:
        self.closed = True


class Network:
    """What becomes of a connection to each host: made after so many seconds, refused, or neither ever."""

    def __init__(self, **hosts: float | OSError | None) -> None:
        self.hosts = hosts
        self.asked: list[str] = []
        self.opened: list[Opened] = []
        self.given_up: list[str] = []

    async def connect(self, address: Address) -> Opened:
        self.asked.append(address.host)
        becomes = self.hosts[address.host]
        try:
            if isinstance(becomes, OSError):
                raise becomes
            await asyncio.sleep(float("1e6") if becomes is None else becomes)
        except asyncio.CancelledError:
            self.given_up.append(address.host)
            raise
        self.opened.append(opened := Opened(address.host))
        return opened


def addresses(*hosts: str) -> list[Address]:
    return [Address(host, 1, V6 if host.startswith("six") else V4) for host in hosts]


REFUSED = ConnectionRefusedError()


@leaping
async def test_first_address_is_used_alone_where_it_answers() -> None:
    network = Network(six=0.0, four=0.0)
    assert (await first_to_connect(addresses("six", "four"), network.connect)).host == "six"
    assert network.asked == ["six"]


@leaping
async def test_address_that_hangs_does_not_hold_the_next_one_up() -> None:
    network = Network(six=None, four=0.0)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert (await first_to_connect(addresses("six", "four"), network.connect)).host == "four"
    assert loop.time() - began_s < STAGGER_S + 0.01
    await turns()
    assert network.given_up == ["six"]
    assert not tasks.running()


@leaping
async def test_address_that_refuses_makes_way_at_once() -> None:
    network = Network(six=REFUSED, four=0.0)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert (await first_to_connect(addresses("six", "four"), network.connect)).host == "four"
    assert loop.time() - began_s < STAGGER_S / 2


@leaping
async def test_families_take_turns() -> None:
    network = Network(six1=REFUSED, six2=REFUSED, six3=REFUSED, four1=REFUSED, four2=REFUSED)
    with pytest.raises(ConnectionRefusedError):
        await first_to_connect(addresses("six1", "six2", "six3", "four1", "four2"), network.connect)
    assert network.asked == ["six1", "four1", "six2", "four2", "six3"]


@leaping
async def test_first_failure_is_told_where_no_address_answers() -> None:
    network = Network(six=OSError(101, "no route"), four=REFUSED)
    with pytest.raises(OSError, match="no route"):
        await first_to_connect(addresses("six", "four"), network.connect)


@leaping
async def test_failure_leaves_nothing_behind_for_the_collector() -> None:
    class Refused(OSError): ...

    async def refuse(_: Address) -> Opened:
        raise Refused

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Refused):
            await first_to_connect(addresses("six", "four"), refuse)
        await turns()
        assert not [each for each in gc.get_objects() if issubclass(type(each), Refused)]
    finally:
        gc.enable()


@leaping
async def test_name_without_addresses_is_an_error() -> None:
    with pytest.raises(OSError, match="no address"):
        await first_to_connect([], Network().connect)


@leaping
async def test_slow_address_may_still_win() -> None:
    network = Network(six=1.0, four=None)
    assert (await first_to_connect(addresses("six", "four"), network.connect)).host == "six"
    await turns()
    assert network.given_up == ["four"]


@leaping
async def test_all_but_one_of_the_connections_that_come_at_once_are_closed() -> None:
    network = Network(six=2 * STAGGER_S, four=STAGGER_S)
    won = await first_to_connect(addresses("six", "four"), network.connect)
    await turns()
    assert len(network.opened) + len(network.given_up) == 2
    assert [each.host for each in network.opened if not each.closed] == [won.host]


@leaping
async def test_caller_that_leaves_ends_every_attempt() -> None:
    network = Network(six=None, four=None)
    waiting = tasks.spawn(first_to_connect(addresses("six", "four"), network.connect), name="a caller")
    await asyncio.sleep(2 * STAGGER_S)
    await tasks.end(waiting)
    await turns()
    assert sorted(network.given_up) == ["four", "six"]
    assert not tasks.running()


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
async def test_want_of_a_file_is_told_before_what_others_say(order: tuple[str, str]) -> None:
    """One that was refused is no proof against an engine that another address might have reached."""
    network = Network(a=OSError(errno.EMFILE, "files"), b=ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
    with pytest.raises(OSError, match="files"):
        await first_to_connect([Address(each, 1, V4) for each in order], network.connect)
