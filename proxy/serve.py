"""`crossover serve`: settings from file or demo, the proxy running, signals and file changes until it ends."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from proxy import config, logs, tasks
from proxy.app import App
from proxy.config import InvalidConfig, Settings
from proxy.disk import Disk
from proxy.ending import FAILED, STDERR, Overdue
from proxy.errors import ConfigError
from proxy.wire.reload import watch

T = TypeVar("T")

OK = 0
STOPPING = (signal.SIGTERM, signal.SIGINT)
# glibc's name for the limit from which a block is one of its own, and its value at the start.
M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 128 * 1024
# At so many more objects than before the youngest are looked through for rings. Python's own 700 is reached by a dozen
# requests that begin at once, and looking took a tenth of all time (15 us a request); what so many objects take, a few
# megabytes, is the most that rings of garbage can hold back.
NEW_OBJECTS_A_LOOK = 20_000
# What ends once nothing is in flight (ports, last lines, last spans) has limits of its own that add up to less than
# three quarters of it. Beyond it a thread waits for a disk that hangs, and would for ever.
END_WITHIN_S = 20.0
# The same of one who asks twice: the limit of those clients who take not even the error that ends their answer, and a
# second.
HURRY_WITHIN_S = 3.0
# With the proxy gone, only threads that read for nobody may be left: an idle one ends in milliseconds.
CLOSE_WITHIN_S = 2.0
OVERRIDES = {
    "host": "listen.host",
    "port": "listen.port",
    "admin_port": "admin.port",
    "log_format": "log.format",
    "log_level": "log.level",
}


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop; the exit code."""
    _raise_file_limit()
    _return_large_blocks()
    _fill_standard_streams()
    with logs.written_aside():
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        try:
            return runner.run(_run(options))
        except KeyboardInterrupt:
            return OK  # before the proxy took signals: nothing was served yet
        finally:
            with Overdue() as overdue:
                overdue.within(CLOSE_WITHIN_S)
                runner.close()


async def _run(options: argparse.Namespace) -> int:
    if options.config is None:
        return await _demo(options)
    path: Path = options.config
    # Until `serve` hears them. The first process of a container would else not hear them at all.
    stop: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    _hear(stop)
    reading = await _unless(stop, _first(path, options), name="first reading")
    if stop.done():
        _say(f"{stop.result().name} ended the start before {path} was read")
        return OK
    settings = reading.result()
    if isinstance(settings, InvalidConfig):
        _say(settings.message)
        return FAILED
    return await serve(settings, lambda: read(path, options))


async def _first(path: Path, options: argparse.Namespace) -> Settings | InvalidConfig:
    try:
        return await Disk(_say).ask(str(path), read, path, options)
    except InvalidConfig as refused:
        return refused


