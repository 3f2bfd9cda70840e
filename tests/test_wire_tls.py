"""Handshakes come before the server: it sees the connections that are secured, and those alone."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.certificates import Files
from fakes.raw import RawClient, request
from fakes.serving import Served, served
from fakes.until import until

from proxy.closing import CloseReason
from proxy.wire.downstream import Downstream, Reply
from proxy.wire.request import Request
from proxy.wire.tls import TlsPort

QUICK_S = 0.2


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


@pytest.fixture
async def secured(files: Files) -> AsyncIterator[tuple[Served, list[CloseReason]]]:
    """A server behind a TLS port with room for two handshakes, and how connections ended before they came to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.folder / "tls.crt", files.folder / "tls.key")
    closings: list[CloseReason] = []
    port = TlsPort(context, handshake_s=QUICK_S, closed=closings.append, room=lambda: 2)
    async with served(answer, tls=port) as server:
        yield server, closings


def said_to(port: int, context: ssl.SSLContext, sent: bytes) -> tuple[bytes, bool]:
    """All that is said, and whether it ends in order."""
    said = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5.0) as wire,
        context.wrap_socket(wire, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(sent)
        try:
            while piece := client.recv(65536):
                said += piece
        except OSError:
            return said, False
        return said, True


async def test_answers_come_over_tls_and_end_in_order(files: Files, secured: tuple[Served, list[CloseReason]]) -> None:
    sent = request("/", method="GET") + request("/", b"", "connection: close", method="GET")
    said, in_order = await asyncio.to_thread(said_to, secured[0].port, files.client_context(), sent)
    assert (said.count(b"hello"), in_order) == (2, True)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_answer_that_is_cut_does_not_look_whole_under_tls(
    files: Files, secured: tuple[Served, list[CloseReason]], version: str
) -> None:
    sent = request("/cut", method="GET", version=version)
    said, in_order = await asyncio.to_thread(said_to, secured[0].port, files.client_context(), sent)
    assert said.count(b"x") == 1_000_000  # what was written comes before
    assert not said.endswith(b"0\r\n\r\n")
    assert in_order == (version == "1.1")  # with HTTP/1.0 nothing but the end can show it
    await until(lambda: not secured[0].front.connections, what="its end")


async def test_server_does_not_see_who_does_not_shake_hands(secured: tuple[Served, list[CloseReason]]) -> None:
    server, closings = secured
    async with RawClient(server.port) as plain, RawClient(server.port) as mute:
        await plain.send(request("/", method="GET"))
        assert b"200" not in await plain.rest()
        assert await mute.rest() == b""
    assert closings == [CloseReason.HANDSHAKE_FAILED, CloseReason.HANDSHAKE_LATE]
    assert server.book.closings == []


async def test_handshakes_beyond_the_room_are_closed_at_once(secured: tuple[Served, list[CloseReason]]) -> None:
    server, closings = secured
    async with RawClient(server.port), RawClient(server.port), RawClient(server.port) as third:
        assert await third.rest() == b""
        assert closings[:1] == [CloseReason.OVER_LIMIT]
