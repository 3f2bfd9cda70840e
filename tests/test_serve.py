"""`crossover serve` starts from a file or the demo, or says why not. Its signals are in flow/test_flow_drain.py."""

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from fakes.interpreter import ran
from fakes.raw import ask, chat, request
from fakes.until import until

from proxy import serve
from proxy.config import InvalidConfig
from proxy.model import Placement

ROOT = Path(__file__).parents[1]
BACKENDS = {"speculative": {"url": "http://127.0.0.1:1"}, "baseline": {"url": "http://127.0.0.1:2"}}


def options(**given: Any) -> argparse.Namespace:
    names = ("config", "host", "port", "admin_port", "log_format", "log_level", "curve", "policy")
    return argparse.Namespace(**{**dict.fromkeys(names), "time_scale": 1.0, "placement": Placement.SEPARATE, **given})


def written(folder: Path, **sections: Any) -> Path:
    path = folder / "crossover.yaml"
    ports = {"listen": {"host": "127.0.0.1", "port": 0}, "admin": {"port": 0}}
    path.write_text(yaml.safe_dump({"backends": BACKENDS, **ports, **sections}))
    return path


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# ---------------------------------------------------------------- settings


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, listen={"host": "10.0.0.1", "port": 1}, log={"level": "error"})
    settings = serve.read(path, options(port=2, admin_port=3, log_format="text"))
    assert (settings.listen.host, settings.listen.port, settings.admin.port) == ("10.0.0.1", 2, 3)
    assert (settings.log.format, settings.log.level) == ("text", "error")


def test_without_overrides_the_file_holds(tmp_path: Path) -> None:
    assert serve.read(written(tmp_path), options()).listen.port == 0


def test_an_override_that_is_impossible_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"listen\.port"):
        serve.read(written(tmp_path), options(port=70000))


def test_variables_are_filled_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAST_ENGINE", "http://10.1.1.1:9")
    path = written(tmp_path, backends={**BACKENDS, "speculative": {"url": "${FAST_ENGINE}"}})
    assert serve.read(path, options()).backends.speculative.url == "http://10.1.1.1:9"


# ---------------------------------------------------------------- what stops a start


def test_a_bad_file_stops_the_start_with_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, placement="split", routing={"leave_at": 1, "enter_at": 7})
    assert serve.run(options(config=path)) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 2)
    assert "placement" in said.err
    assert "routing.leave_at" in said.err


@pytest.mark.parametrize("section", ["listen", "admin"])
def test_a_taken_port_stops_the_start_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], taken: int, section: str
) -> None:
    path = written(tmp_path, **{section: {"host": "127.0.0.1", "port": taken}})
    assert serve.run(options(config=path)) == 1
    [line] = [line for line in map(orjson.loads, capfd.readouterr().out.splitlines()) if line["level"] == "error"]
    assert line["event"] == "start_failed"
    assert line["message"].startswith(f"{section}.port: {taken} on 127.0.0.1 is taken; mend: ")


def test_an_address_of_another_machine_stops_the_start_and_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, listen={"host": "192.0.2.1", "port": 0})
    assert serve.run(options(config=path)) == 1
    assert "listen.host: cannot listen on 192.0.2.1" in capfd.readouterr().out


def test_an_unknown_curve_stops_the_demo_and_those_known_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.run(options(curve="no-such-curve")) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert "seed" in said.err


def test_an_interrupt_before_there_is_anything_to_drain_is_a_clean_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(_: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "_run", interrupted)
    assert serve.run(options()) == 0


# What hangs for ever is a file on a disk that does; no program can end the thread that reads or writes it. The limit
# that is not asked about is an hour.
HANGS = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from proxy import serve
from proxy.app import App
from test_serve import options
case, path = sys.argv[1:]
limits = {"stop": "END_WITHIN_S", "loop": "CLOSE_WITHIN_S", "start": "CLOSE_WITHIN_S", "twice": "HURRY_WITHIN_S"}
for name in set(limits.values()) | {"END_WITHIN_S"}:
    setattr(serve, name, 0.2 if name == limits.get(case) else 3600.0)
def told(times):
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGTERM)
async def hang(*_):
    if case in ("start", "idle", "twice"):
        asyncio.get_running_loop().call_later(0.01, told, 2 if case == "twice" else 1)
    await (asyncio.Event().wait() if case == "idle" else asyncio.to_thread(threading.Event().wait))
async def run(_):
    asyncio.ensure_future(hang())
    await asyncio.sleep(0)
    return serve.OK
async def at_once(*_): ...
if case == "loop":
    serve._run = run
elif case in ("start", "idle"):
    App.start = hang
else:
    App.stop, serve._until_signalled = hang, at_once
