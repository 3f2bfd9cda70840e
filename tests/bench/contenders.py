"""The contenders of a run: how each is started, when it is up, how it is frozen while others run, and how it is ended.

Other proxies' configurations are in peers.py, processes as such in processes.py, and what they carry in load.py.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import messages
from bench.clocks import family
from bench.files import max_streams
from bench.jobs import Job, Load
from bench.peers import RECIPES, Found
from bench.processes import ENVIRONMENT, PYTHON, NotUp, ended, free_port, started
from bench.wire import Broken

OURS, BARE, DIRECT = "ours", "bare", "direct"
UP_WITHIN_S = 30.0
# The way to a free port is to ask for one and give it back; somebody else may take it in between.
PORT_TRIES = 3
# A contender that was frozen is itself again when it has answered this often in a row: its timers have then run out,
# what had come meanwhile is done, and engines that it had lost sight of are back.
GOOD_ANSWERS = 5
THAWED_WITHIN_S = 20.0
# Between two tries whether it answers.
APART_S = 0.1

# All features on; only the limits that the number of streams would meet are out of the way. The log goes where its
# reader would be, and a stop need not wait for load balancers here.
CONFIG = """\
listen: {{host: 127.0.0.1, port: {port}, max_connections: 100000}}
admin: {{host: 127.0.0.1, port: {other_port}}}
backends:
  speculative: {{url: "http://127.0.0.1:{first}"}}
  baseline: {{url: "http://127.0.0.1:{second}"}}
timeouts: {{settle_s: 0}}
log: {{format: json, level: info}}
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """The fake engine behind all of them: one process with two ports, or two processes."""

    ports: tuple[int, int]
    pid: int


@dataclass(frozen=True, slots=True)
class Running:
    """A contender that answers on `port`; `pid` is None for `direct`, which is the engine itself."""

    name: str
    port: int
    pid: int | None

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes to be measured: it and all that it has started."""
        return family(self.pid) if self.pid is not None else ()

    def freeze(self) -> None:
        """Stop it, so that it disturbs nobody."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, and wait until it is itself again. Raises NotUp when it does not recover."""
        if self.pid is None:
            return
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)
        until_s = time.monotonic() + THAWED_WITHIN_S
        good = 0
        while good < GOOD_ANSWERS:
            if time.monotonic() > until_s or ended((self.pid,), APART_S):
                raise NotUp(f"{self.name} does not recover")
            good = good + 1 if answers(self.port) else 0


class Client:
    """The load client, asked by lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def measure(self, job: Job) -> Load:
        """Have one job done. Raises Broken with the client's words when it failed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(job)) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "the load client died"}')
        if "error" in answer:
            raise Broken(answer["error"])
        return Load(**answer)


@contextlib.contextmanager
def engine_process(ports: int) -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """A fake engine, running, and its ports."""
    with started(
        [*PYTHON, "-m", "bench.engine", str(ports)], stdout=subprocess.PIPE, measured=False, environment=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        found = [int(word) for word in process.stdout.readline().split()]
        if len(found) != ports:
            raise NotUp("the fake engine did not start")
        yield process, found


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """The fake engine, running, reached by two ports as if it were two."""
    with engine_process(2) as (process, ports):
        yield Engine((ports[0], ports[1]), process.pid)


@contextlib.contextmanager
def client() -> Iterator[Client]:
    """The load client, waiting for jobs."""
    with started(
        [*PYTHON, "-m", "bench.load"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        measured=False,
        environment=ENVIRONMENT,
    ) as process:
        yield Client(process)


@contextlib.contextmanager
def contender(
    name: str, engine: Engine, peers: Mapping[str, Found], *, profile: Path | None = None
) -> Iterator[Running]:
    """One contender, up. `profile` runs ours under cProfile and is written when it has ended. Raises NotUp."""
    if name == DIRECT:
        yield Running(name, engine.ports[0], None)
        return
    with contextlib.ExitStack() as stack:
        for tries_left in reversed(range(PORT_TRIES)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crossover-bench-")))
            start = _start(name, engine, peers, folder, profile)
            process = stack.enter_context(
                started(start.command, measured=True, environment=start.environment, quiet=start.quiet, folder=folder)
            )
            if up(process, start.port, start.up_within_s):
                break
            if not tries_left:
                raise NotUp(f"{name} did not come up")
        yield Running(name, start.port, process.pid)


@dataclass(frozen=True, slots=True)
class _Start:
    """How a contender is begun on a port. What others say of clients that leave is not wanted."""

    command: list[str]
    environment: Mapping[str, str]
    port: int
    quiet: bool = False
    up_within_s: float = UP_WITHIN_S


def _start(name: str, engine: Engine, peers: Mapping[str, Found], folder: Path, profile: Path | None) -> _Start:
    port = free_port()
    first, second = engine.ports
    if name == BARE:
        command = [*PYTHON, "-m", "bench.bare_proxy", str(port), f"http://127.0.0.1:{first}"]
        return _Start(command, ENVIRONMENT, port, quiet=True)
    filled = {
        "port": port, "other_port": free_port(), "first": first, "second": second, "folder": folder,
        "files": 2 * max_streams(), "streams": max_streams(),
    }  # fmt: skip
    if name == OURS:
        config = folder / "bench.yaml"
        config.write_text(CONFIG.format(**filled))
        profiler = ["-m", "bench.profiled", str(profile)] if profile is not None else []
        return _Start([*PYTHON, *profiler, "-m", "proxy", "serve", str(config)], ENVIRONMENT, port)
    recipe = RECIPES[name]
    for file, text in recipe.files.items():
        (folder / file).write_text(text.format(**filled))
    command = [str(peers[name].program), *(word.format(**filled) for word in recipe.arguments)]
    return _Start(command, {**os.environ, **recipe.environment}, port, quiet=True, up_within_s=recipe.up_within_s)


def up(process: "subprocess.Popen[str]", port: int, within_s: float) -> bool:
    """Wait until a proxy answers; false when it has ended or takes too long."""
    until_s = time.monotonic() + within_s
    while not answers(port):
        if time.monotonic() > until_s or ended((process.pid,), APART_S):
            return False
    return True


def answers(port: int) -> bool:
    """Whether a plain request is answered 200 there, which takes an engine."""
    body = messages.request(stream=False, port=port).partition(b"\r\n\r\n")[2]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", messages.PATH, body, {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
