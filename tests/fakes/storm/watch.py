"""Looks at the proxy's count beside the storm's own books again and again: each lease is at its engine or on its way.

Grace is counted in looks and not in seconds: each look lets everybody have a turn, so a busy machine breaks no promise.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from fakes.storm.books import STARVED_S, Attempt, Books, Held, Record
from fakes.storm.engine import StormEngine

from proxy.app import App
from proxy.dispatch import Assignment
from proxy.model import ROLES, CircuitState

LOOK_EVERY_S = 0.05
# Longer than a request may need from its place to its engine, or from its engine's end to its settling: a kept answer
# (1 s), a connection (0.5 s) and the peek. Some three seconds.
GRACE_LOOKS = 60
# From a client's end to the end of its lease and of its trip: nothing is waited for there. One second.
OVER_LOOKS = 20
# An engine that has been good for so long should be in use, and then never be thought bad for longer than this.
GOOD_LOOKS = 60
UNREADY_LOOKS = 60
# So many calm requests in a row, and for so long, that all fail while an engine is good are no chance: a full queue
# refuses sixty in a tenth of a second, and in a lull nobody asks at all.
CALM_FAILURES = 60
UNSERVED_LOOKS = 60


class Watch:
    """Sees every lease opened, and looks around every LOOK_EVERY_S."""

    def __init__(self, app: App, engines: Sequence[StormEngine], books: Books) -> None:
        self.app, self.engines, self.books = app, engines, books
        self.held: list[Held] = []
        self._by_url = {engine.url: engine for engine in engines}
        self._good = {engine.url: 0 for engine in engines}
        self._unready = 0
        self._unserved = 0
        self._calm_before = (0, 0)
        self._watch_assign()

    def _watch_assign(self) -> None:
        assign = self.app.desk.assign

        def noted(traits: Any, request_id: str, *more: Any, **how: Any) -> Any:
            place = assign(traits, request_id, *more, **how)
            if isinstance(place, Assignment):
                self._leased(place, request_id)
            return place

        self.app.desk.assign = noted  # type: ignore[method-assign]

    def _leased(self, place: Assignment, request_id: str) -> None:
        books, backend, lease = self.books, place.backend, place.lease
        books.note(request_id, f"leased {lease.weight} on {backend.role} at {lease.book.name}")
        limit = backend.max_in_flight
        within = limit is None or lease.book.in_flight <= limit
        books.holds(within, "never more in flight than max_in_flight", f"{lease.book.in_flight} of {limit}", request_id)
        record = books.recall(request_id)
        alive = record is not None and record.looks_over < OVER_LOOKS
        if not books.holds(alive, "only who lives gets a lease", "", request_id) or record is None:
            return
        weight = record.plan.weight if limit is None else max(1, min(record.plan.weight, limit))
        books.holds(lease.weight == weight, "a lease has its weight", f"{lease.weight}, not {weight}", request_id)
        books.holds(len(record.leases) < 2, "at most one failover", f"{len(record.leases) + 1} leases", request_id)
        held = Held(lease, lease.book.name, weight)
        record.leases.append(held)
        self.held.append(held)

    # ------------------------------------------------------------ all along

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            before_s = monotonic()
            await asyncio.sleep(LOOK_EVERY_S)  # sleeps: it looks at a storm from outside
            stood_s = monotonic() - before_s - LOOK_EVERY_S
            if stood_s > STARVED_S:
                self.books.starve(stood_s)
            self.look()

    def look(self) -> None:
        self.books.figures.looks += 1
        self.held = [held for held in self.held if held.open]
        self._look_at_books()
        self._look_at_queue()
        for record in tuple(self.books.records.values()):
            self._look_at(record)
        self._look_at_service()

    def _look_at_books(self) -> None:
        """The proxy's number is what its leases weigh, to the last sequence."""
        holds = self.books.holds
        known = {book.name: book for book in self.app.desk.ledger.books}
        for name, book in known.items():
            weight = sum(held.weight for held in self.held if held.name == name)
            exact = book.in_flight - book.lingering == weight
            holds(exact, "in flight is exact", f"{book.in_flight} less {book.lingering} of {name}, leased {weight}")
            holds(
                min(book.in_flight, book.lingering) >= 0, "in flight is never negative", f"{book.in_flight} of {name}"
            )
            leases = sum(held.name == name for held in self.held)
            holds(len(book._leases) == leases, "every lease is a request's", f"{len(book._leases)}, not {leases}")
        lost = [held.name for held in self.held if held.name not in known]
        holds(not lost, "in flight is exact", f"leases of books that are gone: {lost}")

    def _look_at_queue(self) -> None:
        waiting = self.app.admission.waiting
        self.books.holds(0 <= waiting <= 200, "the queue is bounded", f"{waiting}")
        for trip in self.app.relay.trips:
            record = self.books.recall(trip._id)
            over = record is None or record.looks_over > OVER_LOOKS
            self.books.holds(not over or self._garbage(trip._id), "no trip outlives its client", "", trip._id)

    @staticmethod
    def _garbage(request_id: str) -> bool:
        return not request_id.startswith("s")

    def _look_at(self, record: Record) -> None:
        if record.outcome is not None:
            record.looks_over += 1
        for held in record.leases:
            self._look_at_lease(record, held)
        leases = sum(held.open for held in record.leases)
        self.books.holds(leases <= 1, "one lease at a time", f"{leases}", record.id)
        for attempt in record.attempts:
            self._look_at_attempt(record, attempt)
        twice = len({attempt.url for attempt in record.attempts if attempt.open}) > 1
        record.looks_twice = record.looks_twice + 1 if twice else 0
        self.books.holds(record.looks_twice < GRACE_LOOKS, "a request runs on one engine at a time", "", record.id)
        if record.outcome is None or any(each.open for each in (*record.leases, *record.attempts)):
            return
        self.books.retire(record, self.books.figures.looks + GRACE_LOOKS)

    def _look_at_lease(self, record: Record, held: Held) -> None:
        if not held.open:
            held.looks_settled += 1
            return
        self.books.holds(record.looks_over < OVER_LOOKS, "no lease outlives its client", f"on {held.name}", record.id)
        there = any(each.open and each.url == held.name for each in record.attempts)
        held.looks_elsewhere = 0 if there or record.plan.conduct in ("slow", "asleep") else held.looks_elsewhere + 1
        fine = held.looks_elsewhere < GRACE_LOOKS
        self.books.holds(fine, "what is leased is at its engine or on its way", f"on {held.name}", record.id)

    def _look_at_attempt(self, record: Record, attempt: Attempt) -> None:
        leased = not attempt.open or any(held.open and held.name == attempt.url for held in record.leases)
        attempt.looks_unleased = 0 if leased else attempt.looks_unleased + 1
        self.books.holds(
            attempt.looks_unleased < OVER_LOOKS, "what runs at an engine is leased", f"at {attempt.name}", record.id
        )

    # ------------------------------------------------------------ service

    def _look_at_service(self) -> None:
        """Where one engine has been good for a while, the proxy says so and serves."""
        now_s = monotonic()
        for engine in self.engines:
            good = self._is_good(engine)
            self._good[engine.url] = self._good[engine.url] + 1 if good else 0
            self._see_return(engine, now_s)
        calm, served = self.books.figures.calm, self.books.figures.calm_served
        good_url = next((url for url, looks in self._good.items() if looks > GOOD_LOOKS), None)
        if good_url is None or self.books.closing:
            self._unready, self._unserved, self._calm_before = 0, 0, (calm, served)
            return
        self._unready = 0 if self.app.readiness().ready else self._unready + 1
        name = self._by_url[good_url].name
        self.books.holds(self._unready < UNREADY_LOOKS, "ready while an engine is good", f"{name} is", name)
        self._unserved += 1
        if served > self._calm_before[1]:
            self._unserved, self._calm_before = 0, (calm, served)
        failed = calm - self._calm_before[0]
        fine = failed < CALM_FAILURES or self._unserved < UNSERVED_LOOKS
        self.books.holds(fine, "served while an engine is good", f"{failed} in a row failed", name)

    def _is_good(self, engine: StormEngine) -> bool:
        backend = next((each for each in self.app.desk.backends if each.url == engine.url), None)
        return backend is not None and not backend.draining and engine.alive and engine.mood == "honest"

    def _see_return(self, engine: StormEngine, now_s: float) -> None:
        """How long it took until an engine that was started again was in use again."""
        if engine.restarted_s is None:
            return
        if not self._good[engine.url]:
            engine.restarted_s = None
            return
        backend = next(each for each in self.app.desk.backends if each.url == engine.url)
        eligible = backend.health.up and backend.circuit.state is CircuitState.CLOSED
        if eligible and not engine.returned:
            engine.returned = True
            self.books.figures.returns_s.append(now_s - engine.restarted_s)

    # ------------------------------------------------------------ afterwards

    def nothing_is_left(self) -> bool:
        app = self.app
        return (
            not app.relay.trips
            and not app.admission.waiting
            and all(book.in_flight == 0 for book in app.desk.ledger.books)
            and app.desk.snapshot().in_flight == 0
            and all(not engine.attempts for engine in self.engines)
            and len(app.desk.backends) == len(ROLES)
        )
