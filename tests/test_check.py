"""`crossover check` tells every mistake at once, or what would be in force."""

import argparse
import asyncio
import os
import re
from pathlib import Path

import pytest
import yaml
from fakes.curves import NAME, context, measured, one_sided, write
from fakes.engine import Exchange, FakeEngine
from fakes.interpreter import ran

from proxy import check

MISTAKEN = """\
listen:
  port: 99999
admin: {host: "*"}
backends:
  speculative: {url: "127.0.0.1:30001"}
  baseline: {url: "http://127.0.0.1:30002", engin: vllm}
placement: split
routing:
  leave_at: many
timeouts:
  stall_s: -1
queue: {max_waiting: 10}
queue: {max_wait_s: 5}
"""
# Where each of the mistakes is, and a word that its message holds.
TOLD = {
    2: "listen.port",
    3: "admin.host",
    5: "backends.speculative.url",
    6: "engin",
    7: "placement",
    9: "routing.leave_at",
    11: "timeouts.stall_s",
    13: "queue",
}


def options(path: Path, *, offline: bool = True) -> argparse.Namespace:
    return argparse.Namespace(config=path, offline=offline)


def written(folder: Path, text: str) -> Path:
    path = folder / "crossover.yaml"
    path.write_text(text)
    return path


def config_of(first: str, second: str) -> str:
    return yaml.safe_dump({"backends": {"speculative": {"url": first}, "baseline": {"url": second}}})


def test_every_mistake_is_told_with_its_line_and_the_exit_code_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, MISTAKEN)
    assert check.run(options(path)) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == len(TOLD) == 8
    messages: dict[int, str] = {}
    for line in said.err.splitlines():
        place = re.match(rf"{re.escape(str(path))}:(\d+):\d+: ", line)
        assert place is not None, line
        messages[int(place[1])] = line
    assert messages.keys() == TOLD.keys()
    for number, word in TOLD.items():
        assert word in messages[number]
        assert "mend:" in messages[number]


def test_offline_prints_the_settings_in_force_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.run(options(written(tmp_path, config_of("http://10.0.0.1:1", "http://10.0.0.2:2")))) == 0
    said = capsys.readouterr()
    values = yaml.safe_load(said.out)
    assert (said.err, values["backends"]["baseline"]["url"], values["queue"]["max_waiting"]) == (
        "",
        "http://10.0.0.2:2",
        100,
    )


def test_too_few_open_files_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.open_files.limit", lambda: 256)
    assert check.run(options(written(tmp_path, config_of("http://10.0.0.1:1", "http://10.0.0.2:2")))) == 0
    *_, warning, last = capsys.readouterr().out.splitlines()
    assert warning.startswith("# warning: listen.max_connections: 10000 streams need 20000 open files")
    assert last.startswith("# LOOK")


def test_no_key_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-secret")
    text = config_of("http://10.0.0.1:1", "http://10.0.0.2:2").replace("url: http://10.0.0.1:1", "url: &u X")
    text = text.replace("&u X", 'http://10.0.0.1:1\n    api_key: "${ENGINE_KEY}"')
    assert check.run(options(written(tmp_path, text))) == 0
    said = capsys.readouterr()
    assert "sk-secret" not in said.out + said.err
    assert yaml.safe_load(said.out)["backends"]["speculative"]["api_key"] == "***"


def test_what_is_printed_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(options(written(tmp_path, config_of("http://10.0.0.1:1", "http://10.0.0.2:2")))) == 0
    printed = capsys.readouterr().out
    assert check.run(options(written(tmp_path, printed))) == 0
    assert capsys.readouterr().out == printed


def test_a_state_file_that_nobody_can_write_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        config_of("http://10.0.0.1:1", "http://10.0.0.2:2") + "routing: {learn: {state_file: missing/learned.json}}\n"
    )
    path = written(tmp_path, text)
    assert check.run(options(path)) == 0
    *_, warning, last = capsys.readouterr().out.splitlines()
    assert warning.startswith(
        f"# warning: routing.learn.state_file: {tmp_path}/missing/learned.json cannot be written: "
    )
    assert last.startswith("# LOOK: ") and "1 warning above" in last
    (tmp_path / "missing").mkdir()
    assert check.run(options(path)) == 0
    assert "warning" not in capsys.readouterr().out


async def looked(path: Path) -> int:
    """`check` runs a loop of its own."""
    return await asyncio.to_thread(check.run, options(path, offline=False))


async def test_it_says_what_each_backend_runs_and_where_they_disagree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeEngine(max_running_requests=48) as a, FakeEngine(max_running_requests=2048) as b:
        assert await looked(written(tmp_path, config_of(a.url, b.url))) == 0
        said = capsys.readouterr().out
        assert (
            f"# speculative: m on {a.url}, version 0.5.23, at most 48 sequences in flight, speculation EAGLE3" in said
        )
        assert f"# baseline: m on {b.url}, version 0.5.23, at most 2048 sequences in flight" in said
        assert "# warning: the backend in the baseline role speculates" in said
        assert "# warning: the speculative backend runs at most 48 sequences" in said
        assert yaml.safe_load(said)["placement"] == "separate"
        assert a.requests == b.requests == []


async def test_a_backend_that_is_down_or_not_ready_is_told_and_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline", ready=False) as b:
        await a.close()
        assert await looked(written(tmp_path, config_of(a.url, b.url))) == 0
        said = capsys.readouterr().out
        assert f"# speculative: no answer from {a.url}: connection refused; the proxy would start without it" in said
        assert f"# baseline: m on {b.url}" in said
        assert "no speculation told, not ready now" in said


