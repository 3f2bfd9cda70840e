"""Lines that a thread writes: in their order, gathered, bounded, and never in a request's way."""

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import aiohttp
import orjson
import pytest
import yaml
from fakes.engine import FakeEngine
from fakes.raw import ask, chat, request
from fakes.until import until

from proxy import logs

ROOT = Path(__file__).parents[1]
Style = Literal["json", "text"]
# A gathering that ends by being told alone.
ENDLESS_S = 1000.0
# What a process says at its start takes a second or two of a quiet machine.
COMES_WITHIN_S = 30.0


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

    def read(self, most_bytes: int) -> bytes:
        """The next bytes, waiting for them. AssertionError where none come, so that no thread waits for ever."""
        ready, _, _ = select.select([self.reading], [], [], COMES_WITHIN_S)
        got = os.read(self.reading, most_bytes) if ready else b""
        assert got, "nothing more comes"
        return got

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
        got += pipe.read(size_bytes - len(got))
    return got


def test_a_thread_writes_lines_in_their_order_and_the_last_ones_before_it_ends(pipe: Pipe) -> None:
    lines = [b"line %d\n" % number for number in range(1000)]
    writer = logs.LineWriter(pipe.writing)
    for line in lines:
        writer.write(line)
    assert writer.close(10)
    assert pipe.whole() == b"".join(lines)


def test_lines_that_come_together_are_written_together(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []
    write = os.write

    def noted(descriptor: int, text: bytes) -> int:
        if descriptor == pipe.writing:
            writes.append(len(bytes(text).splitlines()))
        return write(descriptor, text)

    monkeypatch.setattr(os, "write", noted)
    writer = logs.LineWriter(pipe.writing, gather_s=ENDLESS_S)
    for _ in range(250):
        writer.write(b"line\n")
        time.sleep(0)  # the thread may run
    writer.hurry()
    drained(pipe, 250 * 5)
    assert writer.close(10)
    assert writes == [100, 100, 50]


def test_the_end_does_not_wait_for_more_lines(pipe: Pipe) -> None:
    writer = logs.LineWriter(pipe.writing, gather_s=ENDLESS_S)
    writer.write(b"last\n")
    assert writer.close(10)
    assert pipe.whole() == b"last\n"


def test_lines_are_written_before_many_are_dropped(pipe: Pipe) -> None:
    writer = logs.LineWriter(pipe.writing, max_lines=5, gather_s=ENDLESS_S)
    for _ in range(6):
        writer.write(b"line\n")
    said = b"line\n" * 5 + b"1 lines dropped\n"
    assert drained(pipe, len(said)) == said
    assert writer.close(10)


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_warning_is_written_at_once_with_what_waits(
    style: Style, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    with os.fdopen(pipe.writing, "w", closefd=False) as output:
        monkeypatch.setattr(sys, "stdout", output)
        with logs.written_aside() as writer:
            writer._gather_s = ENDLESS_S
            log = logs.configure(style, "info")
            for level in ("warning", "error"):
                log.info("quiet")
                assert writer.waiting == 1
                getattr(log, level)("loud")
                got = b""
                while b"loud" not in got:
                    got += drained(pipe, 1)
                assert b"quiet" in got


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


async def test_a_line_that_warns_has_room_behind_a_flood_of_others_up_to_a_bound_of_its_own(pipe: Pipe) -> None:
    pipe.fill()
    writer = logs.LineWriter(pipe.writing, max_lines=5, max_warnings=2)
    writer.write(b"stuck\n")
    await until(lambda: writer.waiting == 0)
    for number in range(8):
        writer.write(b"%d\n" % number)
    for number in range(3):
        writer.warn(b"warning %d\n" % number)
        writer.write(b"more\n")
    assert (writer.waiting, writer.dropped) == (7, 7)
    drained(pipe, pipe.filled)
    pipe.filled = 0
    assert writer.close(10)
    assert pipe.whole() == b"stuck\n0\n1\n2\n3\n4\nwarning 0\nwarning 1\n7 lines dropped\n"


async def test_an_operators_act_is_told_though_nobody_reads_the_flood_before_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe.fill()
    with os.fdopen(pipe.writing, "w", closefd=False) as output:
        monkeypatch.setattr(sys, "stdout", output)
        with logs.written_aside() as writer:
            log = logs.configure("json", "info")
            for number in range(20_000):
                log.info("request_refused", request_id=str(number))
            assert writer.dropped
            logs.audit(log, "pin", "port", before=None, after="baseline")
            drained(pipe, pipe.filled)
            pipe.filled = 0
            told = await asyncio.to_thread(drained_to, pipe, b"log_lines_dropped")
    assert b'"event":"audit"' in told


def drained_to(pipe: Pipe, mark: bytes) -> bytes:
    """All that a pipe has up to the line with the mark."""
    got = b""
    while mark not in got:
        got += pipe.read(65536)
    return got


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
        async with asyncio.timeout(60):
            assert await process.wait() == 0


async def test_a_proxy_without_standard_output_serves_until_told(tmp_path: Path) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, served(tmp_path, a, b, None) as process:
        await until(lambda: a._connections and b._connections, 100.0, what="the first look")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