def _hear(stop: "asyncio.Future[signal.Signals]") -> None:
    def asked(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(number)

    for number in STOPPING:
        asyncio.get_running_loop().add_signal_handler(number, asked, number)


async def _unless(
    stop: "asyncio.Future[signal.Signals]", work: Coroutine[Any, Any, T], *, name: str
) -> "asyncio.Task[T]":
    """The task of `work`, which has ended: cancelled where a signal to stop came first."""
    task = tasks.spawn(work, name=name)
    either: set[asyncio.Future[Any]] = {task, stop}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await tasks.end(task)
    return task


def _say(message: str) -> None:
    """Tell something before there is a logger."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201


async def _demo(options: argparse.Namespace) -> int:
    from proxy.lab.demo import Demo  # noqa: PLC0415 - the laboratory is loaded for the demo alone

    try:
        demo = Demo(options.curve, options.policy, options.time_scale, options.placement)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(demo.stop)
            await demo.start()

            def settings() -> Settings:
                return _overridden(demo.settings(), options)

            first = settings()
            told_on = sys.stderr if first.log.format == "json" else sys.stdout
            host = first.listen.host
            return await serve(first, settings, greet=lambda app: demo.greet(host, app.port, app.admin_port, told_on))
    except (ConfigError, ValueError, TimeoutError) as error:
        _say(str(error) or "the embedded engines did not start in time; try again")
        return FAILED


def read(path: Path, options: argparse.Namespace) -> Settings:
    """The settings of a file with the command line's overrides. Raises InvalidConfig."""
    return _overridden(config.load(path, os.environ), options)


def _overridden(settings: Settings, options: argparse.Namespace) -> Settings:
    asked = {key: getattr(options, name) for name, key in OVERRIDES.items() if getattr(options, name, None) is not None}
    return config.override(settings, asked) if asked else settings


async def serve(
    settings: Settings, source: Callable[[], Settings], *, greet: Callable[[App], None] | None = None
) -> int:
    """Run one proxy to its end; the exit code. The files that settings come from are watched."""
    logger = logs.configure(*settings.log.way())
    asyncio.get_running_loop().set_exception_handler(logs.loop_failed(logger))
    app = App(settings, logger, source)
    with Overdue() as overdue:
        signals = _Signals(overdue, _reloading(app, "signal"), lambda number, again: _told_to_stop(app, number, again))
        try:
            return await _serve(app, signals, greet)
        finally:
            overdue.within(END_WITHIN_S)
            await app.stop()


async def _serve(app: App, signals: "_Signals", greet: Callable[[App], None] | None) -> int:
    """Start, serve and drain; the exit code."""
    ended = await _started(app, signals)
    if ended is not None:
        return ended
    collect_from_here()
    if greet is not None:
        greet(app)
    watcher = tasks.spawn(watch(lambda: app.files, app.disk, _reloading(app, "file")), name="config watch")
    try:
        await _until_signalled(app, signals)
    finally:
        await tasks.end(watcher)
    return OK


async def _started(app: App, signals: "_Signals") -> int | None:
    """Start. The exit code where it ends with that: a signal to stop came first, or there is something wrong."""
    start = await _unless(signals.stop, _refused(app), name="start")
    if start.cancelled():
        return OK
    refused = start.result()
    if refused is not None:
        app.logger.error("start_failed", message=refused.message)
    return None if refused is None else FAILED


async def _refused(app: App) -> ConfigError | None:
    """Start; why it cannot be. A task's own error would be told as a defect of ours."""
    try:
        await app.start()
    except ConfigError as refused:
        return refused
    return None


def _reloading(app: App, via: str) -> Callable[[], Awaitable[None]]:
    """A reload that nobody asks for on the port; nobody is there to be told of it but the log."""

    async def reload() -> None:
        taken, lines = await app.reload()
        logs.audit(app.logger, "reload", via, after=logs.ending(taken), changes=lines if taken else None)

    return reload


def _told_to_stop(app: App, number: signal.Signals, again: bool) -> None:
    logs.audit(app.logger, "stop", "signal", signal=number.name, at_once=True if again else None)


class _Signals:
    """What the operator asks by signals: SIGTERM or SIGINT once to drain, again to end at once (`overdue` sees to it);
    SIGHUP to reload. `told` is called with each signal that stops, and whether it came before."""

    def __init__(
        self,
        overdue: Overdue,
        reload: Callable[[], Awaitable[object]],
        told: Callable[[signal.Signals, bool], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[signal.Signals] = loop.create_future()
        self.hurry = asyncio.Event()
        self._overdue, self._told = overdue, told
        for number in STOPPING:
            loop.add_signal_handler(number, self._asked, number)
        loop.add_signal_handler(signal.SIGHUP, _spawn_reload, reload)

    def _asked(self, number: signal.Signals) -> None:
        again = self.stop.done()
        self._told(number, again)
        if again:
            self.hurry.set()
            self._overdue.within(HURRY_WITHIN_S)
        else:
            self.stop.set_result(number)


async def _until_signalled(app: App, signals: _Signals) -> None:
    # A person at a terminal waits for no load balancer.
    drain = tasks.spawn(app.drain(settle=await signals.stop is signal.SIGTERM), name="drain")
    hurried = tasks.spawn(signals.hurry.wait(), name="second signal")
    await asyncio.wait({drain, hurried}, return_when=asyncio.FIRST_COMPLETED)
    await tasks.end(drain, hurried)


def _spawn_reload(reload: Callable[[], Awaitable[object]]) -> None:
    async def once() -> None:
        await reload()

    tasks.spawn(once(), name="reload by signal")


def _raise_file_limit() -> None:
    """Each stream takes two: the usual soft limit of 1,024 ends at five hundred streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _return_large_blocks() -> None:
    """Let large bodies be blocks of their own that go back to the system when they end. glibc raises this limit with
    each large block that is freed, and bodies in pieces between small things then cost up to a third more."""
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no such limit
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)


def collect_from_here() -> None:
    """Collect rings of garbage from now on, without looking through all that the start has made: it stays, and each
    look at its 65,000 objects would hold every stream up for some 30 ms."""
    gc.set_threshold(NEW_OBJECTS_A_LOOK)
    gc.freeze()
    gc.enable()


def _fill_standard_streams() -> None:
    """Open those that the process was started without: the loop dies of a socket that gets their number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(number)
