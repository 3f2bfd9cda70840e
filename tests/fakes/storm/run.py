"""A whole storm: engines, proxy, clients and operator for some seconds, with lulls in which nothing may be left.

The proxy runs as in earnest, by `proxy.serve.serve`, and is ended by SIGTERM while requests run.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import yaml
from fakes.storm.books import Books, Figures
from fakes.storm.clients import Clients
from fakes.storm.engine import StormEngine
from fakes.storm.operator import Operator
from fakes.storm.plan import FIRST_BYTE_S, Plan, draw
from fakes.storm.watch import Watch
from fakes.until import until

from proxy import config
from proxy.app import App
from proxy.serve import serve

# Connections at once, each with one to four requests: more than both engines and the queue hold together.
AT_ONCE = 70
SEGMENT_S = 12.0
# Of later lulls over the first two. A request that leaves one object behind leaves thousands; the bytes are a coarse
# net for what is no object, since the allocator keeps some of what a crowd of slow readers once held.
WARM_LULLS = 2
MAX_GROWTH_BYTES = 64 << 20
MAX_GROWTH_OBJECTS = 20_000
QUIET_S = 30.0
EXIT_WITHIN_S = 30.0


def values_of(a: StormEngine, b: StormEngine) -> dict[str, Any]:
    """The configuration: every time limit is small, so that a minute holds many cycles."""
    return {
        "listen": {
            "host": "127.0.0.1",
            "port": 0,
            "body_timeout_s": 1.5,
            "unread_timeout_s": 1.5,
        },
        "admin": {"port": 0},
        "backends": {"speculative": {"url": a.url}, "baseline": {"url": b.url}},
        "routing": {
            "policy": "threshold",
            "leave_at": 10,
            "min_dwell_s": 0.2,
            "smoothing_s": 0.2,
            "allow_header": True,
        },
        "timeouts": {
            "connect_s": 0.5,
            "first_byte_s": FIRST_BYTE_S,
            "stall_s": 1.0,
            "drain_s": 1.5,
            "settle_s": 0.5,
            "linger_s": 0.2,
        },
        "queue": {"max_waiting": 60, "max_wait_s": 2.0},
        "health": {"interval_s": 0.2, "timeout_s": 0.4, "max_misses": 2, "min_hits": 2},
        "circuit": {"max_failures": 5, "open_s": 0.3, "max_probes": 2},
        "retries": {"max_ratio": 0.5, "reserve": 50},
        "log": {"level": "error"},
    }


@dataclass
class Storm:
    """One storm of one seed; `path` is where its configuration lives."""

    seed: int
    seconds: float
    path: Path
    numbers: int = 0
    warm_bytes: int = 0
    warm_objects: int = 0
    tasks: int = 0
    children: set["asyncio.Task[None]"] = field(default_factory=set)

    async def run(self) -> Figures:
        """The storm to its end. Raises StormBroken at the first promise that is broken."""
        self.chance = random.Random(self.seed)
        self.books = Books(self.seed)
        names = ("a", "b", "c")
        self.engines = tuple(StormEngine(name, self.books) for name in names)
        for engine in self.engines:
            await engine.listen()
        try:
            await self._with_engines()
        finally:
            for engine in self.engines:
                await engine.close()
        self.books.check()
        return self.books.figures

    async def _with_engines(self) -> None:
        a, b, c = self.engines
        values = values_of(a, b)
        self.path.write_text(yaml.safe_dump(values))
        started: asyncio.Future[App] = asyncio.get_running_loop().create_future()
        source = lambda: config.load(self.path, {})  # noqa: E731
        served = asyncio.ensure_future(serve(source(), source, greet=started.set_result))
        try:
            await asyncio.wait({served, started}, return_when=asyncio.FIRST_COMPLETED)
            self.app = app = await started
            self._watch_failures()
            self.operator = Operator(app, (a, b, c), self.path, values)
            self.clients = Clients(app.port, self.books)
            self.watch = Watch(app, self.engines, self.books)
            await self._all_weathers(served)
        finally:
            if not served.done():
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)
                await served

    def _watch_failures(self) -> None:
        """What the proxy's own tasks and handlers fail with is heard at once."""
        loop, books = asyncio.get_running_loop(), self.books

        def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            text = f"{context.get('message')} {context.get('exception')!r}"
            books.holds(False, "nothing of the proxy fails unheard", text)

        loop.set_exception_handler(failed)
        front: Any = self.app._front
        record = front.log.error

        class Heard:
            def error(self, event: str, **said: Any) -> None:
                books.holds(False, "the proxy itself never fails", f"{event} {said.get('exc_info')!r}")
                record(event, **said)

            def __getattr__(self, name: str) -> Any:
                return getattr(log, name)

        log, front.log = front.log, Heard()

    # ------------------------------------------------------------ the weather

    async def _all_weathers(self, served: "asyncio.Task[int]") -> None:
        watching = asyncio.ensure_future(self.watch.run())
        try:
            await self._quiet()
            self.tasks = len(asyncio.all_tasks())
            segments = max(2, round(self.seconds / SEGMENT_S))
            for number in range(segments):
                await self._rage(self.seconds / segments, ending=number == segments - 1, served=served)
                if number < segments - 1:
                    await self._lull()
            self._check_end(served)
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _rage(self, seconds: float, *, ending: bool, served: "asyncio.Task[int]") -> None:
        begun_s = monotonic()
        acts = [asyncio.ensure_future(act) for act in self.operator.acts(self.chance)]
        crowd = [asyncio.ensure_future(self._client(self.chance.getrandbits(64))) for _ in range(AT_ONCE)]
        try:
            broken = asyncio.ensure_future(self.books.broken.wait())
            await asyncio.wait({broken, *acts, *crowd, served}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            broken.cancel()
            self.books.check()
            for early in (served, *acts, *crowd):
                assert not early.done(), f"ended in mid-storm: {early}"
            self.books.figures.stormed_s += monotonic() - begun_s
            await _end(acts)
            if ending:
                await self._terminate(served)
        finally:
            self.stopping = True
            await _end(acts)
            await asyncio.wait(crowd, timeout=QUIET_S)
            self.stopping = False
            await _end(crowd)
        self.books.check()

    stopping = False

    async def _client(self, seed: int) -> None:
        chance = random.Random(seed)
        while not (self.stopping or self.books.broken.is_set()):
            odd = chance.random()
            if odd < 0.02:
                await self.clients.garbage(chance)
            elif odd < 0.04:
                await self.clients.question(chance)
            else:
                await self.clients.connection(self._plans(chance), pipelined=chance.random() < 0.15)
            if self.books.closing:
                await asyncio.sleep(0.2)  # sleeps: a client whose connection is refused comes again a little later

    def _plans(self, chance: random.Random) -> list[Plan]:
        """The requests of one connection: only the last of them may be one that leaves."""
        count = chance.choice((1, 1, 1, 2, 4))
        plans = []
        for number in range(count):
            self.numbers += 1
            conduct = None if number == count - 1 else "stay"
            plans.append(draw(chance, f"s{self.seed}-{self.numbers}", conduct=conduct))
        return plans

    async def _terminate(self, served: "asyncio.Task[int]") -> None:
        """SIGTERM while everything runs: the proxy ends by itself, with exit code 0."""
        self.books.note("operator", "SIGTERM")
        self.books.closing = True
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait({served}, timeout=EXIT_WITHIN_S)
        ended = served.done()
        self.books.holds(ended, "SIGTERM ends the proxy", f"not within {EXIT_WITHIN_S:g} s")
        if ended:
            self.books.holds(served.result() == 0, "SIGTERM ends the proxy", f"exit code {served.result()}")

    # ------------------------------------------------------------ lulls

    async def _lull(self) -> None:
        """Nothing is asked for a moment, and nothing may be left: no sequence, no request, no task, no memory."""
        await self.operator.calm()
        await self._quiet()
        await self._come_true(lambda: len(asyncio.all_tasks()) <= self.tasks, "no task is left")
        # The latest requests are remembered, thousands of them: how many by now is a matter of how fast the machine is.
        self.app.desk.ring.clear()
        self.app.desk.settled._by_id.clear()
        size_bytes, objects = resident_bytes(), len(gc.get_objects())
        figures = self.books.figures
        figures.lulls += 1
        figures.lull_mib.append(size_bytes >> 20)
        if figures.lulls <= WARM_LULLS:
            self.warm_bytes, self.warm_objects = max(self.warm_bytes, size_bytes), max(self.warm_objects, objects)
        figures.growth_bytes, figures.growth_objects = size_bytes - self.warm_bytes, objects - self.warm_objects
        bounded = figures.growth_bytes < MAX_GROWTH_BYTES and figures.growth_objects < MAX_GROWTH_OBJECTS
        self.books.holds(
            bounded, "memory is bounded", f"{figures.growth_bytes} bytes, {figures.growth_objects} objects"
        )
        self.books.check()

    async def _quiet(self) -> None:
        await self._come_true(self.watch.nothing_is_left, "in flight is zero when nothing is")
        await self._come_true(lambda: not self.books.records, "nothing of a request is left")

    async def _come_true(self, holds: Any, promise: str) -> None:
        try:
            await until(lambda: holds() or self.books.breach, QUIET_S)
        except AssertionError:
            tasks = sorted(task.get_name() for task in asyncio.all_tasks())
            self.books.holds(False, promise, f"after {QUIET_S:g} s: {list(self.books.records)[:5]}, tasks {tasks}")
        self.books.check()

    def _check_end(self, served: "asyncio.Task[int]") -> None:
        assert served.done()
        app, holds = self.app, self.books.holds
        for book in app.desk.ledger.books:
            left = (book.in_flight - book.lingering, len(book._leases), book.opened - book.settled)
            holds(left == (0, 0, 0), "in flight is zero at the end", f"{left} of {book.name}")
        holds(not app.admission.waiting and not app.relay.trips, "nobody waits at the end", f"{app.relay.trips}")
        self.books.check()


def resident_bytes() -> int:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc can be asked to give back what it keeps
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
