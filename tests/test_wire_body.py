"""A body is read whole and within its limits."""

import asyncio
from typing import Any

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from proxy.errors import BodiesFull, BodyTimeout, BodyTooLarge, BodyTooSlow, InvalidRequest
from proxy.wire.body import Bodies, BodyRules


def posting(*pieces: bytes, ends: bool = True, failure: Exception | None = None, **headers: str) -> web.BaseRequest:
    """A request whose body is these pieces, and then ends, breaks, or pauses for ever."""
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.connection_made(asyncio.Transport())
    content = StreamReader(protocol, 1 << 16, loop=loop)
    for piece in pieces:
        content.feed_data(piece)
    if failure is not None:
        content.set_exception(failure)
    elif ends:
        content.feed_eof()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return make_mocked_request("POST", "/", named, payload=content)


async def read(request: web.BaseRequest, max_bytes: int = 10, pause_s: float = 1.0) -> bytes:
    return (await Bodies(BodyRules(max_bytes, pause_s)).read(request)).content


async def test_body_is_read_whole() -> None:
    assert await read(posting(b"ab", b"cd")) == b"abcd"


async def test_request_without_a_body_has_an_empty_one() -> None:
    assert await read(make_mocked_request("GET", "/")) == b""


async def test_body_at_the_limit_is_read() -> None:
    assert await read(posting(b"x" * 10)) == b"x" * 10


async def test_body_over_the_limit_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        await read(posting(b"x" * 11))


async def test_declared_body_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(BodyTooLarge):
        await read(posting(ends=False, content_length="11"))


async def test_refusal_names_the_setting() -> None:
    with pytest.raises(BodyTooLarge, match=r"listen\.max_body_bytes \(10\)"):
        await read(posting(b"x" * 11))


async def test_body_that_pauses_is_given_up() -> None:
    with pytest.raises(BodyTimeout, match=r"listen\.body_timeout_s"):
        await read(posting(b"x", ends=False), pause_s=0.01)


@pytest.mark.parametrize("failure", [ValueError("bad chunk"), web.RequestPayloadError("bad chunk")])
async def test_body_with_broken_framing_is_the_clients_fault(failure: Exception) -> None:
    with pytest.raises(InvalidRequest):
        await read(posting(failure=failure))


async def test_client_that_left_while_sending_is_not_answered() -> None:
    with pytest.raises(ConnectionError):
        await read(posting(failure=ConnectionResetError("gone")))


async def written(request: Any) -> bytes:
    lines: list[bytes] = []

    async def note(data: bytes) -> None:
        lines.append(data)

    request.writer.write = note
    await read(request)
    return b"".join(lines)


@pytest.mark.parametrize("expects", ["100-continue", "100-Continue"])
async def test_client_that_asks_is_told_to_go_on(expects: str) -> None:
    assert await written(posting(b"x", expect=expects)) == b"HTTP/1.1 100 Continue\r\n\r\n"


async def test_client_that_does_not_ask_is_told_nothing() -> None:
    assert await written(posting(b"x")) == b""


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
        await room.read(posting(ends=False, content_length="8"))


@pytest.mark.parametrize("failure", [None, ConnectionResetError("gone"), web.RequestPayloadError("bad chunk")])
async def test_body_that_does_not_come_whole_holds_nothing(failure: Exception | None) -> None:
    room = bodies()
    with pytest.raises((BodyTimeout, ConnectionError, InvalidRequest)):
        await room.read(posting(b"x", failure=failure, ends=False))
    assert room.held_bytes == 0
