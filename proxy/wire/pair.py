"""The wires of both backends: for each a data path, a control path, a health probe and an engine poll.

A reload swaps only what changed; the wires of a dropped backend close when its last request has ended, and it is
watched for as long as one waits there for its answer to begin.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy import tasks
from proxy.dispatch import Desk
from proxy.model import ROLES, Role
from proxy.protocol.routes import EngineKind
from proxy.state.backend import Backend
from proxy.wire.calls import Upstream
from proxy.wire.control import Control, Heard
from proxy.wire.deadlines import Wait
from proxy.wire.engine_poll import EnginePoll
from proxy.wire.health import HealthProbe
from proxy.wire.names import Names

# How often a dropped line is looked at until nobody uses it.
RETIRE_LOOK_S = 0.5
# A dropped line stays at least this long: a request may have its place there already and still be on its way to it,
# while it waits for its turn of the loop or for a first attempt's answer to be kept (a second at most).
RETIRE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class LineRules:
    """How one backend is reached and watched; two equal ones are the same line."""

    url: str
    engine: EngineKind = EngineKind.SGLANG
    api_key: str | None = None
    connect_s: float = 2.0
    interval_s: float = 1.0
    timeout_s: float = 5.0


class Line:
    """The wires of one backend; a request is in a `with` of its line for as long as it uses it."""

    def __init__(self, desk: Desk, backend: Backend, rules: LineRules, on_facts: Callable[[Backend], None]) -> None:
        self.backend = backend
        self.rules = rules
        self.host = urlsplit(rules.url).netloc.encode()
        self.api_key = None if rules.api_key is None else rules.api_key.encode()
        self.users = 0
        self._names = Names()
        self.upstream = Upstream(rules.url, connect_s=rules.connect_s, names=self._names)
        self._control = Control(rules.url, api_key=rules.api_key, connect_s=rules.connect_s, names=self._names)
        self._probe = HealthProbe(
            desk, backend, self._control, rules.engine, interval_s=rules.interval_s, timeout_s=rules.timeout_s
        )
        self._poll = EnginePoll(
            desk,
            backend,
            self._control,
            rules.engine,
            interval_s=rules.interval_s,
            timeout_s=rules.timeout_s,
            on_facts=on_facts,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._dropped_at_s: float | None = None

    def __enter__(self) -> "Line":
        self.users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.users -= 1

    @property
    def heard(self) -> Heard:
        """What the proxy's own questions to it came to."""
        return self._control.heard

    def start(self) -> None:
        """Begin to probe and poll."""
        role = self.backend.role
        self._tasks = [
            tasks.spawn(self._probe.run(), name=f"health {role}"),
            tasks.spawn(self._poll.run(), name=f"engine poll {role}"),
        ]

    async def first_look(self) -> None:
        """Probe and poll once, so that a proxy starts knowing its backends."""
        evidence, _ = await asyncio.gather(self._probe.probe(), self._poll.poll())
        self._probe.tell(evidence)

    def drop(self, now_s: float, *, watched: bool) -> None:
        """Take no more requests. Where another line has the backend now, which is `watched` by that, stop watching."""
        self._dropped_at_s = now_s
        if watched:
            self._look_away()
        self.watch_while_needed()

    def is_over(self, now_s: float) -> bool:
        """Whether the line was dropped and nobody uses it or is about to."""
        since_s = self._dropped_at_s
        return since_s is not None and not self.users and now_s - since_s >= RETIRE_AFTER_S

    def watch_while_needed(self) -> None:
        """Stop watching a dropped backend on which no request waits for its answer to begin: those that do go to the
        other one when it stands still, and what says so is its probes. Streams may run on for as long as they like."""
        if next(self.upstream.deadlines.unheard(), None) is None:
            self._look_away()

    def _look_away(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Stop watching and close every connection."""
        await tasks.end(*self._tasks)
        await self._control.close()
        await self.upstream.close()
        await self._names.close()


class Pair:
    """Both lines, and those of dropped backends until they are empty."""

    def __init__(self, desk: Desk, on_facts: Callable[[Backend], None]) -> None:
        self._desk = desk
        self._on_facts = on_facts
        self._lines: dict[Role, Line] = {}
        self._retired: list[Line] = []
        self._sweeper: asyncio.Task[None] | None = None

    def connect(self, rules: dict[Role, LineRules]) -> list[Line]:
        """Have lines by these rules for the desk's present backends; returns the new ones, not yet started."""
        before, fresh = list(self._lines.values()), list[Line]()
        for role in ROLES:
            backend = self._desk.backend(role)
            # Also where the two have changed places: what a probe has seen of an engine goes with it.
            line = next((each for each in before if each.backend is backend and each.rules == rules[role]), None)
            if line is None:
                line = Line(self._desk, backend, rules[role], self._on_facts)
                fresh.append(line)
            self._lines[role] = line
        for line in before:
            if line not in self._lines.values():
                watched = any(each is line.backend for each in self._desk.backends)
                line.drop(self._desk.clock(), watched=watched)
                self._retired.append(line)
        if self._retired and self._sweeper is None:
            self._sweeper = tasks.spawn(self._sweep(), name="retired backends")
        return fresh

    def line(self, backend: Backend) -> Line:
        """The line of a backend, also of one that a reload has dropped while requests run on it."""
        line = self._lines[backend.role]
        if line.backend is backend:
            return line
        return next(line for line in self._retired if line.backend is backend)

    def unheard(self, backend: Backend) -> Iterator[Wait]:
        """The waits for answers of a backend of which nothing has come yet, see Deadlines.unheard."""
        lines = [line for line in (*self._retired, *self._lines.values()) if line.backend is backend]
        return (wait for line in lines for wait in line.upstream.deadlines.unheard())

    async def stop(self) -> None:
        """Close everything."""
        await tasks.end(self._sweeper)
        for line in (*self._lines.values(), *self._retired):
            await line.stop()

    async def _sweep(self) -> None:
        while self._retired:
            for line in tuple(self._retired):
                line.watch_while_needed()
                if line.is_over(self._desk.clock()):
                    await line.stop()
                    self._retired.remove(line)
            await asyncio.sleep(RETIRE_LOOK_S)
        self._sweeper = None
