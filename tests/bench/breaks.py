"""What is seen when something breaks: a client that leaves, an engine that dies. Each on a contender just started, with
two engines that are processes of their own; times are of one occurrence each, to be read as orders of magnitude."""

import contextlib
import http.client
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bench import messages
from bench.contenders import Engine, Running, contender, engine_process
from bench.engine_word import State, seen
from bench.peers import Found
from bench.processes import NotUp

# Past this a thing counts as never seen: a client's own patience would have run out.
SEEN_WITHIN_S = 8.0
INTERVAL_S = 0.02
EVENTS_READ = 5
# Plain requests before the engine dies, for the usual time, and after it.
USUAL, AFTER = 20, 6
LONG = 100_000


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stage:
    """A contender before two engines."""

    running: Running
    engines: "dict[int, subprocess.Popen[str]]"  # by port

    def busy_engine(self) -> int | None:
        """The port of the engine that has an answer under way, which is waited for."""
        return self.seen(lambda states: next((port for port, each in states.items() if each.under_way), None))

    def seen(self, look: "Callable[[dict[int, State]], T]") -> T:
        """See engine_word.seen: of the engines that live."""
        return seen([port for port, each in self.engines.items() if each.poll() is None], look, SEEN_WITHIN_S)

    def kill(self, port: int) -> int:
        """Kill an engine; the instant, in nanoseconds of the monotonic clock."""
        at_ns = time.monotonic_ns()
        self.engines[port].kill()
        self.engines[port].wait()
        return at_ns


@contextlib.contextmanager
def stage(name: str, peers: Mapping[str, Found]) -> Iterator[Stage]:
    """A contender just started, before two engines just started."""
    with engine_process(1) as (first, first_ports), engine_process(1) as (second, second_ports):
        ports = (first_ports[0], second_ports[0])
        with contender(name, Engine(ports, first.pid), peers) as running:
            yield Stage(running, dict(zip(ports, (first, second), strict=True)))


def breaks(name: str, peers: Mapping[str, Found]) -> dict[str, str]:
    """{what broke: what was seen}. One that cannot be tried says why."""
    came: dict[str, str] = {}
    for what, probe in PROBES.items():
        try:
            with stage(name, peers) as on:
                came[what] = probe(on)
        except (NotUp, OSError) as error:
            came[what] = f"failed: {error}"
    return came


def leaves_flowing(on: Stage) -> str:
    """The client leaves while events flow: when the engine sees it."""
    sock = ask(on, stream=True, shape="spread")
    read_events(sock, EVENTS_READ)
    return left(on, sock)


def leaves_waiting(on: Stage) -> str:
    """The client leaves before the first event, when nothing is written that could fail."""
    return left(on, at_rest(on, ask(on, stream=True, shape="silent")))


def leaves_plain(on: Stage) -> str:
    """The client leaves a request that is not streamed."""
    return left(on, at_rest(on, ask(on, stream=False, shape="silent")))


def killed_flowing(on: Stage) -> str:
    """The engine is killed in mid-stream: what the client still gets, how its answer ends, and when."""
    with ask(on, stream=True, shape="spread") as sock:
        got = read_events(sock, EVENTS_READ)
        port = on.busy_engine()
        if port is None:
            return "no engine has the stream"
        killed_ns = on.kill(port)
        rest, end = read_rest(sock)
    ms = (time.monotonic_ns() - killed_ns) / 1e6
    event = "error event" if b'"error"' in rest else "no error event"
    done = "[DONE]" if b"[DONE]" in got + rest else "no [DONE]"
    return f"{event}, {done}, {end}, {ms:.1f} ms"


def dead_before_first_byte(on: Stage) -> str:
    """One of two engines dies between requests: what the next ones are answered, and how much later than usual."""
    usual_ms = statistics.median(plain_ms(on)[1] for _ in range(USUAL))
    on.kill(next(iter(on.engines)))
    after = [plain_ms(on) for _ in range(AFTER)]
    statuses = ", ".join(
        f"{sum(status == each for status, _ in after)} x {each}"
        for each in dict.fromkeys(status for status, _ in after)
    )
    return f"{statuses}; slowest {max(ms for _, ms in after) - usual_ms:+.1f} ms"


PROBES: Mapping[str, Callable[[Stage], str]] = {
    "client leaves, events flow": leaves_flowing,
    "leaves before the first event": leaves_waiting,
    "leaves a plain request": leaves_plain,
    "engine killed in mid-stream": killed_flowing,
    "engine dead before the first byte": dead_before_first_byte,
}


def ask(on: Stage, *, stream: bool, shape: str) -> socket.socket:
    """A request sent to the contender."""
    sock = socket.create_connection(("127.0.0.1", on.running.port), timeout=SEEN_WITHIN_S)
    sock.sendall(messages.request(stream=stream, port=on.running.port, shape=shape, interval_s=INTERVAL_S, events=LONG))
    return sock


def at_rest(on: Stage, sock: socket.socket) -> socket.socket:
    """Wait until a request lies at an engine. Raises NotUp when it never gets there."""
    if on.busy_engine() is None:
        sock.close()
        raise NotUp("the request did not reach an engine")
    return sock


def left(on: Stage, sock: socket.socket) -> str:
    """Leave, and say when an engine saw it."""
    at_ns = time.monotonic_ns()
    sock.close()
    gone = on.seen(lambda states: [at for each in states.values() for at in each.gone_ns if at >= at_ns])
    return f"{(min(gone) - at_ns) / 1e6:.1f} ms" if gone else "never"


def read_events(sock: socket.socket, events: int) -> bytes:
    """Read until so many events have come, or the end."""
    got = b""
    while got.count(messages.MARK) < events:
        data = sock.recv(65536)
        if not data:
            break
        got += data
    return got


def read_rest(sock: socket.socket) -> tuple[bytes, str]:
    """What still comes, and how it ends."""
    got = b""
    try:
        while True:
            data = sock.recv(65536)
            if not data:
                return got, "cut"
            got += data
            if got.endswith(b"\r\n0\r\n\r\n"):
                return got, "proper end"
    except TimeoutError:
        return got, "no end"
    except OSError:
        return got, "reset"


def plain_ms(on: Stage) -> tuple[str, float]:
    """A plain request on a connection of its own: its status, and how long it took."""
    begun_s = time.perf_counter()
    status = "no answer"
    with contextlib.suppress(OSError), ask(on, stream=False, shape="whole") as sock:
        answer = http.client.HTTPResponse(sock)
        with contextlib.suppress(http.client.HTTPException):
            answer.begin()
            answer.read()
            status = str(answer.status)
    return status, (time.perf_counter() - begun_s) * 1e3
