"""Each act of an operator is one line: who, by which way, what, before and after; and never a token."""

import base64
import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.own_process import own_process
from fakes.process import Process
from fakes.process import staged as launched
from fakes.raw import Said, ask, request
from fakes.reloading import BASELINE, Engine
from fakes.reloading import staged as reloading
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import logs

TOKEN = "TOKENMARK-sesame"
CLOSED: dict[str, Any] = {"admin": {"port": 0, "token": TOKEN}, "log": {"level": "warning"}}


def basic(user: str, password: str) -> str:
    return "authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def act(stage: Stage, path: str, *lines: str, **body: object) -> Said:
    return await ask(stage.app.admin_port, request(path, orjson.dumps(body), *lines))


def audited(capture: Any) -> list[dict[str, Any]]:
    """The lines of acts, without what stands in each: when, by which way and from where."""
    out = capture.readouterr().out
    assert TOKEN.encode() not in out
    told = [line for line in map(orjson.loads, out.splitlines()) if line["event"] == "audit"]
    for line in told:
        line.pop("timestamp")
        assert (line.pop("event"), line.pop("level"), line.pop("via")) == ("audit", "warning", "port")
        assert line.pop("address") == "127.0.0.1"
    return told


async def test_a_pin_is_told_with_what_was_pinned_before_and_after(capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        for role in ("baseline", "speculative", None, None):
            assert (await act(stage, "/pin", basic("ada", TOKEN), role=role)).status == 200
    assert audited(capfdbinary) == [
        {"act": "pin", "user": "ada", "before": None, "after": "baseline"},
        {"act": "pin", "user": "ada", "before": "baseline", "after": "speculative"},
        {"act": "unpin", "user": "ada", "before": "speculative", "after": None},
        {"act": "unpin", "user": "ada", "before": None, "after": None},
    ]


async def test_a_drain_is_told_with_its_role(capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        bearer = f"authorization: Bearer {TOKEN}"
        await act(stage, "/drain", bearer, role="baseline")
        await act(stage, "/drain", bearer, role="baseline", draining=False)
    assert audited(capfdbinary) == [
        {"act": "drain", "role": "baseline", "before": False, "after": True},
        {"act": "undrain", "role": "baseline", "before": True, "after": False},
    ]


async def test_a_reload_is_told_with_its_changes_and_how_it_ended(tmp_path: Path, capfdbinary: Any) -> None:
    async with Engine() as a, Engine(BASELINE) as b, reloading(tmp_path / "crossover.yaml", a, b) as stage:
        logs.configure("json", "warning")
        stage.change(routing={"leave_at": 70}, log={"level": "warning"})
        assert (await stage.reload())[0] == 200
        stage.write("backends: nonsense\n")
        assert (await stage.reload())[0] == 422
    first, second = audited(capfdbinary)
    assert (first["act"], first["after"], second) == ("reload", "accepted", {"act": "reload", "after": "rejected"})
    assert "routing.leave_at: 60 -> 70" in first["changes"]


@pytest.mark.parametrize("line", [basic("ada", "wrong"), basic(TOKEN, ""), f"authorization: Bearer {TOKEN}x", "x-a: 1"])
async def test_whoever_is_refused_is_told_by_address_alone(line: str, capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        assert (await act(stage, "/pin", line, role="baseline")).status == 401
        assert (await act(stage, "/no/such", line)).status == 401
    assert audited(capfdbinary) == [
        {"act": "refused", "path": "/pin", "status": 401},
        {"act": "refused", "status": 401},
    ]


async def test_another_site_that_is_refused_is_told(capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        said = await act(stage, "/drain", basic("ada", TOKEN), "origin: https://elsewhere.example", role="baseline")
        assert said.status == 403
    assert audited(capfdbinary) == [{"act": "refused", "path": "/drain", "status": 403}]


async def test_the_token_in_the_place_of_the_user_is_not_told(capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        for user in (TOKEN, f"x{TOKEN}", "x" * 33, "a\x1b[31mb", "caf\u00e9"):
            assert (await act(stage, "/pin", basic(user, TOKEN), role=None)).status == 200
    assert audited(capfdbinary) == [{"act": "unpin", "before": None, "after": None}] * 5


async def test_what_is_no_act_is_not_told(capfdbinary: Any) -> None:
    async with staged(**CLOSED) as stage:
        bearer = f"authorization: Bearer {TOKEN}"
        assert (await act(stage, "/pin", bearer, role="nobody")).status == 400
        assert (await act(stage, "/drain", bearer, draining="yes", role="baseline")).status == 400
        assert (await act(stage, "/pin", bearer, role=None, request="forged")).status == 400
        said = await ask(stage.app.admin_port, request("/status", b"", bearer, method="GET"))
        assert said.status == 200
    assert audited(capfdbinary) == []


async def test_reloads_by_signal_and_by_file_say_so(tmp_path: Path) -> None:
    async with (
        Engine() as a,
        Engine(BASELINE) as b,
        own_process(tmp_path, a.url, b.url, log={"format": "json", "level": "info"}) as process,
    ):
        out = tmp_path / "out"

        def ways() -> list[str]:
            lines = [orjson.loads(line) for line in out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
            return [line["via"] for line in lines if line["event"] == "audit"]

        process.signal(signal.SIGHUP)
        await until(lambda: ways() == ["signal"], what="the reload by signal")
        config = tmp_path / "crossover.yaml"
        beside = tmp_path / "beside"
        beside.write_text(f"{config.read_text()}\nqueue: {{max_waiting: 7}}\n")
        beside.replace(config)
        await until(lambda: ways() == ["signal", "file"], what="the reload by a changed file")


async def test_a_stop_by_signal_is_told_and_so_is_a_second_one(tmp_path: Path) -> None:
    async with launched(tmp_path, settle_s=60.0, drain_s=60.0) as stage:
        process = stage.process
        await stage.streaming(1)
        process.signal(signal.SIGTERM)
        await until(lambda: process.logged("drain_began"))
        process.signal(signal.SIGINT)
        assert await process.ended() == 0
        stops = [{name: line.get(name) for name in ("act", "via", "signal", "at_once")} for line in audits(process)]
    first = {"act": "stop", "via": "signal", "signal": "SIGTERM", "at_once": None}
    assert stops == [first, {**first, "signal": "SIGINT", "at_once": True}]


def audits(process: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = process.logged("audit")
    assert {line["level"] for line in found} == {"warning"}
    return found
