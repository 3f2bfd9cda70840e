"""A body is read whole and within its limits."""

import asyncio
import contextlib
from typing import Any

import pytest
from fakes.until import turns

from proxy.errors import BodiesFull, BodyTimeout, BodyTooLarge, BodyTooSlow, InvalidRequest
from proxy.wire.body import Bodies, BodyRules
from proxy.wire.request import Incoming, Request

BROKEN = InvalidRequest("the framing is broken")


class Wire:
    """A client that notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)


def posting(
    *pieces: bytes,
    ends: bool = True,
    failure: Exception | None = None,
    length: int | None = None,
    waits: bool = False,
    wire: Wire | None = None,
) -> Request:
    """A request whose body is these pieces, and then ends, breaks, or pauses for ever."""
    client: Any = wire
    incoming = Incoming(client, expected=True, length=length, waits=waits)
    for piece in pieces:
        incoming.feed(piece)
    if failure is not None:
        incoming.broke(failure)
    elif ends:
        incoming.end()
    return asking(incoming)


def asking(incoming: Incoming) -> Request:
    client: Any = None
    return Request("POST", "/", [], {}, incoming=incoming, client=client, http10=False, keeps=True, peer="")


async def read(request: Request, max_bytes: int = 10, pause_s: float = 1.0) -> bytes:
    return (await Bodies(BodyRules(max_bytes, pause_s)).read(request)).content


async def test_body_is_read_whole() -> None:
    assert await read(posting(b"ab", b"cd")) == b"abcd"


async def test_request_without_a_body_has_an_empty_one() -> None:
    assert await read(asking(Incoming(None, expected=False))) == b""


async def test_body_at_the_limit_is_read() -> None:
    assert await read(posting(b"x" * 10)) == b"x" * 10


async def test_body_over_the_limit_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        await read(posting(b"x" * 11))


async def test_declared_body_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(BodyTooLarge):
        await read(posting(ends=False, length=11))


async def test_refusal_names_the_setting() -> None:
    with pytest.raises(BodyTooLarge, match=r"listen\.max_body_bytes \(10\)"):
        await read(posting(b"x" * 11))


async def test_body_that_pauses_is_given_up() -> None:
    with pytest.raises(BodyTimeout, match=r"listen\.body_timeout_s"):
        await read(posting(b"x", ends=False), pause_s=0.01)


async def test_body_with_broken_framing_is_the_clients_fault() -> None:
    with pytest.raises(InvalidRequest):
        await read(posting(failure=BROKEN))


async def test_reader_that_waits_is_told_at_once_that_the_framing_broke() -> None:
    asked = posting(b"x", ends=False)
    reading = asyncio.ensure_future(read(asked, pause_s=60.0))
    await turns()
    asked.incoming.broke(BROKEN)
    with pytest.raises(InvalidRequest):
        await reading


async def test_client_that_left_while_sending_is_not_answered() -> None:
    with pytest.raises(ConnectionError):
        await read(posting(failure=ConnectionResetError("gone")))


async def told(*pieces: bytes, ends: bool, waits: bool) -> list[bytes]:
    """What a client hears while its body is waited for."""
    wire = Wire()
    with contextlib.suppress(BodyTimeout):
        await read(posting(*pieces, ends=ends, waits=waits, wire=wire), pause_s=0.01)
    return wire.sent


async def test_client_that_asks_is_told_to_go_on_once() -> None:
    assert await told(ends=False, waits=True) == [b"HTTP/1.1 100 Continue\r\n\r\n"]


@pytest.mark.parametrize(("pieces", "ends"), [((b"x",), True), ((b"x",), False)], ids=["whole", "begun"])
async def test_client_whose_body_comes_without_a_word_is_told_nothing(pieces: tuple[bytes, ...], ends: bool) -> None:
    assert await told(*pieces, ends=ends, waits=True) == []


async def test_client_that_does_not_ask_is_told_nothing() -> None:
    assert await told(ends=False, waits=False) == []


async def test_body_that_comes_too_slowly_is_given_up_though_it_never_pauses() -> None:
    with pytest.raises(BodyTooSlow, match=r"listen\.min_body_bytes_per_s \(1000\)"):
        await Bodies(BodyRules(100, 0.01, 1000)).read(posting(b"x", ends=False))


# ---------------------------------------------------------------- all bodies together


def bodies(max_held_bytes: int = 15) -> Bodies:
    return Bodies(BodyRules(10, 0.01, max_held_bytes=max_held_bytes))


async def test_bytes_count_as_held_until_they_are_freed_and_are_freed_once() -> None:
    room = bodies()
    first, second = await room.read(posting(b"x" * 8)), await room.read(posting(b"y" * 7))
    assert room.held_bytes == 15
    first.free()
    first.free()
    assert (room.held_bytes, first.content, second.content) == (7, b"", b"y" * 7)


async def test_body_that_does_not_fit_beside_the_others_is_refused_and_holds_nothing() -> None:
    room = bodies()
    await room.read(posting(b"x" * 8))
    with pytest.raises(BodiesFull, match=r"listen\.max_held_body_bytes \(15\)"):
        await room.read(posting(b"y" * 4, b"y" * 4))
    assert room.held_bytes == 8


async def test_declared_body_that_does_not_fit_is_refused_before_it_is_read() -> None:
    room = bodies()
    await room.read(posting(b"x" * 8))
    with pytest.raises(BodiesFull):
        await room.read(posting(ends=False, length=8))


@pytest.mark.parametrize("failure", [None, ConnectionResetError("gone"), BROKEN])
async def test_body_that_does_not_come_whole_holds_nothing(failure: Exception | None) -> None:
    room = bodies()
    with pytest.raises((BodyTimeout, ConnectionError, InvalidRequest)):
        await room.read(posting(b"x", failure=failure, ends=False))
    assert room.held_bytes == 0
