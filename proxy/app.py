"""The running proxy: everything wired together, started, reloaded, drained and stopped.

What a request meets is in door.py, what an operator sees in admin.py; this file only holds them.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import Any

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from proxy import __version__, config, logs, open_files, telling
from proxy.acquaintance import Acquaintance
from proxy.admin import Admin, Connection
from proxy.config import InvalidConfig, Settings
from proxy.disk import Disk
from proxy.dispatch import Desk
from proxy.door import Door, Readiness
from proxy.front import FrontServer
from proxy.gate import Gate
from proxy.inform import Informer
from proxy.metrics import Metrics, Reading
from proxy.model import Change, RequestFacts, Role
from proxy.openapi import clients_document
from proxy.plan import body_rules, connection_rules, engines, learned_path, line_rules, patience, plan, queue_rules
from proxy.protocol.fields import raw
from proxy.reading import present, read, unlooked
from proxy.relay import Relay
from proxy.source import Reloads, anew
from proxy.telling.figures import count
from proxy.tracing import Tracing
from proxy.watch import Watch
from proxy.wire import ports
from proxy.wire.admission import Admission
from proxy.wire.body import Bodies
from proxy.wire.learned_file import LearnedFile
from proxy.wire.pair import Pair
from proxy.wire.tls import Site, TlsPort

# Connections that may wait to be accepted: a burst of a thousand clients must not be refused by the kernel.
BACKLOG = 4096
# A drain looks this often whether everything has ended.
DRAIN_LOOK_S = 0.05
# After requests were ended from here their error events still have to be written.
END_WITHIN_S = 2.0
# How long a start waits for the first look at the backends; a proxy starts without them when they are down.
FIRST_LOOK_S = 3.0
# What a reading tells, by name; copied only as deep as that, since the page's readers have it made every few seconds.
READING = tuple(each.name for each in fields(Reading))


class Phase(StrEnum):
    """Where the proxy is in its life."""

    STARTING = "starting"
    SERVING = "serving"
    SETTLING = "settling"
    DRAINING = "draining"
    STOPPED = "stopped"


class App:
    """One proxy. `source` reads the configuration again for a reload; it raises InvalidConfig."""

    def __init__(self, settings: Settings, logger: FilteringBoundLogger, source: Callable[[], Settings]) -> None:
        self.settings = settings
        self.logger = logger
        self.phase = Phase.STARTING
        self.refused: tuple[str, ...] = ()  # what was wrong with the file at the last reload
        self.files = settings.sources.marks  # whose change asks for a reload
        self.disk = Disk(lambda said: logger.warning("disk_slow", message=said))
        self._source = source
        self.desk = Desk(plan(settings), time.monotonic)
        self.metrics = Metrics(self.reading)
        self.desk.on_change = self._changed
        self.desk.on_decision = self.metrics.decided
        self.admission = Admission(self.desk, queue_rules(settings))
        self.watch = Watch(self.desk, self.metrics, lambda: self.admission.waiting, self.status, lambda: self.relay)
        self.acquaintance = Acquaintance(self.desk, self.watch, logger, settings)
        self.pair = Pair(self.desk, self.acquaintance.met)
        self._bodies = Bodies(body_rules(settings))
        self.relay = Relay(self.desk, self.admission, self.pair, self._bodies, patience(settings))
        self.relay.on_end = self._ended
        self.desk.on_standstill = self.relay.rescue
        self._tracing = Tracing()
        self.informer = Informer(self.desk, self.pair, self._bodies)
        self.door = Door(
            relay=self.relay,
            informer=self.informer,
            metrics=self.metrics,
            logger=logger,
            engines=engines(settings),
            readiness=self.readiness,
        )
        self._set_gate(settings)
        rules = connection_rules(settings, open_files.limit())
        self._front = FrontServer(self.door, self.metrics, logger, rules, keepalive_s=settings.listen.keepalive_s)
        self._tls: dict[str, TlsPort] = {}  # by section; empty without TLS
        self._admin: web.AppRunner | None = None
        self._learned = LearnedFile(self.desk, lambda: learned_path(self.settings), self._warn_of_learned)
        self._turn = asyncio.Lock()  # starting and reloading, one at a time
        self._reloads = Reloads(self._turn, self._reload)
        self.port = 0
        self.admin_port = 0

    # ------------------------------------------------------------ life

    async def start(self) -> None:
        """Claim the ports, look at the backends, then listen. Raises ConfigError when a port cannot be had."""
        async with self._turn:
            await self._start()

    async def _start(self) -> None:
        listen, admin = self.settings.listen, self.settings.admin
        self._tracing.start(self.settings, self.relay, lambda said: self.logger.warning("traces", message=said))
        # Before engines are asked and anyone is served: a second process on this configuration takes nothing.
        await ports.claim("admin", admin.host, admin.port)
        await ports.claim("listen", listen.host, listen.port)
        lines = self.pair.connect(line_rules(self.settings))
        try:
            async with asyncio.timeout(FIRST_LOOK_S):
                await asyncio.gather(*(line.first_look() for line in lines))
        except TimeoutError:
            self.logger.warning("backends_slow", message="a backend did not answer the first look; starting without")
        for line in lines:
            line.start()
        await self._learned.start()
        self.watch.start()
        for section, context in (await self.disk.ask("the files of TLS", config.contexts, self.settings)).items():
            self._tls[section] = TlsPort(
                context,
                handshake_s=listen.head_timeout_s,
                closed=self.metrics.closed,
                room=self._front.room if section == "listen" else lambda: float("inf"),
            )
        self.admin_port = await self._listen_admin(admin.host, admin.port)
        try:
            self.port = await self._front.listen(listen.host, listen.port, backlog=BACKLOG, tls=self._tls.get("listen"))
        except OSError as error:
            raise await ports.refusal("listen", listen.host, listen.port, error) from error
        self.phase = Phase.SERVING
        self._caution()
        self.logger.info(
            "started", version=__version__, host=listen.host, port=self.port, admin=f"{admin.host}:{self.admin_port}"
        )
        self.watch.note("started", f"Crossover {__version__} serves on port {self.port}.", version=__version__)

    async def drain(self, *, settle: bool) -> None:
        """Stop without losing an answer: readiness fails, new requests are still served while load balancers turn
        away (`settle`), then none are, running ones end, and those beyond `drain_s` are ended with an error."""
        timeouts = self.settings.timeouts
        self.phase = Phase.SETTLING
        in_flight = self.desk.snapshot().in_flight
        self.logger.info("drain_began", in_flight=in_flight)
        self.watch.note("draining", "The proxy was told to stop: running answers may end.", in_flight=in_flight)
        if settle:
            self._front.leaving = True
            await asyncio.sleep(timeouts.settle_s)
        self.phase = Phase.DRAINING
        self.door.closed = True
        self._front.leave()
        until_s = self.desk.clock() + timeouts.drain_s
        # The port stays open while answers run: who still comes is told to go elsewhere, not left without a word.
        await self._until(lambda: not self.relay.trips, until_s)
        self._front.stop_listening()
        await self._until(lambda: not self._front.is_busy(), until_s)
        await self._end()

    def end_now(self) -> None:
        """End every request that waits or runs."""
        self.door.closed = True
        self.admission.close()
        self.relay.end_all()

    async def stop(self) -> None:
        """Close every socket and task. In flight is zero afterwards."""
        await self._end()
        await self._front.close(END_WITHIN_S)
        await self.watch.stop()
        if self._admin is not None:
            await self._admin.cleanup()
        for port in self._tls.values():
            await port.stop()
        self.phase = Phase.STOPPED
        await self._learned.stop()
        await self.pair.stop()
        await self._tracing.stop()
        self.logger.info("stopped", in_flight=self.desk.snapshot().in_flight)

    def readiness(self) -> Readiness:
        """Ready while it takes requests and a backend is eligible."""
        if self.phase is not Phase.SERVING:
            return Readiness(ready=False, reason=self.phase.value)
        snapshot = self.desk.snapshot()
        if snapshot.all_down:
            return Readiness(ready=False, reason="no backend is eligible")
        return Readiness(ready=True)

    # ------------------------------------------------------------ what the operator may do

    async def reload(self) -> tuple[bool, list[str]]:
        """Take the configuration over anew: whole, or not at all with the reasons."""
        return await self._reloads.ask()

    async def _reload(self) -> tuple[bool, list[str]]:
        try:
            settings, contexts = await anew(self._source, self.disk)
        except InvalidConfig as error:
            self.files = {**self.settings.sources.marks, **error.marks}
            return self._reject([str(problem) for problem in error.problems])
        if self.phase is Phase.STOPPED:
            return self._reject(["the proxy has stopped; start it again"])
        stuck = config.needs_restart(self.settings, settings)
        if stuck:
            return self._reject([f"{key} cannot change while running; restart for it" for key in stuck])
        changes = [f"{each.key}: {each.old} -> {each.new}" for each in config.differences(self.settings, settings)]
        changes += config.read_anew(self.settings, settings)
        self._adopt(settings)
        for section, port in self._tls.items():
            port.context, port.handshake_s = contexts[section], settings.listen.head_timeout_s
        mended, self.refused = bool(self.refused), ()
        self.metrics.reloaded(accepted=True)
        self.logger.info("config_reloaded", changes=changes)
        told = "; ".join(changes) or "nothing has changed"
        again = ", and the file is right again" if mended else ""
        self.watch.note("reload", f"The configuration was taken over: {told}{again}.", mended=float(mended))
        self._caution()
        return True, changes

    def pin(self, role: Role | None) -> None:
        """See Desk.pin."""
        self.desk.pin(role)

    def drain_backend(self, role: Role, *, draining: bool) -> None:
        """See Desk.drain."""
        self.desk.drain(role, draining=draining)

    # ------------------------------------------------------------ what the operator sees

    def reading(self) -> Reading:
        """Everything a scrape shows."""
        return read(
            self.desk,
            waiting=self.admission.waiting,
            connections=len(self._front.connections),
            held_body_bytes=self._bodies.held_bytes,
            ready=self.readiness().ready,
            reload_failed=bool(self.refused),
        )

    def status(self) -> dict[str, Any]:
        """State and facts, and the reading they are of."""
        reading, sources = self.reading(), self.settings.sources
        now = present(self.desk, reading, self.phase, max_waiting=self.admission.rules.max_waiting)
        return {
            "version": __version__,
            "config_file": None if sources.file is None else str(sources.file),
            "phase": self.phase,
            "policy": self.desk.rules.effective_policy,
            "pinned": self.desk.rules.operator_pin,
            "warnings": self._warnings(),
            "engines": {each.role.value: each.facts for each in self.desk.backends},
            "urls": {each.role.value: each.url for each in self.desk.backends},
            "learning": self._learning(),
            "sentence": telling.now(now),
            "troubles": [each._asdict() for each in self.watch.troubles(telling.troubles(now, self.refused))],
            "verdict": config.sentences(sources.curves),
            "dropped_in_flight": self._dropped(),
            **{name: getattr(reading, name) for name in READING},
            **dict.fromkeys(unlooked(self.desk.rules)),
        }

    def curves(self) -> dict[str, Any]:
        """The measured speeds and their verdict; without a file of them there are no contexts."""
        learning = self.desk.learning
        told = None if learning is None else learning.told(self.desk.backends, self.desk.clock())
        return {**config.shown(self.settings.sources.curves), "learned": told}

    def token(self) -> str | None:
        """What operators have to send; None where nothing is asked for."""
        token = self.settings.admin.token
        return None if token is None else token.get_secret_value()

    def own_name(self) -> str | None:
        """The host that the operators' port may be asked by, besides addresses and localhost; None where any name will
        do: a token or a certificate tells whose port it is."""
        admin = self.settings.admin
        return admin.host if admin.token is None and admin.tls is None else None

    def clients_document(self) -> dict[str, Any]:
        """The clients' port as an OpenAPI document, as it serves now."""
        return clients_document(self.door.engines, locked=self.door.gate.clients is not None)

    def effective(self) -> str:
        """The configuration in force."""
        return config.effective(self.settings)

    async def differences(self) -> dict[str, Any]:
        """The configuration in force beside the defaults, and beside the file as it is now."""
        found = config.beside_defaults(self.settings)
        try:
            written, _ = await anew(self._source, self.disk)
        except InvalidConfig as error:
            return {"set": found, "pending": [], "problems": [str(problem) for problem in error.problems]}
        return {"set": found, "pending": config.pending(self.settings, written), "problems": []}

    # ------------------------------------------------------------ inside

    def _warnings(self) -> list[dict[str, str]]:
        found = [{"code": each.code, "message": each.message} for each in self.acquaintance.warnings]
        fault = self._learned.fault
        return found if fault is None else [*found, {"code": "state_file", "message": fault}]

    def _learning(self) -> dict[str, Any] | None:
        """How learning stands, and the same in words; None where it is off."""
        learning, now_s = self.desk.learning, self.desk.clock()
        if learning is None:
            return None
        told, held = learning.summary(self.desk.backends, now_s), learning.suspended(now_s)
        return {**told, **telling.taught(learning.standings, told["ratios"], suspended=held)}

    def _adopt(self, settings: Settings) -> None:
        if settings.admin.token != self.settings.admin.token:
            self.watch.stream.end()  # who reads on is asked for the new one
        if settings.log != self.settings.log:
            logs.configure(*settings.log.way())
        self.settings, self.files = settings, settings.sources.marks
        self._set_gate(settings)
        self.desk.reload(plan(settings))
        self.admission.rules = queue_rules(settings)
        self.relay.patience = patience(settings)
        self._bodies.rules = body_rules(settings)
        self._front.adopt(connection_rules(settings, open_files.limit()))
        self.door.engines = engines(settings)
        for line in self.pair.connect(line_rules(settings)):
            line.start()
        self.acquaintance.reloaded(settings)

    def _set_gate(self, settings: Settings) -> None:
        clients = settings.sources.clients
        self.door.gate = Gate(clients, tuple(map(raw, settings.listen.cors_origins)))
        self.metrics.know_clients(client.name for client in clients or ())

    def _warn_of_learned(self, message: str) -> None:
        self.logger.warning("learned_file", message=message)

    def _caution(self) -> None:
        for message in config.cautions(self.settings):
            self.logger.warning("config_caution", message=message)
            self.watch.note("caution", message)

    def _dropped(self) -> dict[str, int]:
        """What still runs on backends that a reload has dropped, by url: such an engine is not to be stopped yet."""
        used = [each.book for each in self.desk.backends]
        return {book.name: book.in_flight for book in self.desk.ledger.books if book not in used}

    def _reject(self, problems: list[str]) -> tuple[bool, list[str]]:
        self.refused = tuple(problems)
        self.metrics.reloaded(accepted=False)
        self.logger.error("config_rejected", problems=problems)
        more = f", and {count(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
        self.watch.note("reload_failed", f"A changed configuration was refused, the old one holds: {problems[0]}{more}")
        return False, problems

    async def _listen_admin(self, host: str, port: int) -> int:
        runner = self._admin = web.AppRunner(Admin(self).application(), access_log=None, shutdown_timeout=END_WITHIN_S)
        await runner.setup()
        try:
            await Site(runner, host, port, backlog=BACKLOG, tls=self._tls.get("admin"), protocol=Connection).start()
        except OSError as error:
            raise await ports.refusal("admin", host, port, error) from error
        found: int = runner.addresses[0][1]
        return found

    async def _end(self) -> None:
        """End what still runs; a client that does not even read its error event is not waited for."""
        self.end_now()
        await self._until(lambda: not self._front.is_busy(), self.desk.clock() + END_WITHIN_S)
        self._front.abort()

    async def _until(self, over: Callable[[], bool], until_s: float) -> None:
        while not over() and self.desk.clock() < until_s:  # noqa: ASYNC110 - once in a life
            await asyncio.sleep(DRAIN_LOOK_S)

    def _ended(self, facts: RequestFacts) -> None:
        self.metrics.request_ended(facts)
        facts = self.desk.heard(facts)
        logs.request_settled(self.logger, facts)

    def _changed(self, change: Change) -> None:
        self.metrics.changed(change)
        self.watch.changed(change)
        logs.changed(self.logger, change)
