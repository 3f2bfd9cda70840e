import argparse
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.sse_server import DONE, ROLE, Reply, SseServer, by, delta, whole

from proxy.lab import interrupt
from proxy.lab.interrupt import EXIT_INTERRUPTED
from proxy.lab.loadgen import add_arguments, progress_line, run
from proxy.lab.loadreport import LevelSpec, Loop
from proxy.lab.loadwalk import Progress
from proxy.model import Role
from proxy.tasks import running


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="load")
    add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def obliging(server: SseServer, request: object) -> Reply:
    asked = request.headers.get("x-crossover-backend")  # type: ignore[attr-defined]
    choice = "speculative" if server.in_flight <= 2 else "baseline"
    return Reply(whole(tokens=10), headers=by(asked or choice, "header" if asked else "regime"))


def stubborn(*_: object) -> Reply:
    return Reply(whole(tokens=10), headers=by("baseline"))


async def figures(server: SseServer, file: Path, *words: object) -> tuple[int, dict[str, Any]]:
    code = await run(parsed(server.url, "--json", file, *words))
    return code, orjson.loads(file.read_bytes())  # noqa: ASYNC240 - a small file in a test


async def test_a_load_prints_a_row_a_level_and_writes_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SseServer(obliging) as server:
        code, said = await figures(server, tmp_path / "a.json", "--concurrency", "1,2", "--requests", 4)
    assert code == 0
    assert [level["requests"] for level in said["levels"]] == [4, 4]
    assert {body["model"] for body in server.bodies} == {"fake-model"}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[:3]] == ["level", "concurrency 1", "concurrency 2"]
    assert "rough" in lines[-1], "four requests a level were printed as if they were a measurement"
    assert "100%" in lines[1]
    assert lines[1].endswith("4 regime")
    assert running() == 0


async def test_a_ramp_walks_up_and_down_again(tmp_path: Path) -> None:
    async with SseServer(obliging) as server:
        _, said = await figures(server, tmp_path / "a.json", "--concurrency", "1,2,3", "--ramp", "--requests", 3)
    assert [level["spec"]["value"] for level in said["levels"]] == [1, 2, 3, 2, 1]


async def test_comparing_measures_each_backend_alone_once_a_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SseServer(obliging) as server:
        words = ("--concurrency", "1,2", "--ramp", "--requests", 4, "--compare")
        code, said = await figures(server, tmp_path / "a.json", *words)
    assert code == 0
    assert [(arm["asked"], arm["spec"]["value"]) for arm in said["only"]] == [
        (role, value) for role in ("speculative", "baseline") for value in (1, 2)
    ]
    assert all(arm["honoured"] == 1.0 and arm["shares"] == {arm["asked"]: 1.0} for arm in said["only"])
    assert [row["gain"] is not None for row in said["comparisons"]] == [True] * 3
    text = capsys.readouterr().out
    assert "gain over the better" in text
    assert "only speculative tok/s" in text


async def test_comparing_says_so_when_the_proxy_does_not_allow_the_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SseServer(stubborn) as server:
        words = ("--concurrency", "1", "--requests", 2, "--compare")
        code, said = await figures(server, tmp_path / "a.json", *words)
    assert code == 0
    assert [arm["asked"] for arm in said["only"]] == ["baseline"]
    assert said["comparisons"][0]["only_speculative"] is None
    out = capsys.readouterr().out
    assert (
        "note: only speculative was not measured: the answer to a request that asked for it came from baseline" in out
    )
    assert "routing.allow_header: true" in out


async def test_comparing_says_so_when_the_server_is_no_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    async with SseServer(lambda *_: Reply(whole())) as server:
        assert await run(parsed(server.url, "--concurrency", "1", "--requests", "2", "--compare")) == 0
    out = capsys.readouterr().out
    assert "is this a Crossover proxy?" in out
    assert "shares of the backends are not known" in out


async def test_tok_s_is_unknown_and_said_so_when_the_server_tells_no_usage(capsys: pytest.CaptureFixture[str]) -> None:
    async with SseServer(lambda *_: Reply([ROLE, delta(content="a"), DONE], headers=by("baseline"))) as server:
        assert await run(parsed(server.url, "--concurrency", "1", "--requests", "2")) == 0
    out = capsys.readouterr().out
    assert "2 answers told no usage, so tok/s is not known" in out


