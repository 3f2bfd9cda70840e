"""H7: after requests that end in every way there is nothing is in flight, nothing is open and nothing has grown."""

import asyncio
import gc
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.endings import Flaky, Storm, by_id
from fakes.engine import Exchange
from fakes.failing import UNPROBED, hang, pinned
from fakes.proxy import running, settings
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import staged
from fakes.unfreed import unfreed
from fakes.until import until
from prometheus_client.parser import text_string_to_metric_families

from proxy.app import App
from proxy.model import Outcome, Role
from proxy.state.ledger import LeaseError, Ledger

OF_EACH_KIND = 2000
# Enough that every pool, cache and ring is as large as it becomes: the ring of decisions holds a thousand.
WARM_UP = 100
SMALL = 30
LIMIT = 2  # sequences on each backend: with a hundred at once most of the others wait
LATER_S = 120.0
MAX_GROWTH_BYTES = 10 << 20
# Of the requests of a kind so many end as meant at least; the others met the port that was closed for somebody else.
AS_MEANT = 0.9

MEANT = {
    "success": Outcome.FINISHED,
    "leave_uploading": Outcome.CLIENT_GONE_WAITING,
    "leave_queued": Outcome.CLIENT_GONE_WAITING,
    "leave_before_head": Outcome.CLIENT_GONE_WAITING,
    "leave_in_stream": Outcome.CLIENT_GONE_IN_STREAM,
    "reject": Outcome.FINISHED,
    "fail": Outcome.FAILED_BEFORE_COMMIT,
    "reset": Outcome.FAILED_BEFORE_COMMIT,
    "reset_in_stream": Outcome.FAILED_AFTER_COMMIT,
    "garbage": Outcome.FAILED_BEFORE_COMMIT,
    "huge_head": Outcome.FAILED_BEFORE_COMMIT,
}


def later(app: App) -> None:
    """Two minutes later by the proxy's clock: circuits have cooled down and failures no longer weigh."""
    app.desk.clock = app.desk.ledger._clock = lambda: time.monotonic() + LATER_S


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted(app: App, name: str) -> Counter[str]:
    """A counter's values by outcome."""
    total: Counter[str] = Counter()
    for family in text_string_to_metric_families(app.metrics.exposition().decode()):
        for sample in family.samples:
            if sample.name == name:
                total[sample.labels["outcome"]] += int(sample.value)
    return total


async def where_idle_traffic_goes(storm: Storm, number: int) -> str | None:
    name = f"success.idle{number}"
    async with RawClient(storm.app.port, storm.host) as client:
        await client.send(request("/v1/chat/completions", chat(), f"x-request-id: {name}"))
        return (await client.answer()).header("x-crossover-backend")


def nothing_is_left(storm: Storm) -> bool:
    app = storm.app
    return (
        not app.relay.trips
        and not app.admission.waiting
        and app.desk.snapshot().in_flight == 0
        and app.reading().held_body_bytes == 0
        and all(engine.open == 0 for engine in storm.engines)
    )


async def quiet(storm: Storm, descriptors: int, tasks: int) -> None:
    """Wait until nothing is left of the storm: kept connections to the engines are dropped after some seconds."""
    await until(lambda: nothing_is_left(storm), 30.0, what="every request's end")
    await until(lambda: open_descriptors() <= descriptors, 30.0, what=f"no more than {descriptors} descriptors")
    await until(lambda: len(asyncio.all_tasks()) <= tasks, 30.0, what=f"no more than {tasks} tasks")


def check_books(storm: Storm) -> None:
    for backend in storm.app.desk.backends:
        counts = backend.book.counts(storm.app.desk.clock())
        assert (counts.in_flight, counts.lingering, counts.requests) == (0, 0, 0)
        assert backend.book.opened == backend.book.settled > SMALL
    assert not storm.running
    assert not storm.ended_twice
    outcomes: Counter[str] = Counter()
    for tally in storm.tallies.values():
        outcomes.update({outcome.value: count for outcome, count in tally.outcomes.items()})
    assert counted(storm.app, "crossover_requests_total") == outcomes


def check_endings(storm: Storm, of_each_kind: int) -> None:
    """The storm was one: every ending happened, and happened to those it was meant for."""
    for kind, outcome in MEANT.items():
        tally = storm.tallies[kind]
        assert tally.outcomes.total() >= of_each_kind
        assert tally.outcomes[outcome] > AS_MEANT * of_each_kind, (kind, tally)
        assert tally.outcomes[outcome] + tally.refused > 0.95 * of_each_kind, (kind, tally)
    assert storm.tallies["leave_queued"].queued > 0.9 * of_each_kind
    # Where the other backend was full or failing as well, these ended as an error.
    assert storm.tallies["refuse"].refused > 0.95 * of_each_kind
    assert storm.tallies["refuse"].moved > 0
    success = storm.tallies["success"]
    assert success.statuses[200] == success.whole


