"""Holds history, journal and stream of one proxy, and turns once a second.

Without readers a turn is one sample and a look at who is eligible. What a request meets of this is one append.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from proxy import tasks
from proxy.dispatch import Desk
from proxy.means import Means
from proxy.metrics import Metrics
from proxy.model import Change, ChangeKind, CircuitState, DecisionRecord, EngineFacts, RequestFacts, Role
from proxy.protocol.agreement import Disagreement
from proxy.routing.out import Out
from proxy.state.backend import Backend
from proxy.telling import Running, Trouble, why_out
from proxy.watch import sentences, silence, under_way
from proxy.watch.bursts import Bursts
from proxy.watch.due import Due
from proxy.watch.history import STEP_S, History, Sample, row
from proxy.watch.journal import Entry, Journal, Number
from proxy.watch.remembered import told_decision
from proxy.watch.stream import Stream, event
from proxy.watch.under_way import out_of

# Decisions that a turn shows; beyond some twenty a second nobody can read them, and they are counted.
MAX_SHOWN = 20


class Watch:
    """What operators see of one proxy. `status` is the status as JSON tells it, `means` has the requests under way."""

    def __init__(
        self,
        desk: Desk,
        metrics: Metrics,
        waiting: Callable[[], int],
        status: Callable[[], dict[str, Any]],
        means: Callable[[], Means],
    ) -> None:
        self.history = History(desk, metrics.totals, waiting)
        self.journal = Journal()
        self._bursts = Bursts(self.history.last)
        self.stream = Stream()
        self._desk = desk
        self._status = status
        self._means = means
        self._keeper: asyncio.Task[None] | None = None
        self._eligible: dict[str, bool] = {}
        self._silent: set[str] = set()  # urls
        self._engines: dict[str, EngineFacts] = {}
        self._disagreements: tuple[str, ...] = ()
        self._told = 0  # entries of the journal that readers have had
        self._told_at_s = desk.clock()
        self._state_due = Due()
        self._failed = False  # the latest turn, which has been told

    # ------------------------------------------------------------ life

    def start(self, *, every_s: float = STEP_S) -> None:
        """Begin to take samples."""
        self._look_who_is_eligible()
        self._keeper = tasks.spawn(self._run(every_s), name="watch")

    async def stop(self) -> None:
        """End the streams and the task."""
        self.stream.close()
        await tasks.end(self._keeper)

    async def _run(self, every_s: float) -> None:
        due_s = self._desk.clock()
        while True:
            # After a late turn the next comes no sooner than half a step: a speed over less would tell of chance.
            due_s = max(due_s + every_s, self._desk.clock() + every_s / 2)
            await asyncio.sleep(due_s - self._desk.clock())
            try:
                self.turn()
            except Exception as defect:  # noqa: BLE001 - of ours: one turn is lost, and not all that come after it
                self._tell(defect)
            else:
                self._failed = False

    def _tell(self, defect: Exception) -> None:
        if not self._failed:
            told = {"message": "a turn of what operators see failed", "exception": defect}
            asyncio.get_running_loop().call_exception_handler(told)
        self._failed = True

    # ------------------------------------------------------------ what happens

    def changed(self, change: Change) -> None:
        """Note a change of regime, circuit, health, silence, pin, drain or learning."""
        if change.kind is ChangeKind.SILENCE:
            self._look_who_is_silent()  # at once: one that is over before the next turn is in the log as well
            return
        desk = self._desk
        first, second = desk.backends
        counts = first.book.in_flight, second.book.in_flight
        tried = None if desk.learning is None else desk.learning.tries.now
        trial = tried is not None and tried.role is change.role
        beside = None if change.role is None else out_of(desk, desk.backend(change.role.other))
        self.journal.write(
            sentences.of_change(change, desk.rules, desk.regime, counts, desk.clock(), trial=trial, beside=beside)
        )

    def note(self, kind: str, sentence: str, role: Role | None = None, **numbers: Number) -> None:
        """Note anything else."""
        self.journal.write(Entry(self._desk.clock(), kind, role, sentence, numbers))

    def engine_seen(self, role: Role, url: str, facts: EngineFacts) -> None:
        """Note an engine that tells what it is, once as long as it tells the same."""
        before = self._engines.get(url)
        if before == facts:
            return
        self._engines[url] = facts
        kind = "engine_seen" if before is None else "engine_changed"
        parts = [facts.model or "an unnamed model", f"version {facts.version}" if facts.version else "no version told"]
        if facts.speculative_algorithm:
            parts.append(f"speculating by {facts.speculative_algorithm}")
        verb = "serves" if before is None else "has begun anew or changed, and serves"
        self.note(kind, f"The engine of {role} {verb} {', '.join(parts)}.", role, url=url, version=facts.version)

    def disagree(self, found: list[Disagreement]) -> None:
        """Note what the two engines disagree on, once as long as it is the same."""
        codes = tuple(each.code for each in found)
        if codes != self._disagreements:
            for each in found:
                self.note("disagreement", each.message, code=each.code)
        self._disagreements = codes

    # ------------------------------------------------------------ what is seen

    def offset_s(self) -> float:
        """What makes unix seconds of the desk's monotonic ones."""
        return time.time() - self._desk.clock()  # noqa: TID251 - people want to know when, not how long ago

    def decisions(self) -> list[tuple[float, DecisionRecord]]:
        """Recent decisions with their unix seconds, oldest first."""
        offset_s = self.offset_s()
        return [(record.at_s + offset_s, record) for record in self._desk.ring]

    def troubles(self, found: list[Trouble]) -> list[Trouble]:
        """These and the backends that are silent, the worst first."""
        found = [*silence.troubles(self._desk.backends, self._desk.clock()), *found]
        return sorted(found, key=lambda each: (each.code != "not_ready", not each.severe))

    def settled(self, request_id: str) -> RequestFacts | None:
        """What a request ended with, while that is remembered."""
        found = self._desk.settled.of(request_id)
        return None if found is None else found.facts

    def running(self, request_id: str) -> Running | None:
        """Where a request stands that still runs; None where none of this id does."""
        return under_way.of_id(self._means(), request_id)

    def running_ids(self, begin: str) -> set[str]:
        """The ids of requests that still run which begin so."""
        return under_way.beginning(self._means(), begin)

    def failed(self, limit: int) -> list[tuple[float, RequestFacts]]:
        """The latest requests that failed with the unix seconds of their ends, newest first."""
        offset_s = self.offset_s()
        return [(found.at_s + offset_s, found.facts) for found in self._desk.settled.failed(limit)]

    # ------------------------------------------------------------ a turn

    def turn(self) -> None:
        """One step: a sample, and what readers are told."""
        sample = self.history.take()
        for entry in self._bursts.look(self.history.last, sample.at_s):
            self.journal.write(entry)
        self._look_who_is_eligible()
        self._look_who_is_silent()
        try:
            if self.stream.readers:
                self.stream.publish(self._news(sample))
        finally:  # what cannot be told is not tried again
            self._told, self._told_at_s = self.journal.written, sample.at_s

    def first(self) -> bytes:
        """What a new reader gets at once."""
        return event("state", self._status())

    def _news(self, sample: Sample) -> bytes:
        offset_s = self.offset_s()
        parts = [event("sample", row(sample, offset_s))]
        fresh = self.journal.newest(self.journal.written - self._told)
        parts += [event("journal", entry.told(offset_s)) for entry in reversed(fresh)]
        count = sample.speculative_requests + sample.baseline_requests
        if count:
            parts.append(event("decisions", {"count": count, "shown": self._shown(offset_s)}))
        if self._state_due.turn(sample, self.journal.written):
            parts.append(event("state", self._status()))
        return b"".join(parts)

    def _shown(self, offset_s: float) -> list[dict[str, Any]]:
        """The newest decisions since the last turn, newest first."""
        shown: list[dict[str, Any]] = []
        for record in reversed(self._desk.ring):
            if record.at_s <= self._told_at_s or len(shown) == MAX_SHOWN:
                break
            shown.append(told_decision(record.at_s + offset_s, record))
        return shown

    def _look_who_is_eligible(self) -> None:
        desk = self._desk
        turned: list[Backend] = []
        for backend in desk.backends:
            # Trial requests are told by the circuit's own entries: they are no return.
            closed = backend.circuit.state is CircuitState.CLOSED
            eligible = closed and backend.eligible(desk.plan.breaker, desk.clock())
            before, self._eligible[backend.url] = self._eligible.get(backend.url), eligible
            if before is not None and before is not eligible:
                turned.append(backend)
        if turned and desk.snapshot().all_down:
            both = " and ".join(f"{each.role} {why_out(out_of(desk, each))}" for each in desk.backends)
            one = turned[0].role if len(turned) == 1 else None
            sentence = f"No backend serves: {both}. Requests are tried on both all the same."
            self.note("eligible", sentence, one, eligible=0.0)
            return
        for backend in turned:
            eligible = self._eligible[backend.url]
            out = f"takes no requests: it {why_out(out_of(desk, backend) or Out.CIRCUIT_OPEN)}"
            what = "takes requests again" if eligible else out
            self.note("eligible", f"{backend.role.value.capitalize()} {what}.", backend.role, eligible=float(eligible))

    def _look_who_is_silent(self) -> None:
        now_s, before = self._desk.clock(), self._silent
        self._silent = {each.url for each in self._desk.backends if each.gives_nothing}
        for backend in self._desk.backends:
            if backend.url in self._silent - before:
                self.note("silent", silence.said(backend, now_s), backend.role)
            elif backend.url in before - self._silent and backend.health.up:
                self.note("silent_over", f"{backend.role.value.capitalize()} gives answers again.", backend.role)