async def test_exit_is_1_with_the_mend_when_no_server_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    async with SseServer(obliging) as server:
        url = server.url
    assert await run(parsed(url)) == 1
    assert await run(parsed(url, "--model", "m", "--concurrency", "1", "--requests", "1")) == 1
    assert capsys.readouterr().err.count("is the proxy up?") == 2


async def test_exit_is_1_when_every_request_failed(capsys: pytest.CaptureFixture[str]) -> None:
    async with SseServer(lambda *_: Reply(status=401)) as server:
        assert await run(parsed(server.url, "--concurrency", "2", "--requests", "4", "--compare")) == 1
    said = capsys.readouterr()
    assert "4 status 401" in said.out
    assert "--api-key" in said.err


async def test_exit_is_1_before_any_request_when_the_file_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with SseServer(obliging) as server:
        assert await run(parsed(server.url, "--json", tmp_path / "no" / "a.json")) == 1
    assert server.bodies == []
    assert "name a file that can be written" in capsys.readouterr().err


async def test_ctrl_c_prints_what_was_measured_and_exits_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def five_then_stop(server: SseServer, _: object) -> Reply:
        if len(server.bodies) < 6:
            return Reply(whole(), headers=by("speculative"))
        signal.raise_signal(signal.SIGINT)
        return Reply([ROLE], headers=by("speculative"), ending="hang")

    before = signal.getsignal(signal.SIGINT)
    try:
        async with SseServer(five_then_stop) as server:
            code, said = await figures(
                server, tmp_path / "a.json", "--concurrency", "1", "--duration", 60, "--warmup", 0
            )
            await server.until(lambda: server.in_flight == 0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == EXIT_INTERRUPTED
    assert (said["interrupted"], said["levels"][0]["requests"]) == (True, 5)
    assert "stopped early" in capsys.readouterr().out
    assert running() == 0


async def test_the_key_is_in_no_figure_and_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSOVER_API_KEY", "secret-key")
    async with SseServer(obliging) as server:
        await figures(server, tmp_path / "a.json", "--concurrency", "1", "--requests", 1)
    assert server.requests[0].headers["authorization"] == "Bearer secret-key"
    said = capsys.readouterr()
    assert "secret-key" not in said.out + said.err + (tmp_path / "a.json").read_text()


async def test_prompts_begin_differently_in_every_run_when_asked_to_be_unique() -> None:
    async with SseServer(obliging) as server:
        for _ in range(2):
            await run(parsed(server.url, "--concurrency", "1", "--requests", "3", "--unique"))
    beginnings = [str(body["messages"])[:60] for body in server.bodies]
    assert len(set(beginnings)) == 6


async def test_the_progress_line_is_drawn_and_wiped_when_watched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(interrupt, "_REDRAW_S", 0.0)
    async with SseServer(obliging) as server:
        await run(parsed(server.url, "--rate", "500", "--requests", "5"))
    err = capsys.readouterr().err
    assert "rate 500/s" in err
    assert err.endswith("\r\x1b[K")


@pytest.mark.parametrize(("done", "filled"), [(0.0, 0), (0.5, 12), (1.0, 24)])
def test_the_progress_bar_fills_with_the_level(done: float, filled: int) -> None:
    line = progress_line(Progress(LevelSpec(Loop.CLOSED, 8.0), Role.BASELINE, done, 8, 30, 1))
    assert line.count("#") == filled
    assert line.startswith("only baseline, concurrency 8 [")
    assert line.endswith("30 ended, 1 failed, 8 in flight")


@pytest.mark.parametrize(
    "words",
    [
        ("ftp://a",),
        ("http://user:key@a",),
        ("--concurrency", "1,0"),
        ("--concurrency", "1.5"),
        ("--rate", "nan"),
        ("--rate", "1", "--concurrency", "1"),
        ("--duration", "0"),
        ("--prompts", "poems"),
    ],
)
def test_bad_usage_exits_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:30000", "http://127.0.0.1:30000/", "http://127.0.0.1:30000/v1/"])
def test_the_address_is_taken_with_or_without_its_path(url: str) -> None:
    assert parsed(url).url == "http://127.0.0.1:30000"