@asynccontextmanager
async def stormy(host: str = "127.0.0.1", **sections: Any) -> AsyncIterator[Storm]:
    listen = {"host": host, "port": 0}
    async with (
        Flaky(script=by_id, host=host, max_running_requests=LIMIT) as a,
        Flaky(role="baseline", script=by_id, host=host, max_running_requests=LIMIT) as b,
        running(settings(a.url, b.url, listen=listen, **sections)) as app,
    ):
        yield Storm(app, (a, b), random.Random(7), host)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("calls", "control"):  # kept connections need not be waited for
        monkeypatch.setattr(f"proxy.wire.{path}.POOL_IDLE_S", 0.5)
    monkeypatch.setattr("fakes.raw.WITHIN_S", 60.0)  # on a busy machine a storm is slow, and that is no fault


async def test_h7_after_two_thousand_requests_of_each_of_twelve_kinds_nothing_is_left() -> None:
    """Circuits stay closed here, so that every request meets the end that it is meant for."""
    sections = {"routing": {"policy": "overflow", "allow_header": True}, "circuit": {"max_failures": 1000}}
    async with stormy(**sections) as storm:
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        went_before = {await where_idle_traffic_goes(storm, number) for number in range(5)}
        await storm.rage(range(WARM_UP))
        await quiet(storm, descriptors, tasks)
        before_bytes = resident_bytes()
        await storm.rage(range(WARM_UP, WARM_UP + OF_EACH_KIND))
        await quiet(storm, descriptors, tasks)
        check_books(storm)
        check_endings(storm, OF_EACH_KIND)
        assert resident_bytes() - before_bytes < MAX_GROWTH_BYTES
        later(storm.app)
        goes_after = {await where_idle_traffic_goes(storm, number) for number in range(5, 10)}
        assert goes_after == went_before == {Role.SPECULATIVE}


@pytest.mark.parametrize(
    ("routing", "host"),
    [
        ({"policy": "threshold"}, "127.0.0.1"),
        ({"policy": "overflow"}, "::1"),
        ({"policy": "pinned", "pin": "speculative"}, "127.0.0.1"),
        ({"policy": "pinned", "pin": "baseline"}, "::1"),
    ],
)
async def test_h7_after_a_storm_nothing_is_left_whatever_the_policy_the_role_and_the_address_family(
    routing: dict[str, Any], host: str
) -> None:
    """Here circuits open, cool down and let probes through in the middle of it."""
    async with stormy(host, routing=routing, circuit={"open_s": 0.2}) as storm:
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        went_before = {await where_idle_traffic_goes(storm, number) for number in range(3)}
        await storm.rage(range(SMALL))
        await quiet(storm, descriptors, tasks)
        check_books(storm)
        assert storm.tallies["refuse"].refused > 0
        later(storm.app)
        assert {await where_idle_traffic_goes(storm, number) for number in range(3, 6)} == went_before


async def test_h7_nothing_of_a_request_waits_for_the_garbage_collector_whatever_its_end() -> None:
    """What only the collector frees is memory, and later the collector's own time, for every single request."""
    sections = {"routing": {"policy": "overflow", "allow_header": True}, "circuit": {"max_failures": 1000}}
    async with stormy(**sections) as storm:
        descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
        await storm.rage(range(SMALL))
        await quiet(storm, descriptors, tasks)
        with unfreed() as found:
            await storm.rage(range(SMALL, 2 * SMALL))
            await quiet(storm, descriptors, tasks)
        check_endings(storm, SMALL)
    assert not found


async def test_h7_nothing_waits_for_the_garbage_collector_where_the_other_backend_has_no_room() -> None:
    """The first backend's own refusal is the answer then."""

    async def busy(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "503 Busy")

    routing = {**pinned(Role.SPECULATIVE), "allow_header": True}
    more: dict[str, Any] = {"routing": routing, "queue": {"max_wait_s": 0.05}, "health": UNPROBED}
    async with staged(a=busy, b=hang, max_in_flight=(256, 1), **more) as stage, RawClient(stage.app.port) as taking:
        await taking.send(request("/v1/chat/completions", chat(), "x-crossover-backend: baseline"))
        await until(lambda: stage.in_flight == 1, what="the other backend being full")
        with unfreed() as found:
            for _ in range(3):
                said = await ask(stage.app.port, request("/v1/chat/completions", chat()))
                assert (said.status, said.header("x-crossover-backend")) == (503, "speculative")
            await until(lambda: len(stage.app.relay.trips) == 1, what="the end of every other request")
        assert [facts.queue_s > 0 for facts in stage.ended] == [True] * 3
    assert not found


def test_h7_a_request_releases_what_it_took_exactly_once() -> None:
    """One scope object: what ends it a second time is told that it is wrong, and changes no count."""
    ledger = Ledger(time.monotonic)
    book = ledger.add("a")
    lease = ledger.open(book, 3)
    lease.settle(Outcome.CLIENT_GONE_IN_STREAM)
    with pytest.raises(LeaseError):
        lease.settle(Outcome.FINISHED)
    assert (book.in_flight, book.opened, book.settled) == (0, 1, 1)