@pytest.mark.parametrize(
    ("status", "doubt"),
    [
        ("404 Not Found", "answered 404: {url}; are its url and `engine` right?"),
        ("503 Service Unavailable", "answered 503: {url}; is it starting, or is something else there?"),
    ],
)
async def test_a_server_that_answers_and_is_no_engine_is_told_from_one_that_does_not_answer(
    status: str, doubt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(b"no", status)

    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        a._serve = refuse  # type: ignore[method-assign]
        assert await looked(written(tmp_path, config_of(a.url, b.url))) == 0
        said = capsys.readouterr().out
        assert f"# speculative: {doubt.format(url=a.url)} As it is, the proxy would start without it" in said
        assert "can be served; the speculative engine does not answer as one" in said.splitlines()[-1]


async def test_an_engine_that_takes_connections_and_says_nothing_is_told_with_the_time_it_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def mute(exchange: Exchange) -> None:
        await exchange.gone()

    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        b._serve = mute  # type: ignore[method-assign]
        text = config_of(a.url, b.url) + "health: {timeout_s: 0.2}\n"
        assert await looked(written(tmp_path, text)) == 0
        said = capsys.readouterr().out
        assert f"# baseline: no answer from {b.url}: none within 0.2 s; the proxy would start without it" in said


@pytest.mark.parametrize("silent", [False, True])
async def test_the_last_line_says_what_it_comes_to(
    silent: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        if silent:
            await a.close()
        path = written(tmp_path, config_of(a.url, b.url))
        assert await looked(path) == 0
        *_, last = capsys.readouterr().out.splitlines()
    no_answer = f"# LOOK: {path} can be served; the speculative engine does not answer"
    assert last == (no_answer if silent else f"# OK: {path} can be served; both engines answer")


def test_the_last_line_counts_the_warnings_and_says_that_nobody_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, measured())
    routing = f"routing: {{curves_file: {NAME}, policy: threshold, leave_at: 90}}\n"
    path = written(tmp_path, config_of("http://10.0.0.1:1", "http://10.0.0.2:2") + routing)
    assert check.run(options(path)) == 0
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"# LOOK: {path} can be served; 1 warning above; the engines were not asked"


async def test_a_backend_that_is_something_else_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        b._server_info = dict  # type: ignore[method-assign]
        b._loads = dict  # type: ignore[method-assign]
        assert await looked(written(tmp_path, config_of(a.url, b.url))) == 0
        assert (
            f"# baseline: {b.url} answers 200 but does not say what it runs; is `engine` right?"
            in capsys.readouterr().out
        )


async def test_an_engine_that_asks_for_a_key_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(b"no", "401 Unauthorized")

    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        b._serve = refuse  # type: ignore[method-assign]
        assert await looked(written(tmp_path, config_of(a.url, b.url))) == 0
        said = f"# baseline: {b.url} answers 401 but does not say what it runs; is api_key right?"
        assert said in capsys.readouterr().out


def test_the_verdict_is_told_for_each_context_and_what_goes_against_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, measured(contexts=[context(), one_sided("unknown", context_tokens=8192)]))
    text = config_of("http://10.0.0.1:1", "http://10.0.0.2:2")
    routing = f"routing: {{curves_file: {NAME}, policy: threshold, leave_at: 90}}\n"
    assert check.run(options(written(tmp_path, text + routing))) == 0
    said = capsys.readouterr().out
    assert "# verdict: at 1024 tokens of context: Baseline overtakes at 6 sequences in flight" in said
    assert "# verdict: at 8192 tokens of context: Not known where speculation stops paying" in said
    assert "# warning: routing.leave_at: 90 is far from where baseline was measured to overtake" in said
    assert yaml.safe_load(said)["routing"]["curves_file"] == NAME


def test_a_mistake_in_the_curves_file_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, measured(contexts=[context(verdict="never")]))
    text = config_of("http://10.0.0.1:1", "http://10.0.0.2:2") + f"routing: {{curves_file: {NAME}}}\n"
    assert check.run(options(written(tmp_path, text))) == 1
    said = capsys.readouterr().err
    assert re.match(rf"{re.escape(str(path))}:\d+:\d+: contexts.0.verdict: must be one of crossover_at, ", said)


async def test_engines_newer_than_their_speeds_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, measured(engines={"speculative": "0.5.22", "baseline": "0.5.23"}))
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        text = config_of(a.url, b.url) + f"routing: {{curves_file: {NAME}}}\n"
        assert await looked(written(tmp_path, text)) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "its speeds were measured with" in line]
    assert told == [
        "# warning: routing.curves_file: the speculative engine is version 0.5.23, and its speeds were measured with "
        "0.5.22; mend: calibrate again"
    ]


def test_what_is_allowed_and_rarely_meant_is_a_warning_and_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config_of("http://10.0.0.1:1", "http://10.0.0.2:2") + 'admin: {host: "0.0.0.0"}\n'
    assert check.run(options(written(tmp_path, text))) == 0
    assert "# warning: admin.host: 0.0.0.0 may be reached from other machines" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path: Path) -> None:
    path = written(tmp_path, config_of("http://10.0.0.1:1", "http://10.0.0.2:2"))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        ended = ran("-m", "proxy", "check", "--offline", path, stdout=gone)
    assert (ended.returncode, ended.stderr) == (0, "")