sys.exit(serve.run(options(config=Path(path))))
"""
OVERDUE = "a file that it reads or writes, or a lookup, hangs"


def hanging(case: str, folder: Path) -> tuple[int, bool]:
    """The exit code of a proxy in which something hangs, and whether it said so."""
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    ended = ran("-c", HANGS, case, written(folder), env=os.environ | path)
    return ended.returncode, OVERDUE in ended.stderr


@pytest.mark.parametrize("where", ["stop", "loop"])
def test_a_file_that_hangs_does_not_keep_the_proxy_from_its_end(tmp_path: Path, where: str) -> None:
    assert hanging(where, tmp_path) == (1, True)


def test_a_file_that_hangs_at_the_start_does_not_keep_it_from_its_end(tmp_path: Path) -> None:
    assert hanging("start", tmp_path) == (1, True)


def test_a_signal_ends_a_start_that_waits_for_others(tmp_path: Path) -> None:
    assert hanging("idle", tmp_path) == (0, False)


def test_a_second_signal_ends_at_once_what_hangs(tmp_path: Path) -> None:
    assert hanging("twice", tmp_path) == (1, True)


# A network file system that is gone: opening a file on it does not return. Told to stop, once it was said what is
# waited for.
GONE = """
import os, signal, sys, threading
from pathlib import Path
from proxy import config, disk, serve
from test_serve import options
disk.SLOW_S = 0.01
def gone(*_):
    threading.Event().wait()
config.load = gone
say = serve._say
def said(message):
    say(message)
    if "waited for" in message:
        os.kill(os.getpid(), signal.Signals[sys.argv[2]])
serve._say = said
sys.exit(serve.run(options(config=Path(sys.argv[1]))))
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_configuration_whose_disk_hangs_is_named_and_a_signal_ends_the_start(tmp_path: Path, number: str) -> None:
    path = tmp_path / "crossover.yaml"
    ended = ran("-c", GONE, path, number, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"})
    assert (ended.returncode, ended.stderr.splitlines()) == (
        0,
        [
            f"{path}: its disk has not answered for 0.01 s, and is waited for",
            f"{number} ended the start before {path} was read",
        ],
    )


# ---------------------------------------------------------------- what it takes of the machine


@pytest.mark.parametrize(
    ("limits", "set_to"), [((1024, 65536), [(65536, 65536)]), ((4096, 4096), [])], ids=["low", "high"]
)
def test_the_limit_of_open_files_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], set_to: list[tuple[int, int]]
) -> None:
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: seen.append(wanted))
    serve._raise_file_limit()
    assert seen == set_to


@contextlib.asynccontextmanager
async def demo(*more: str, stderr: int) -> AsyncIterator[tuple[Process, str]]:
    """A demo in a process of its own, and what it has said up to the end of its greeting."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", "--port", "0", "--admin-port", "0", *more),
        cwd=ROOT,
        stdout=PIPE,
        stderr=stderr,
    )
    told = process.stdout if process.stderr is None else process.stderr
    assert told is not None
    said = ""
    try:
        async with asyncio.timeout(100):
            while "Ctrl-C ends it" not in said:
                line = (await told.readline()).decode()
                assert line, said
                said += line
        yield process, said
    finally:
        if process.returncode is None:
            process.kill()
        await until(lambda: process.returncode is not None)


async def test_the_demo_greets_serves_and_ends_with_an_interrupt() -> None:
    async with demo(stderr=STDOUT) as (process, said):
        found = re.search(r"Crossover on http://127\.0\.0\.1:(\d+)", said)
        assert found is not None
        assert re.search(r"open http://127\.0\.0\.1:\d+/\n", said), "the page is named where one looks first"
        asked = request("/v1/chat/completions", chat(stream=True, max_tokens=4), "content-type: application/json")
        answer = await ask(int(found[1]), asked)
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body.endswith(b"data: [DONE]\n\n")
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        async with asyncio.timeout(60):
            rest = (await process.stdout.read()).decode()
            assert (await process.wait(), "Traceback" in rest) == (0, False)


async def test_the_demos_greeting_stays_out_of_a_log_of_json() -> None:
    async with demo("--log-format", "json", "--log-level", "info", stderr=PIPE) as (process, _):
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            logged, _ = await process.communicate()
    lines = {line["event"]: line for line in map(json.loads, logged.splitlines())}
    assert {"started", "stopped"} <= lines.keys()
    assert lines["started"]["host"] == "127.0.0.1", "nobody has asked others in"


def test_a_wrong_keys_file_stops_the_start_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "keys").write_text("# clients\nalpha crossover_secret\n")
    path = written(tmp_path, listen={"host": "127.0.0.1", "port": 0, "api_keys_file": "keys"})
    assert serve.run(options(config=path)) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.startswith(f"{tmp_path / 'keys'}:2:1: holds a key itself")) == ("", True)
    assert "crossover_secret" not in said.err
