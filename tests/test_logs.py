"""One line a request that tells the decision's numbers, and never a word of what was asked, answered or kept secret."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import aiohttp
import orjson
import pytest
import yaml
from fakes.engine import Exchange, FakeEngine
from fakes.proxy import running, settings
from fakes.raw import ask, chat, request
from fakes.until import until
from hypothesis import given
from hypothesis import strategies as st

from proxy import logs, tasks
from proxy.model import (
    Because,
    Change,
    ChangeKind,
    Decision,
    Outcome,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Usage,
)

ROOT = Path(__file__).parents[1]
Style = Literal["json", "text"]
BECAUSE = Because(Policy.THRESHOLD, 1, 2, 3.14159, 5, 9, Role.SPECULATIVE)
FACTS = RequestFacts(
    request_id="id-1",
    route="/v1/chat/completions",
    method="POST",
    outcome=Outcome.FINISHED,
    status=200,
    decision=Decision(Role.SPECULATIVE, Reason.REGIME, Regime(), BECAUSE),
    traits=Traits(weight=2, stream=True, model="secret", prompt_bytes=77),
    duration_s=1.23456789,
    ttft_s=0.1,
    usage=Usage(10, 20, 0),
    client="127.0.0.1",
)

# ---------------------------------------------------------------- the line of a request


def test_a_request_is_one_line_of_json_with_the_numbers_of_its_decision(capfdbinary: Any) -> None:
    logs.request_settled(logs.configure("json", "info"), FACTS)
    out, err = capfdbinary.readouterr()
    line = orjson.loads(out)
    assert (out.count(b"\n"), err) == (1, b"")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line.pop("timestamp"))
    assert line == {
        "event": "request_settled",
        "level": "info",
        "request_id": "id-1",
        "client": "127.0.0.1",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "outcome": "finished",
        "weight": 2,
        "stream": True,
        "body_bytes": 77,
        "attempts": 1,
        "role": "speculative",
        "reason": "regime",
        "policy": "threshold",
        "regime": "speculative",
        "speculative_in_flight": 1,
        "baseline_in_flight": 2,
        "smoothed": 3.14,
        "enter_at": 5,
        "leave_at": 9,
        "duration_s": 1.234568,
        "queue_s": 0.0,
        "overhead_s": 0.0,
        "ttft_s": 0.1,
        "prompt_tokens": 10,
        "completion_tokens": 20,
    }


def test_a_client_with_a_key_is_told_by_its_name() -> None:
    assert logs.request_fields(replace(FACTS, client_name="alpha"))["client_name"] == "alpha"
    assert "client_name" not in logs.request_fields(FACTS)


def test_fields_that_say_nothing_are_left_out() -> None:
    fields = logs.request_fields(replace(FACTS, decision=None, ttft_s=None, usage=Usage(), client=None))
    assert (
        not {"role", "reason", "ttft_s", "tpot_s", "prompt_tokens", "client", "failure", "first_failure"}
        & fields.keys()
    )


@given(st.text())
def test_a_model_name_is_never_logged_and_any_value_stays_on_its_line(words: str) -> None:
    facts = replace(FACTS, route=words, failure=words, traits=Traits(model="a model of the client"))
    event = logs.escape_controls(None, "info", dict(logs.request_fields(facts)))
    assert "a model of the client" not in str(event)
    assert all(value.isprintable() for value in event.values() if isinstance(value, str))
    assert len(orjson.dumps(event).splitlines()) == 1


@pytest.mark.parametrize("style", ["json", "text"])
def test_control_characters_are_written_as_escapes(style: Style, capfdbinary: Any) -> None:
    log = logs.configure(style, "info")
    log.info("engine_seen", model="a\r\nb\x1b[31m\u2028\udcff", notes=["c\nd\x07", "\ud800"])
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", out)


def test_text_is_for_people_and_without_colours_where_nobody_looks(capfdbinary: Any) -> None:
    logs.request_settled(logs.configure("text", "info"), FACTS)
    out = capfdbinary.readouterr().out.decode()
    assert "request_settled" in out
    assert "reason=regime" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("level", "lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_not_written(level: str, lines: int, capfdbinary: Any) -> None:
    log = logs.configure("json", level)
    for write in (log.debug, log.info, log.warning, log.error):
        write("something_happened")
    assert capfdbinary.readouterr().out.count(b"\n") == lines


def test_a_change_is_a_line_under_its_own_name(capfdbinary: Any) -> None:
    logs.changed(logs.configure("json", "info"), Change(ChangeKind.CIRCUIT, Role.BASELINE, "closed", "open"))
    line = orjson.loads(capfdbinary.readouterr().out)
    assert (line["event"], line["role"], line["before"], line["after"]) == (
        "circuit_changed",
        "baseline",
        "closed",
        "open",
    )


@pytest.mark.parametrize("style", ["json", "text"])
def test_an_output_that_nobody_reads_loses_lines_and_breaks_nothing(
    style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", output)
    log = logs.configure(style, "info")
    for _ in range(1000):
        logs.request_settled(log, FACTS)
    with contextlib.suppress(BrokenPipeError):
        output.close()
    logs.request_settled(log, FACTS)


# ---------------------------------------------------------------- lines that a thread writes


class Pipe:
    """A pipe whose reader reads when a test says so."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.filled = 0

    def fill(self) -> None:
        """Leave no room for a single byte."""
        os.set_blocking(self.writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.filled += os.write(self.writing, b"x")
        os.set_blocking(self.writing, True)

    def whole(self) -> bytes:
        """What was written, to the end, without the filling."""
        self.leave("writing")
        with open(self.reading, "rb", closefd=False) as reader:
            return reader.read()[self.filled :]

    def leave(self, *ends: str) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(getattr(self, end))
            setattr(self, end, -1)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.leave("reading", "writing")


def drained(pipe: Pipe, size_bytes: int) -> bytes:
    """The next bytes of a pipe, waiting for them."""
    got = b""
    while len(got) < size_bytes:
        got += os.read(pipe.reading, size_bytes - len(got))
    return got


def test_a_thread_writes_lines_in_their_order_and_the_last_ones_before_it_ends(pipe: Pipe) -> None:
    lines = [b"line %d\n" % number for number in range(1000)]
    writer = logs.LineWriter(pipe.writing)
    for line in lines:
        writer.write(line)
    assert writer.close(10)
    assert pipe.whole() == b"".join(lines)


async def test_lines_beyond_the_bound_are_dropped_and_their_number_stands_in_their_place(pipe: Pipe) -> None:
    pipe.fill()
    writer = logs.LineWriter(pipe.writing, max_lines=5)
    writer.write(b"stuck\n")
    await until(lambda: writer.waiting == 0)
    for number in range(8):
        writer.write(b"%d\n" % number)
    assert (writer.waiting, writer.dropped) == (5, 3)
    drained(pipe, pipe.filled)
    pipe.filled = 0
    await until(lambda: writer.dropped == 0)
    writer.write(b"after\n")
    assert writer.close(10)
    assert pipe.whole() == b"stuck\n0\n1\n2\n3\n4\n3 lines dropped\nafter\n"


def test_a_reader_who_is_stuck_is_not_waited_for_beyond_the_limit(pipe: Pipe) -> None:
    pipe.fill()
    writer = logs.LineWriter(pipe.writing)
    writer.write(b"never read\n")
    assert not writer.close(0.01)
    writer.write(b"too late\n")
    pipe.leave("reading")
    assert writer.close(10)


@pytest.mark.parametrize("output", ["unread", "closed", "none"])
def test_an_output_that_is_gone_loses_lines_and_keeps_nothing_waiting(pipe: Pipe, output: str) -> None:
    writer = logs.LineWriter(None if output == "none" else pipe.writing)
    pipe.leave(*({"unread": ("reading",), "closed": ("writing",)}.get(output, ())))
    for _ in range(1000):
        writer.write(b"lost\n")
    assert writer.close(10)
    assert (writer.waiting, writer.dropped) == (0, 0)


def test_an_output_that_was_made_not_to_block_is_waited_for(pipe: Pipe) -> None:
    pipe.fill()
    os.set_blocking(pipe.writing, False)
    writer = logs.LineWriter(pipe.writing)
    writer.write(b"a line\n")
    assert not writer.close(0.01)
    drained(pipe, pipe.filled)
    pipe.filled = 0
    assert writer.close(10)
    assert pipe.whole() == b"a line\n"


@pytest.mark.parametrize("style", ["json", "text"])
def test_logging_set_up_anew_keeps_its_thread_and_tells_what_was_dropped(
    style: Style, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.fdopen(pipe.writing, "w", closefd=False) as output:
        monkeypatch.setattr(sys, "stdout", output)
        with logs.written_aside() as writer:
            log = logs.configure("json", "info")
            log.info("before")
            logs.configure(style, "error")
            log.error("after", model="caf\u00e9")
            writer.write(writer.notice(7))
    lines = pipe.whole().decode().splitlines()
    assert ["before" in lines[0], "after" in lines[1], "caf\u00e9" in lines[1]] == [True] * 3
    assert "log_lines_dropped" in lines[2]
    if style == "json":
        told = orjson.loads(lines[2])
        assert (told["event"], told["level"], told["lines"]) == ("log_lines_dropped", "warning", 7)


def test_after_the_thread_has_ended_logging_is_set_up_without_one(capfdbinary: Any) -> None:
    with logs.written_aside():
        logs.configure("json", "info").info("first")
    logs.configure("json", "info").info("second")
    assert [orjson.loads(line)["event"] for line in capfdbinary.readouterr().out.splitlines()] == ["first", "second"]


@pytest.mark.parametrize("style", ["json", "text"])
def test_without_standard_output_lines_are_lost(style: Style, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    logs.configure(style, "info").info("nowhere")
    with logs.written_aside():
        logs.configure(style, "info").info("nowhere")


@contextlib.asynccontextmanager
async def served(folder: Path, a: FakeEngine, b: FakeEngine, stdout: int | None) -> Any:
    """`crossover serve` as a process of its own that writes to `stdout`, or has none."""
    path = folder / "crossover.yaml"
    values = {
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"port": 0},
        "backends": {"speculative": {"url": a.url}, "baseline": {"url": b.url}},
        "timeouts": {"settle_s": 0.0},
    }
    path.write_text(yaml.safe_dump(values))
    command = (sys.executable, "-m", "proxy", "serve", str(path))
    closing = () if stdout is not None else ("sh", "-c", 'exec "$@" >&-', "sh")
    process = await asyncio.create_subprocess_exec(*closing, *command, cwd=ROOT, stdout=stdout)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def first_lines(pipe: Pipe) -> dict[str, Any]:
    """Reads until the proxy has started, and not a byte more; its line."""
    while True:
        line = b""
        while not line.endswith(b"\n"):
            line += drained(pipe, 1)
        if b'"started"' in line:
            return dict(orjson.loads(line))


async def test_a_proxy_whose_lines_nobody_reads_answers_on_and_ends_when_told(tmp_path: Path, pipe: Pipe) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, served(tmp_path, a, b, pipe.writing) as process:
        pipe.leave("writing")
        started = await asyncio.to_thread(first_lines, pipe)
        url = f"http://127.0.0.1:{started['port']}"
        timeout, connector = aiohttp.ClientTimeout(20), aiohttp.TCPConnector(limit=30)
        async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as session:

            async def refused() -> int:
                async with session.get("/nothing") as answer:
                    return answer.status

            for _ in range(100):
                assert await asyncio.gather(*(refused() for _ in range(30))) == [404] * 30
            async with session.get(f"http://{started['admin']}/metrics") as answer:
                assert answer.status == 200
        said = await ask(started["port"], request(body=chat()))
        assert (said.status, said.whole) == (200, True)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0


async def test_a_proxy_without_standard_output_serves_until_told(tmp_path: Path) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, served(tmp_path, a, b, None) as process:
        await until(lambda: a._connections and b._connections, 20.0, what="the first look")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0


# ---------------------------------------------------------------- failures of our own


def stumble(secret: str) -> None:
    """Fails with a secret in the message, in a cause, and in a variable."""
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise ValueError(f"cannot use {secret}") from error


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_failure_is_logged_as_type_and_place_without_its_words(style: Style, capfdbinary: Any) -> None:
    log = logs.configure(style, "debug")
    with pytest.raises(ValueError, match="CANARY") as caught:
        stumble("CANARY")
    log.error("request_failed", exc_info=caught.value)
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert b"ValueError" in out
    assert b"test_logs.stumble:" in out
    assert b"CANARY" not in out


@pytest.mark.parametrize("style", ["json", "text"])
async def test_a_defect_in_the_way_of_a_request_tells_nobody_what_was_asked(style: Style, capfdbinary: Any) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        app.door._logger = app._front.log = logs.configure(style, "debug")

        async def fail(*_: object) -> None:
            stumble("CANARY")

        app.relay.admission.admit = fail  # type: ignore[method-assign,assignment]
        said = await ask(app.port, request(body=chat(user="CANARY")))
    out, err = capfdbinary.readouterr()
    assert said.status == 500
    assert said.header("connection") == "close"
    assert b"request_failed" in out
    assert b"ValueError" in out
    assert b"CANARY" not in out + err + said.body


async def test_a_task_that_fails_unawaited_is_logged_by_its_name(capfdbinary: Any) -> None:
    async def fail() -> None:
        stumble("CANARY")

    asyncio.get_running_loop().set_exception_handler(logs.loop_failed(logs.configure("json", "info")))
    task = tasks.spawn(fail(), name="engine poll")
    await until(task.done)
    await asyncio.sleep(0)
    line = orjson.loads(capfdbinary.readouterr().out)
    assert (line["event"], line["task"], line["error"]) == ("task_failed", "engine poll", "ValueError")
    assert "CANARY" not in str(line)


# ---------------------------------------------------------------- ids, and lines at the door


@pytest.mark.parametrize(
    "forged", ["two words", "x" * 129, "caf\u00e9", "a\tb", "", '{"level":"error"} \x7f'], ids=repr
)
async def test_a_forged_request_id_is_replaced(forged: str) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        said = await ask(app.port, request("/v1/chat/completions", chat(), f"x-request-id: {forged}"))
        sent = _sent(a, b)
    assert said.status in (200, 400)
    if said.status == 200:
        assert re.fullmatch(r"[0-9a-f]{32}", said.header("x-request-id") or "")
        assert sent == said.header("x-request-id")


async def test_a_good_request_id_is_kept_all_the_way() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        said = await ask(app.port, request("/v1/chat/completions", chat(), "x-request-id: mine-7"))
        assert (said.header("x-request-id"), _sent(a, b)) == ("mine-7", "mine-7")
        assert [record.request_id for record in app.desk.ring] == ["mine-7"]


def _sent(*engines: FakeEngine) -> str | None:
    """The request id that an engine got."""
    return next((one.header("x-request-id") for engine in engines for one in engine.requests), None)


async def test_a_question_and_a_refusal_are_a_line_each(capfdbinary: Any) -> None:
    async with (
        FakeEngine(script=_models) as a,
        FakeEngine(script=_models, role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "info"})) as app,
    ):
        await ask(app.port, request("/v1/models", b"", "x-request-id: q", method="GET"))
        await ask(app.port, request("/nothing", b"", "x-request-id: r", method="GET"))
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["event"] in ("question_answered", "request_refused")]
    assert [(line["event"], line["status"], line["request_id"]) for line in told] == [
        ("question_answered", 200, "q"),
        ("request_refused", 404, "r"),
    ]
    assert told[0]["route"] == "/v1/models"
    assert told[1]["code"] == "unknown_route"


async def test_a_request_that_moved_tells_why_it_left_its_first_backend(capfdbinary: Any) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    async with (
        FakeEngine(script=reset) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "info"})) as app,
    ):
        for _ in range(2):
            assert (await ask(app.port, request(body=chat()))).status == 200
        await b.close()
        b.script = reset
        await b.listen()
        assert (await ask(app.port, request(body=chat()))).status == 502
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["event"] == "request_settled"]
    assert [(line.get("first_failure"), line.get("failure"), line["reason"]) for line in told] == [
        ("backend_broken", None, "failover"),
        ("backend_broken", None, "failover"),
        ("backend_broken", "backend_broken", "failover"),
    ]


async def _models(exchange: Exchange) -> None:
    await exchange.answer(b'{"data":[]}')
