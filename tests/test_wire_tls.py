"""Handshakes come before the server: it sees the connections that are secured, and those alone."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.certificates import Files
from fakes.leaping import leaping
from fakes.raw import RawClient, request
from fakes.serving import Served, served
from fakes.until import until

from proxy.closing import CloseReason
from proxy.wire.downstream import Downstream, Reply
from proxy.wire.request import Request
from proxy.wire.tls import TlsPort


async def answer(asked: Request) -> Reply | None:
    """A whole answer, or one that is cut behind its first bytes."""
    if asked.target != "/cut":
        return Reply(200, [], b"hello")
    down = Downstream(asked)
    down.begin(200, [], length=None)
    down.write(b"x" * 1_000_000)
    down.cut(told=False)
    return None


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")


@asynccontextmanager
async def secured(files: Files) -> AsyncIterator[tuple[Served, list[CloseReason]]]:
    """A server behind a TLS port with room for two handshakes, and how connections ended before they came to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.folder / "tls.crt", files.folder / "tls.key")
    closings: list[CloseReason] = []
    port = TlsPort(context, handshake_s=30.0, closed=closings.append, room=lambda: 2)
    async with served(answer, tls=port) as server:
        yield server, closings


def said_to(port: int, context: ssl.SSLContext, sent: bytes) -> tuple[bytes, bool]:
    """All that is said, and whether it ends in order."""
    said = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30.0) as wire,
        context.wrap_socket(wire, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(sent)
        try:
            while piece := client.recv(65536):
                said += piece
        except OSError:
            return said, False
        return said, True


async def test_answers_come_over_tls_and_end_in_order(files: Files) -> None:
    sent = request("/", method="GET") + request("/", b"", "connection: close", method="GET")
    async with secured(files) as (server, _):
        said, in_order = await asyncio.to_thread(said_to, server.port, files.client_context(), sent)
    assert (said.count(b"hello"), in_order) == (2, True)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_answer_that_is_cut_does_not_look_whole_under_tls(files: Files, version: str) -> None:
    sent = request("/cut", method="GET", version=version)
    async with secured(files) as (server, _):
        said, in_order = await asyncio.to_thread(said_to, server.port, files.client_context(), sent)
        await until(lambda: not server.front.connections, what="its end")
    assert said.count(b"x") == 1_000_000  # what was written comes before
    assert not said.endswith(b"0\r\n\r\n")
    assert in_order == (version == "1.1")  # with HTTP/1.0 nothing but the end can show it


@leaping
async def test_server_does_not_see_who_does_not_shake_hands(files: Files) -> None:
    async with secured(files) as (server, closings):
        async with RawClient(server.port) as plain, RawClient(server.port) as mute:
            await plain.send(request("/", method="GET"))
            assert b"200" not in await plain.rest()
            assert await mute.rest() == b""
        assert closings == [CloseReason.HANDSHAKE_FAILED, CloseReason.HANDSHAKE_LATE]
        assert server.book.closings == []


async def test_handshakes_beyond_the_room_are_closed_at_once(files: Files) -> None:
    async with (
        secured(files) as (server, closings),
        RawClient(server.port),
        RawClient(server.port),
        RawClient(server.port) as third,
    ):
        assert await third.rest() == b""
        assert closings[:1] == [CloseReason.OVER_LIMIT]
