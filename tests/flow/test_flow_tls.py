"""TLS on both ports: who is let in, whose certificate is shown and since when, and what becomes of those who fail."""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from fakes.certificates import Files, der, write
from fakes.engine import Exchange, FakeEngine, content, stream
from fakes.leaping import leaping
from fakes.raw import WITHIN_S, RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until, until_told
from test_serve import options, written

from proxy import config, serve, tasks
from proxy.config import InvalidConfig
from proxy.terminal import status
from proxy.wire.reload import watch

HEALTH = request("/healthz", method="GET")
QUICK = 0.2


class Secure(RawClient):
    """A raw client over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.context = context

    async def __aenter__(self) -> "Secure":
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, server_hostname="127.0.0.1", limit=1 << 24
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    @property
    def shown(self) -> bytes:
        """The certificate that the proxy showed."""
        found: bytes = self.writer.get_extra_info("ssl_object").getpeercert(True)
        return found

    async def health(self) -> int:
        await self.send(HEALTH)
        return (await self.answer()).status


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "tls")


def closed(stage: Stage, reason: str) -> float:
    name = f'crossover_connections_closed_total{{reason="{reason}"}} '
    lines = stage.app.metrics.exposition().decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@contextlib.asynccontextmanager
async def secured(files: Files, script: Any = stream, **listen: Any) -> AsyncIterator[Stage]:
    """A proxy with TLS on both ports."""
    tls = {"tls": files.section}
    async with staged(script, listen={**tls, **listen}, admin={**tls, "port": 0}) as stage:
        yield stage


async def shown(port: int, files: Files) -> bytes:
    async with Secure(port, files.client_context()) as client:
        return client.shown


# ---------------------------------------------------------------- those who are let in


async def test_stream_over_tls_comes_whole(files: Files) -> None:
    async with secured(files) as stage, Secure(stage.app.port, files.client_context()) as client:
        await client.send(request(body=chat(stream=True)))
        said = await client.answer()
        assert (said.status, said.whole) == (200, True)
        assert said.body.endswith(b"data: [DONE]\n\n")


async def test_large_body_over_tls_reaches_the_engine_whole(files: Files) -> None:
    body = chat(padding="x" * 3_000_000)
    async with secured(files) as stage, Secure(stage.app.port, files.client_context()) as client:
        await client.send(request(body=body))
        assert (await client.answer()).status == 200
        assert stage.a.requests[0].body == body


@pytest.mark.parametrize("size_bytes", [10, 3_000_000])
async def test_broken_answer_to_an_http_1_0_client_ends_abnormally_under_tls(files: Files, size_bytes: int) -> None:
    async def die(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: text/plain", "transfer-encoding: chunked")
        await exchange.chunk(b"x" * size_bytes)
        await seen.wait()
        exchange.reset()

    def whole() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", stage.app.port), timeout=WITHIN_S) as wire,
            files.client_context().wrap_socket(wire, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
        ):
            client.sendall(request(body=chat(), version="1.0"))
            said = client.recv(65536)
            loop.call_soon_threadsafe(seen.set)
            while piece := client.recv(65536):
                said += piece
            return said

    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    async with secured(files, die) as stage:
        with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            await asyncio.to_thread(whole)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_current_versions_of_tls_are_spoken(files: Files, version: ssl.TLSVersion) -> None:
    context = files.client_context()
    context.minimum_version = context.maximum_version = version
    async with secured(files) as stage, Secure(stage.app.port, context) as client:
        assert await client.health() == 200


async def test_without_a_certificate_of_the_named_authority_no_client_is_served(files: Files) -> None:
    theirs = trustme.CA()
    theirs.cert_pem.write_to_path(str(files.folder / "clients.pem"))
    tls = {**files.section, "client_ca_file": str(files.folder / "clients.pem")}
    async with staged(listen={"tls": tls}) as stage:
        known = files.client_context(theirs.issue_cert("client.example"))
        async with Secure(stage.app.port, known) as client:
            assert await client.health() == 200
        for context in (files.client_context(), files.client_context(trustme.CA().issue_cert("client.example"))):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                async with Secure(stage.app.port, context) as client:
                    await client.health()
        await until(lambda: closed(stage, "handshake_failed") == 2)


# ---------------------------------------------------------------- those who fail


async def test_plain_http_on_a_tls_port_is_closed_counted_and_no_crash(
    files: Files, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with secured(files) as stage:
        for port in (stage.app.port, stage.app.admin_port):
            async with RawClient(port) as client:
                await client.send(HEALTH)
                assert b"200" not in await client.rest()
        await until(lambda: closed(stage, "handshake_failed") == 2)
        assert await health(stage, files) == 200
    assert capfdbinary.readouterr() == (b"", b"")


async def health(stage: Stage, files: Files) -> int:
    async with Secure(stage.app.port, files.client_context()) as client:
        return await client.health()


async def test_tls_client_on_a_plain_port_is_answered_400_and_no_crash(
    files: Files, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with staged() as stage:
        with pytest.raises(OSError):
            await shown(stage.app.port, files)
        text = stage.app.metrics.exposition().decode()
        assert 'crossover_refusals_total{code="invalid_request"} 1.0' in text
    assert capfdbinary.readouterr() == (b"", b"")


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a hello"])
@leaping
async def test_handshake_that_never_ends_is_dropped_and_counted(files: Files, sent: bytes) -> None:
    async with secured(files, head_timeout_s=QUICK) as stage:
        for port in (stage.app.port, stage.app.admin_port):
            async with RawClient(port) as client:
                await client.send(sent)
                assert await client.rest() == b""
        await until(lambda: closed(stage, "handshake_late") == 2)


async def test_client_that_leaves_in_its_handshake_is_no_crash(
    files: Files, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with secured(files) as stage:
        for reset in (True, False):
            async with RawClient(stage.app.port) as client:
                await client.send(b"\x16\x03\x01")
                await until(lambda: stage.app._tls["listen"]._greeting, what="a handshake")
                client.leave(reset=reset)
                await until(lambda: not stage.app._tls["listen"]._greeting, what="its end")
        assert closed(stage, "handshake_failed") == 2
    assert capfdbinary.readouterr() == (b"", b"")


async def test_slow_handshakes_hold_nobody_up(files: Files) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stage = await stack.enter_async_context(secured(files))
        for _ in range(30):
            slow = await stack.enter_async_context(RawClient(stage.app.port))
            await slow.send(b"\x16\x03\x01")
        assert await health(stage, files) == 200
        assert len(stage.app._tls["listen"]._greeting) == 30


async def test_handshakes_count_as_connections(files: Files) -> None:
    async with secured(files, max_connections=2) as stage, Secure(stage.app.port, files.client_context()) as served:
        assert await served.health() == 200
        async with RawClient(stage.app.port) as slow, RawClient(stage.app.port) as third:
            await slow.send(b"\x16")
            await until(lambda: stage.app._tls["listen"]._greeting, what="a handshake")
            assert await third.rest() == b""
            await until(lambda: closed(stage, "over_limit") == 1)
            assert await served.health() == 200


@leaping
async def test_limits_of_heads_hold_under_tls(files: Files) -> None:
    async with secured(files, head_timeout_s=QUICK) as stage, Secure(stage.app.port, files.client_context()) as client:
        await client.send(b"GET /healthz HT")
        assert (await client.answer()).status == 408


async def test_idle_and_silent_connections_are_closed_under_tls(files: Files) -> None:
    async with secured(files, keepalive_s=QUICK) as stage, Secure(stage.app.port, files.client_context()) as client:
        assert await client.health() == 200
        assert await client.rest() == b""
        assert closed(stage, "idle") == 1


async def test_client_that_takes_nothing_of_its_answer_is_dropped_under_tls(files: Files) -> None:
    async def much(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(400):
            await exchange.event(content("x" * 50_000))
        await exchange.end()

    async with (
        secured(files, much, unread_timeout_s=QUICK) as stage,
        Secure(stage.app.port, files.client_context()) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await stage.ended_one()
        assert closed(stage, "unread") == 1
        client.leave(reset=True)


async def test_client_that_takes_nothing_of_a_long_answer_to_a_question_is_dropped_under_tls(files: Files) -> None:
    async def long(exchange: Exchange) -> None:
        await exchange.answer(b"x" * (24 << 20))

    async with secured(files, long, unread_timeout_s=QUICK) as stage:
        stage.b.script = long
        async with Secure(stage.app.port, files.client_context()) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(request("/v1/models", method="GET"))
            await until(lambda: closed(stage, "unread") == 1, what="the client dropped")
            client.leave(reset=True)


# ---------------------------------------------------------------- what is wrong with the files


def lay_no_file(files: Files) -> None:
    (files.folder / "tls.crt").unlink()


def swap(files: Files) -> None:
    (files.folder / "tls.crt").write_bytes((files.folder / "tls.key").read_bytes())


def mismatch(files: Files) -> None:
    key = (files.folder / "tls.key").read_bytes()
    files.renew()
    (files.folder / "tls.key").write_bytes(key)


def spoil(files: Files) -> None:
    text = (files.folder / "tls.crt").read_text().splitlines()
    (files.folder / "tls.crt").write_text("\n".join([text[0], "AAAA", *text[2:]]))


WRONG = {
    "missing": (lay_no_file, "listen.tls.cert_file: names no regular file; mend: "),
    "another file": (swap, "listen.tls.cert_file: names a file without a certificate in PEM; mend: "),
    "mismatched": (mismatch, "listen.tls.key_file: names a key that is not the certificate's; mend: "),
    "encrypted": (Files.encrypt_key, "listen.tls.key_file: names a key that is encrypted"),
    "spoiled": (spoil, "listen.tls.cert_file: cannot be used together with key_file ("),
}


@pytest.mark.parametrize(("spoil", "message"), WRONG.values(), ids=WRONG)
def test_files_that_cannot_be_used_stop_the_start_with_the_mend(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any, message: str
) -> None:
    spoil(files)
    path = written(tmp_path, listen={"host": "127.0.0.1", "port": 0, "tls": files.section})
    assert serve.run(options(config=path)) == 1
    said = capsys.readouterr().err
    assert message in said
    assert "crossover.yaml:" in said
    assert "mend: " in said


@pytest.mark.parametrize(("spoil", "message"), WRONG.values(), ids=WRONG)
async def test_reload_with_files_that_cannot_be_used_is_rejected_and_the_old_certificate_serves_on(
    files: Files, spoil: Any, message: str
) -> None:
    async with reloadable(files) as stage:
        before = await shown(stage.app.port, files)
        spoil(files)
        taken, problems = await stage.app.reload()
        assert not taken
        assert message in problems[-1]
        assert await shown(stage.app.port, files) == before


def test_section_with_a_key_missing_is_one_problem_with_its_mend() -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    with pytest.raises(InvalidConfig) as told:
        config.from_mapping({"backends": urls, "listen": {"tls": {"cert_file": "x"}}})
    assert [each.key for each in told.value.problems] == ["listen.tls.key_file"]


def test_paths_count_from_the_folder_of_the_configuration(files: Files, tmp_path: Path) -> None:
    path = written(tmp_path, listen={"tls": {"cert_file": "tls/tls.crt", "key_file": "tls/tls.key"}})
    watched = config.load(path, {}).sources.marks
    assert set(watched) == {path, files.folder / "tls.crt", files.folder / "tls.key"}


# ---------------------------------------------------------------- new certificates


@contextlib.asynccontextmanager
async def reloadable(files: Files) -> AsyncIterator[Stage]:
    async with secured(files) as stage:
        values = {
            "backends": {"speculative": {"url": stage.a.url}, "baseline": {"url": stage.b.url}},
            "listen": {"host": "127.0.0.1", "port": 0, "tls": files.section},
            "admin": {"port": 0, "tls": files.section},
            "log": {"level": "error"},
        }
        path = files.folder / "crossover.yaml"
        path.write_text(yaml.safe_dump(values))
        stage.app._source = lambda: config.load(path, {})
        yield stage


async def test_new_connections_get_the_new_certificate_and_running_ones_go_on(files: Files) -> None:
    go = asyncio.Event()

    async with reloadable(files) as stage, Secure(stage.app.port, files.client_context()) as client:
        stage.a.script = lambda exchange: stream(exchange, gate=go)
        await client.send(request(body=chat(stream=True)))
        await client.head()
        old, new = client.shown, files.renew()
        assert (await stage.app.reload())[0]
        assert await shown(stage.app.port, files) == new != old
        assert await shown(stage.app.admin_port, files) == new
        go.set()
        body = b""
        while piece := await client.chunk():
            body += piece
        assert body.endswith(b"data: [DONE]\n\n")
        assert await client.health() == 200


@pytest.mark.parametrize("section", ["listen", "admin"])
async def test_turning_tls_on_or_off_is_told_to_take_a_restart(files: Files, section: str) -> None:
    async with reloadable(files) as stage:
        changed = stage.app.settings.model_copy(
            update={section: getattr(stage.app.settings, section).model_copy(update={"tls": None})}
        )
        stage.app._source = lambda: changed
        assert await stage.app.reload() == (
            False,
            [f"{section}.tls cannot change while running; restart for it"],
        )


def rewritten(files: Files) -> bytes:
    return files.renew()


def relinked(files: Files) -> bytes:
    """As a mounted Secret changes: one link turns, and both files are others."""
    pair = files.authority.issue_cert("127.0.0.1")
    fresh = files.folder.with_name("fresh")
    fresh.mkdir()
    write(fresh, pair)
    files.folder.rename(files.folder.with_name("stale"))
    link = files.folder.with_name("link")
    link.symlink_to(fresh)
    link.rename(files.folder)
    return der(pair)


@pytest.mark.parametrize("renew", [rewritten, relinked])
async def test_certificate_that_changes_on_disk_alone_is_taken_over(files: Files, tmp_path: Path, renew: Any) -> None:
    async with reloadable(files) as stage:
        path = tmp_path / "crossover.yaml"
        path.write_bytes((files.folder / "crossover.yaml").read_bytes())
        stage.app._source = lambda: config.load(path, {})
        watching = watch(lambda: stage.app.files, stage.app.disk, stage.app.reload, every_s=0.02)
        task = tasks.spawn(watching, name="watch")
        new = renew(files)

        async def taken() -> bool:
            return await shown(stage.app.port, files) == new

        await until_told(taken)
        await tasks.end(task)
        told = [entry.sentence for entry in stage.app.watch.journal.entries if entry.kind == "reload"]
        assert any("cert_file" in each and "read anew" in each for each in told)
        assert not any("nothing has changed" in each for each in told)


async def test_sighup_takes_a_new_certificate_over(files: Files, tmp_path: Path) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        path = written(
            tmp_path,
            backends={"speculative": {"url": a.url}, "baseline": {"url": b.url}},
            listen={"host": "127.0.0.1", "port": 0, "tls": files.section},
            log={"level": "error"},
        )
        ports: list[int] = []
        settings = config.load(path, {})
        serving = tasks.spawn(
            serve.serve(settings, lambda: config.load(path, {}), greet=lambda app: ports.append(app.port)),
            name="serve",
        )
        await until(lambda: ports, what="the start")
        new = files.renew()
        os.kill(os.getpid(), signal.SIGHUP)

        async def taken() -> bool:
            return await shown(ports[0], files) == new

        await until_told(taken)
        os.kill(os.getpid(), signal.SIGINT)
        assert await serving == 0


# ---------------------------------------------------------------- crossover status


async def test_status_over_tls_works_with_the_authority_named(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    async with secured(files) as stage:
        url = f"https://127.0.0.1:{stage.app.admin_port}"
        assert await asyncio.to_thread(status.show, url, None, files.ca_file) == 0
        assert "serving, ready" in capsys.readouterr().out


async def test_status_over_tls_says_how_when_it_does_not_trust_or_find_the_port(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    async with secured(files) as stage:
        for scheme, mend in (("https", "by --ca FILE"), ("http", "begins with https://")):
            assert await asyncio.to_thread(status.show, f"{scheme}://127.0.0.1:{stage.app.admin_port}") == 1
            assert mend in capsys.readouterr().err
