"""The processes of a run: how each is started, when it is up, and how it is ended. What they carry is in load.py."""

import contextlib
import ctypes
import dataclasses
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.clocks import cores
from bench.jobs import Job, Load

ROOT = Path(__file__).resolve().parents[2]
OURS, BARE, DIRECT = "ours", "bare", "direct"
CONTENDERS = (OURS, BARE, DIRECT)
UP_WITHIN_S = 30.0
DOWN_WITHIN_S = 10.0
# The way to a free port is to ask for one and give it back; somebody else may take it in between.
PORT_TRIES = 3
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)

# All features on, every limit at its default; a stop need not wait for load balancers here.
CONFIG = """\
listen: {{host: 127.0.0.1, port: {port}}}
admin: {{host: 127.0.0.1, port: {admin_port}}}
backends:
  speculative: {{url: "http://127.0.0.1:{first}"}}
  baseline: {{url: "http://127.0.0.1:{second}"}}
timeouts: {{settle_s: 0}}
log: {{format: json, level: info}}
"""


class NotUp(Exception):
    """A process did not come up."""


@dataclass(frozen=True, slots=True)
class Running:
    """A contender that answers on `port`; `pid` is None for `direct`, which is the engine itself."""

    name: str
    port: int
    pid: int | None


@dataclass(frozen=True, slots=True)
class Engine:
    """The fake engine behind all of them."""

    ports: tuple[int, int]
    pid: int


class Client:
    """The load client, asked by lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measure(self, job: Job) -> Load:
        """Have one job done. Raises RuntimeError with the client's words when it failed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the load client died"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return Load(**answer)


@contextlib.contextmanager
def engine(rate: float, events: int) -> Iterator[Engine]:
    """The fake engine, running."""
    with started("-m", "bench.engine", str(rate), str(events), stdout=subprocess.PIPE, measured=False) as process:
        assert process.stdout is not None
        ports = [int(word) for word in process.stdout.readline().split()]
        if len(ports) != 2:
            raise NotUp("the fake engine did not start")
        yield Engine((ports[0], ports[1]), process.pid)


@contextlib.contextmanager
def client() -> Iterator[Client]:
    """The load client, waiting for jobs."""
    with started("-m", "bench.load", stdin=subprocess.PIPE, stdout=subprocess.PIPE, measured=False) as process:
        yield Client(process)


@contextlib.contextmanager
def contender(name: str, engine: Engine, *, profile: Path | None = None) -> Iterator[Running]:
    """One contender, up. `profile` runs ours under cProfile and is written when it has ended."""
    if name == DIRECT:
        yield Running(name, engine.ports[0], None)
        return
    with contextlib.ExitStack() as stack:
        for tries_left in reversed(range(PORT_TRIES)):
            port = free_port()
            arguments = _ours(stack, engine, port, profile) if name == OURS else _bare(engine, port)
            process = stack.enter_context(started(*arguments, stdout=subprocess.DEVNULL, measured=True))
            if up(process, port):
                break
            if not tries_left:
                raise NotUp(f"{name} did not come up; what it says stands above")
        yield Running(name, port, process.pid)


def _bare(engine: Engine, port: int) -> list[str]:
    return ["-m", "bench.bare_proxy", str(port), f"http://127.0.0.1:{engine.ports[0]}"]


def _ours(stack: contextlib.ExitStack, engine: Engine, port: int, profile: Path | None) -> list[str]:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossover-bench-"))
    config = Path(folder) / "bench.yaml"
    first, second = engine.ports
    config.write_text(CONFIG.format(port=port, admin_port=free_port(), first=first, second=second))
    profiler = ["-m", "bench.profiled", str(profile)] if profile is not None else []
    return [*profiler, "-m", "proxy", "serve", str(config)]


@contextlib.contextmanager
def started(
    *arguments: str, measured: bool, stdin: int | None = subprocess.DEVNULL, stdout: int | IO[bytes] | None = None
) -> "Iterator[subprocess.Popen[str]]":
    """One Python process on its core; ended when the block ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    process = subprocess.Popen(
        [sys.executable, "-P", *arguments],
        stdin=stdin,
        stdout=stdout,
        env=environment,
        text=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - this process has no threads
    )
    try:
        pin(process.pid, measured=measured)
        yield process
    finally:
        end(process)


def _end_with_parent() -> None:
    """Have the kernel end this process when the measurement is killed and can end nothing itself."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def pin(pid: int, *, measured: bool) -> None:
    """Put a process on the proxy's core or on the other ones, where there are two."""
    chosen = cores()
    if chosen is not None:
        os.sched_setaffinity(pid, chosen[0] if measured else chosen[1])


def end(process: "subprocess.Popen[str]") -> None:
    """Ask a process to end, make it end when it does not, and close its pipes."""
    process.terminate()
    try:
        process.wait(DOWN_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def up(process: "subprocess.Popen[str]", port: int) -> bool:
    """Wait until a proxy answers; false when it has ended or takes too long."""
    until_s = time.monotonic() + UP_WITHIN_S
    while process.poll() is None and time.monotonic() < until_s:
        if answers(port):
            return True
        time.sleep(0.02)
    return False


def answers(port: int) -> bool:
    """Whether GET /ready is answered 200 there: ours then sees an engine, the bare one passes the engine's word on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
