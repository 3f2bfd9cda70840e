"""The operators' port asks for its token where one is set, of everybody and for everything but its own health."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.background import in_background
from fakes.engine import FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, request
from fakes.reloading import staged as reloading
from fakes.stage import staged

from proxy.app import App
from proxy.terminal import status

TOKEN = "TOKENMARK-sesame"
OPEN = {"admin": {"port": 0}}
CLOSED = {"admin": {"port": 0, "token": TOKEN}}
PATHS = (
    "GET /",
    "GET /metrics",
    "GET /status",
    "GET /decisions",
    "GET /config",
    "POST /reload",
    "POST /pin",
    "POST /drain",
)
BEARER = f"authorization: Bearer {TOKEN}"


def basic(user: str, password: str) -> str:
    return "authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def operate(
    app: App, what: str, *lines: str, body: bytes = b'{"role": "baseline"}', version: str = "1.1"
) -> Said:
    method, path = what.split(" ")
    data = request(path, body if method == "POST" else b"", *lines, method=method, version=version)
    return await ask(app.admin_port, data, bodiless=method == "HEAD")


def require_refused(said: Said) -> None:
    schemes = [value for name, value in said.headers if name.lower() == "www-authenticate"]
    assert (said.status, schemes) == (401, ['Basic realm="crossover"', "Bearer"])
    assert TOKEN.encode() not in said.body


@pytest.mark.parametrize("what", [*PATHS, "GET /nothing", "HEAD /status", "DELETE /status", "POST /health/more"])
async def test_every_path_asks_for_the_token(what: str) -> None:
    async with staged(**CLOSED) as stage:
        require_refused(await operate(stage.app, what))
        assert stage.app.desk.rules.operator_pin is None
        assert not any(backend.draining for backend in stage.app.desk.backends)


@pytest.mark.parametrize("what", PATHS)
@pytest.mark.parametrize("line", [BEARER, basic("", TOKEN), basic("anybody", TOKEN)])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_the_token_opens_every_path(what: str, line: str, version: str) -> None:
    async with staged(**CLOSED) as stage:
        assert (await operate(stage.app, what, line, version=version)).status == 200


@pytest.mark.parametrize(
    "line",
    [
        *(
            "authorization: Bearer",
            "authorization: Bearer wrong",
            f"authorization: Bearer {TOKEN}x",
            f"x-api-key: {TOKEN}",
        ),
        *(
            f"authorization: {TOKEN}",
            basic(TOKEN, ""),
            basic("admin", "wrong"),
            "authorization: Basic ?",
            "cookie: a=b",
        ),
    ],
)
async def test_nothing_else_opens_it(line: str) -> None:
    async with staged(**CLOSED) as stage:
        require_refused(await operate(stage.app, "GET /status", line))


async def test_health_is_told_without_the_token() -> None:
    async with staged(**CLOSED) as stage:
        assert (await operate(stage.app, "GET /health")).status == 200


@pytest.mark.parametrize("what", PATHS)
async def test_without_a_token_nothing_is_asked_for(what: str) -> None:
    async with staged(**OPEN) as stage:
        assert (await operate(stage.app, what)).status == 200


async def test_another_site_cannot_use_the_token_that_a_browser_remembers() -> None:
    async with staged(**CLOSED) as stage:
        said = await operate(stage.app, "POST /pin", basic("", TOKEN), "origin: https://evil.example")
        assert said.status == 403
        assert stage.app.desk.rules.operator_pin is None


async def test_the_token_is_not_the_clients_business() -> None:
    async with staged(**CLOSED) as stage:
        assert (await stage.ask()).status == 200


async def test_a_changed_token_holds_from_the_reload_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, reloading(tmp_path / "c.yaml", a, b) as stage:
        stage.change(admin={"token_file": "token"})
        status, said = await stage.reload()
        assert (status, TOKEN in str(said)) == (200, False)
        assert (await stage.reload())[0] == 401
        (tmp_path / "token").write_text("another\n")
        assert (await operate(stage.app, "POST /reload", BEARER)).status == 200
        require_refused(await operate(stage.app, "POST /reload", BEARER))
        assert (await operate(stage.app, "POST /reload", "authorization: Bearer another")).status == 200


async def test_a_changed_token_ends_the_streams_that_the_old_one_opened(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, reloading(tmp_path / "c.yaml", a, b) as stage:
        stage.change(admin={"token_file": "token"})
        assert (await stage.reload())[0] == 200
        async with RawClient(stage.app.admin_port) as client:
            await client.send(request("/stream", b"", BEARER, method="GET"))
            assert (await client.head()).status == 200
            assert (await operate(stage.app, "POST /reload", BEARER)).status == 200
            assert stage.app.watch.stream.readers == 1, "the same token: nothing ends"
            (tmp_path / "token").write_text("another")
            assert (await operate(stage.app, "POST /reload", BEARER)).status == 200
            async with asyncio.timeout(5):
                while await client.chunk():
                    pass
            assert stage.app.watch.stream.readers == 0
        async with RawClient(stage.app.admin_port) as client:
            await client.send(request("/stream", b"", BEARER, method="GET"))
            require_refused(await client.answer())
        async with RawClient(stage.app.admin_port) as client:
            await client.send(request("/stream", b"", "authorization: Bearer another", method="GET"))
            assert (await client.head()).status == 200


async def test_the_token_is_shown_and_logged_nowhere(capfdbinary: Any) -> None:
    async with staged(**CLOSED, log={"level": "debug"}) as stage:
        said = [await operate(stage.app, what, BEARER) for what in PATHS]
        said += [await operate(stage.app, what, f"{BEARER}x") for what in PATHS]
    assert TOKEN not in str(said)
    assert b"token: '***'" in said[PATHS.index("GET /config")].body
    out = capfdbinary.readouterr()
    assert TOKEN.encode() not in out.out + out.err
    refused = [line for line in map(orjson.loads, out.out.splitlines()) if line.get("act") == "refused"]
    assert [line["address"] for line in refused] == ["127.0.0.1"] * len(PATHS)


# ---------------------------------------------------------------- a port that many may reach


async def test_a_port_that_others_may_reach_without_a_token_is_warned_of_at_the_start(capfdbinary: Any) -> None:
    async with staged(admin={"port": 0, "host": "0.0.0.0"}, log={"level": "warning"}):
        pass
    [line] = map(orjson.loads, capfdbinary.readouterr().out.splitlines())
    assert (line["event"], line["level"]) == ("config_caution", "warning")
    assert line["message"].startswith("admin.host: 0.0.0.0 may be reached from other machines")
    assert "mend: set admin.token" in line["message"]


@pytest.mark.parametrize("admin", [{}, {"host": "0.0.0.0", "token": TOKEN}])
async def test_a_port_of_this_machine_or_with_a_token_is_not_warned_of(capfdbinary: Any, admin: dict[str, str]) -> None:
    async with staged(admin={"port": 0, **admin}, log={"level": "warning"}):
        pass
    assert capfdbinary.readouterr().out == b""


# ---------------------------------------------------------------- crossover status


def test_status_sends_the_token_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    (tmp_path / "wrong").write_text("wrong")
    monkeypatch.delenv("CROSSOVER_ADMIN_TOKEN", raising=False)
    with in_background(running(settings("http://127.0.0.1:1", "http://127.0.0.1:2", **CLOSED))) as app:
        url = f"http://127.0.0.1:{app.admin_port}"
        assert status.show(url) == 1
        assert "mend: give --token-file, or set CROSSOVER_ADMIN_TOKEN" in capsys.readouterr().err
        # Without backends it is not ready, whoever asks.
        assert status.show(url, tmp_path / "token", as_json=True) == 1
        assert orjson.loads(capsys.readouterr().out)["phase"] == "serving"
        monkeypatch.setenv("CROSSOVER_ADMIN_TOKEN", TOKEN)
        assert status.show(url) == 1
        assert "serving, NOT READY" in capsys.readouterr().out
        assert status.show(url, tmp_path / "wrong") == 1
        assert status.show(url, tmp_path / "missing") == 1
    said = capsys.readouterr()
    assert "--token-file names no regular file" in said.err
    assert TOKEN not in said.out + said.err


def test_status_takes_the_token_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSOVER_ADMIN_TOKEN", TOKEN)
    with in_background(_two_engines()) as (here, there):
        here.script = lambda exchange: exchange.answer(b"", "302 Found", f"location: {there.url}/status")
        there.script = lambda exchange: exchange.answer(b"{}")
        assert status.show(here.url) == 1  # what answers is no Crossover
        assert here.requests[0].header("authorization") == f"Bearer {TOKEN}"
        assert there.requests[0].header("authorization") is None


@contextlib.asynccontextmanager
async def _two_engines() -> AsyncIterator[tuple[FakeEngine, FakeEngine]]:
    async with FakeEngine() as here, FakeEngine() as there:
        yield here, there
