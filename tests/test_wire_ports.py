"""A port that cannot be had is known before anything else is done, and whoever has it is named."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator

import pytest
from fakes.engine import FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient

from proxy import logs
from proxy.app import App
from proxy.errors import ConfigError
from proxy.wire import ports

ALIVE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: %s\r\n\r\n"
PLAIN_WORDS = "is taken; mend: stop what listens there"


@contextlib.asynccontextmanager
async def answering(said: bytes | None, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server that says this to whoever comes, None: nothing, and stays silent; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1000)
            if said is not None:
                writer.write(said)
                writer.write_eof()
            await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, host, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def refused(port: int, section: str = "listen", host: str = "127.0.0.1") -> str:
    with pytest.raises(ConfigError) as caught:
        await ports.claim(section, host, port)
    return caught.value.message


# ---------------------------------------------------------------- ports that can be had


async def test_any_free_port_can_be_had() -> None:
    await ports.claim("listen", "127.0.0.1", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "localhost"])
async def test_a_free_port_can_be_had_and_is_still_free_afterwards(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    await ports.claim("listen", host, port)
    socket.create_server(("127.0.0.1", port)).close()


async def test_a_port_whose_server_has_just_ended_with_connections_open_can_be_had() -> None:
    async with answering(ALIVE % b"crossover") as port, RawClient(port) as client:
        await client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert (await client.head()).status == 200
    await ports.claim("listen", "127.0.0.1", port)


# ---------------------------------------------------------------- ports that cannot


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "localhost"])
async def test_a_port_that_anyone_listens_on_is_refused_for_every_address_that_includes_theirs(host: str) -> None:
    async with answering(b"") as port:
        assert f"listen.port: {port} on {host} {PLAIN_WORDS}" in await refused(port, host=host)


@pytest.mark.parametrize("section", ["listen", "admin"])
async def test_another_crossover_is_called_one_by_its_own_answer(section: str) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        port = app.port if section == "listen" else app.admin_port
        assert f"{section}.port: {port} on 127.0.0.1 is taken by another Crossover; one" in await refused(port, section)


async def test_a_crossover_that_listens_everywhere_is_asked_on_loopback() -> None:
    async with answering(ALIVE % b"crossover", host="0.0.0.0") as port:
        assert "another Crossover" in await refused(port, host="0.0.0.0")


@pytest.mark.parametrize(
    "said",
    [ALIVE % b"nginx", ALIVE % b"crossover-like", b"", b"x" * 10_000, b"SSH-2.0-x\r\n", b"\r\nserver: crossover\r\n"],
    ids=["nginx", "longer", "nothing", "flood", "ssh", "cut"],
)
async def test_another_server_is_not_called_a_crossover(said: bytes) -> None:
    async with answering(said) as port:
        assert PLAIN_WORDS in await refused(port)


async def test_a_server_that_never_answers_does_not_hold_the_refusal_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ASK_WITHIN_S", 0.05)
    async with answering(None) as port, asyncio.timeout(10):
        assert PLAIN_WORDS in await refused(port)


async def test_an_address_of_another_machine_is_named_by_its_key() -> None:
    assert "listen.host: cannot listen on 192.0.2.1" in await refused(1024, host="192.0.2.1")


async def test_a_port_that_only_root_may_have_is_told_with_its_mend() -> None:
    error = await ports.refusal("admin", "127.0.0.1", 80, PermissionError(errno.EACCES, "no"))
    assert "admin.port: 80 on 127.0.0.1 is not allowed to this user; mend: set a port above 1023" in error.message


# ---------------------------------------------------------------- what a refused start has done by then


@pytest.mark.parametrize("section", ["listen", "admin"])
async def test_a_start_whose_port_is_taken_asks_no_engine_and_serves_on_neither_port(section: str) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, answering(b"") as port:
        chosen = settings(a.url, b.url)
        taken = getattr(chosen, section).model_copy(update={"port": port})
        app = App(chosen.model_copy(update={section: taken}), logs.configure("json", "error"), lambda: chosen)
        try:
            with pytest.raises(ConfigError):
                await app.start()
            assert (app.port, app.admin_port) == (0, 0)
            assert [(each.facts, each.load) for each in app.desk.backends] == [(None, None)] * 2
        finally:
            await app.stop()
