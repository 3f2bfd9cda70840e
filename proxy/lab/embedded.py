"""An embedded engine: the model of engine.py in real time behind an SGLang-compatible HTTP server.

It makes text, not intelligence, and its model's name says so. Wire shapes and routes are in the files beside it.
"""

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from aiohttp import web

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.engine import EngineBooks
from proxy.lab.engine_options import EngineOptions, add_arguments, options_of
from proxy.lab.fault_acts import reset
from proxy.lab.faults import FaultBook
from proxy.lab.generation import Generation
from proxy.lab.introspection import Introspection
from proxy.lab.observations import Observations
from proxy.lab.realtime import Gpus, RealTime
from proxy.lab.status_routes import StatusRoutes
from proxy.model import Role
from proxy.tasks import end, spawn

__all__ = ["EmbeddedEngine", "EngineOptions", "add_arguments", "options_of", "run", "run_command"]

# As the real engine's HTTP server: an idle connection is closed after this long, which a client's pool must beat.
KEEPALIVE_S = 5.0

# Connections that the kernel keeps for us while the loop is busy with one step's tokens.
BACKLOG = 1024

# Requests still open when the engine stops are cut after this long: stopping is meant to be abrupt, draining is not.
STOP_GRACE_S = 0.05


class EmbeddedEngine:
    """One engine with its server. Build it anywhere; `start` and everything after belong to one event loop.

    `gpus` are its own unless they are given, for two engines that share them. Raises `ConfigError` when the curve is
    unknown.
    """

    def __init__(self, options: EngineOptions | None = None, gpus: Gpus | None = None) -> None:
        self.options = options or EngineOptions()
        self.curve = curves.find(self.options.curve)
        self.faults = FaultBook()
        engine = self.options.engine(self.curve)
        seen = Observations()
        self._realtime = RealTime(engine, seen, gpus)
        about = Introspection(self.options, self.curve, engine.limits)
        self.model_name = about.model
        self._status = StatusRoutes(about, self._realtime, seen, self.faults, self.close_door)
        self._generation = Generation(about, self._realtime, self.faults, self.close_door)
        self._runner: web.AppRunner | None = None
        self._door: asyncio.Server | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._reopening: asyncio.Task[None] | None = None
        self.host = ""
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    @property
    def open_sequences(self) -> int:
        """Sequences in the engine, running or waiting."""
        return self._realtime.open_sequences

    @property
    def bodies_sha256(self) -> Sequence[str]:
        """Hex SHA-256 of each generation body in order of arrival, while `options.record_bodies` is set."""
        return self._generation.bodies_sha256

    def books(self) -> EngineBooks:
        """The engine's counts of now."""
        return self._realtime.engine.books()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and run; returns the port, a free one for 0. Raises OSError when the address is taken."""
        app = web.Application(middlewares=[self._status.observe], client_max_size=0)
        app.add_routes(self._generation.routes())
        app.add_routes(self._status.routes())
        app.on_response_prepare.append(_sign)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=STOP_GRACE_S,
        )
        await self._runner.setup()
        self.host, self.port = host, port
        await self.open_door()
        self._loop_task = spawn(self._realtime.run(), name=f"engine-{self.options.role}")
        return self.port

    async def stop(self) -> None:
        """End at once: requests that are open are cut."""
        await end(self._loop_task, self._reopening)
        self._shut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def draining(self) -> bool:
        """Whether it says "not ready"."""
        return self._status.draining

    def drain(self) -> None:
        """Say "not ready" from now on; requests are still taken, as the real engine does after SIGTERM."""
        self._status.draining = True

    @property
    def idle(self) -> bool:
        """Whether no request is open."""
        return self._realtime.idle.is_set()

    async def until_idle(self) -> None:
        """Wait until no request is open."""
        await self._realtime.idle.wait()

    def close_door(self, seconds: float | None = None) -> None:
        """Refuse connections and end idle ones, for `seconds` or until `open_door`; open requests go on."""
        self._shut()
        if self._runner is not None and self._runner.server is not None:
            self._runner.server.pre_shutdown()
        if seconds is not None and (self._reopening is None or self._reopening.done()):
            self._reopening = spawn(self._open_after(seconds), name="engine-reopen")

    async def open_door(self) -> None:
        """Listen on the port (again); nothing happens while the door is open."""
        if self._door is not None or self._runner is None or self._runner.server is None:
            return
        loop = asyncio.get_running_loop()
        self._door = await loop.create_server(self._runner.server, self.host, self.port, backlog=BACKLOG)
        self.port = self._door.sockets[0].getsockname()[1]
        self._status.address = (self.host, self.port)

    def kill(self) -> None:
        """Die as on SIGKILL: connections are reset, new ones refused until `open_door`, and what was stored is lost."""
        self._generation.stored.forget()
        server = self._runner.server if self._runner is not None else None
        connections = list(server.connections) if server is not None else []
        self._shut()
        for connection in connections:
            reset(connection.transport)

    def _shut(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None

    async def _open_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.open_door()


async def run(
    engines: Sequence[EmbeddedEngine],
    host: str,
    port: int,
    ready: Callable[[Sequence[int]], None],
    *,
    die_with_parent: bool = False,
) -> None:
    """Serve until a signal: the first SIGTERM or SIGINT drains and ends when all are idle, the second ends at once.

    They listen on `port` and those that follow it, or on free ones for 0; `ready` is called with the ports. With
    `die_with_parent` the end of standard input ends it at once. Raises OSError for a taken address.
    """
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        ready([await engine.start(host, port and port + place) for place, engine in enumerate(engines)])
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal, engines, over)
        if die_with_parent:
            threading.Thread(target=_watch_stdin, args=(loop, over), name="parent-watch", daemon=True).start()
        await over.wait()
    finally:
        for engine in engines:
            await engine.stop()


async def run_command(arguments: argparse.Namespace) -> int:
    """The command `crossover engine`: writes `ready PORT` when it listens; returns the exit code, 1 for no start."""
    try:
        engines = engines_of(options_of(arguments), shared=arguments.shared)
        await run(engines, arguments.host, arguments.port, _say_ready, die_with_parent=arguments.die_with_parent)
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    except OSError as error:
        reason = error.strerror or "no such address"
        sys.stderr.write(f"cannot listen on {arguments.host}:{arguments.port}: {reason}; choose another --port\n")
        return 1
    return 0


def engines_of(options: EngineOptions, *, shared: bool) -> tuple[EmbeddedEngine, ...]:
    """The engine of these options, or, `shared`, both roles on the same GPUs, speculative first. Raises `ConfigError`
    when the curve is unknown."""
    if not shared:
        return (EmbeddedEngine(options),)
    gpus = Gpus()
    speculative = replace(options, role=Role.SPECULATIVE)
    baseline = replace(options, role=Role.BASELINE, speculative_adaptive=False)
    return EmbeddedEngine(speculative, gpus), EmbeddedEngine(baseline, gpus)


def _say_ready(ports: Sequence[int]) -> None:
    sys.stdout.write(f"ready {' '.join(map(str, ports))}\n")
    sys.stdout.flush()


def _on_signal(engines: Sequence[EmbeddedEngine], over: asyncio.Event) -> None:
    if any(engine.draining for engine in engines):
        over.set()
        return
    for engine in engines:
        engine.drain()
    spawn(_end_when_idle(engines, over), name="engine-drain")


async def _end_when_idle(engines: Sequence[EmbeddedEngine], over: asyncio.Event) -> None:
    # Those that wait are asked again, since one may have got a request while the other ran out.
    while not all(engine.idle for engine in engines):
        for engine in engines:
            await engine.until_idle()
    over.set()


def _watch_stdin(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    # A thread, since standard input may be a file or a device that an event loop cannot watch.
    while os.read(0, 4096):
        pass
    with suppress(RuntimeError):  # The loop may have ended first.
        loop.call_soon_threadsafe(over.set)


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "uvicorn"
