"""H15: engines that are gone, by address and by name; H16: engines that hang. Health pages: test_health_pages.py."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from fakes.engine import Exchange, FakeEngine, Script, content, plain
from fakes.failing import (
    EITHER_ROLE,
    FORMS,
    PLAIN_CHAT,
    STREAMING,
    UNPROBED,
    Form,
    Paged,
    black_hole,
    hang,
    pinned,
    scripts,
    serve_any,
)
from fakes.leaping import leaping, passed_s
from fakes.lookups import resolve_by
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until, until_told

from proxy import tasks
from proxy.app import App
from proxy.config.settings import Timeouts
from proxy.model import CircuitState, Reason, Role

INTERVAL_S, TIMEOUT_S = 1.0, 5.0
PROBED = {"interval_s": INTERVAL_S, "timeout_s": TIMEOUT_S}
NO_BUDGET = {"max_ratio": 0.0, "reserve": 0}
A, B = Role.SPECULATIVE, Role.BASELINE


def engine_of(stage: Stage, role: Role) -> FakeEngine:
    return stage.a if role is A else stage.b


async def page(port: int, target: str) -> Said:
    return await ask(port, request(target, method="GET"))


# ---------------------------------------------------------------- H15 (a): the port is closed


@EITHER_ROLE
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["ipv4", "ipv6"])
@leaping
async def test_h15a_no_request_fails_when_one_engines_port_closes(role: Role, host: str) -> None:
    """Connections to it are kept from before, and no budget is there to spend."""
    async with staged(
        a=serve_any, b=serve_any, host=host, routing=pinned(role), retries=NO_BUDGET, health=PROBED
    ) as stage:
        for _ in range(2):
            said = await asyncio.gather(*(form.ask(stage) for form in FORMS))
            assert all(form.is_good(each) for form, each in zip(FORMS, said, strict=True))
        await engine_of(stage, role).close()
        for _ in range(10):
            said = await asyncio.gather(*(form.ask(stage) for form in FORMS))
            assert all(form.is_good(each) for form, each in zip(FORMS, said, strict=True))
            await asyncio.sleep(0.5)
        await engine_of(stage, role).listen()


# ---------------------------------------------------------------- H15 (b): packets are dropped


@EITHER_ROLE
@STREAMING
@leaping
async def test_h15b_connecting_is_given_up_after_two_seconds_and_the_other_engine_serves(
    role: Role, stream: bool
) -> None:
    with black_hole() as hole:
        async with FakeEngine() as alive:
            urls = (hole, alive.url) if role is A else (alive.url, hole)
            rules: dict[str, Any] = {"routing": pinned(role), "retries": NO_BUDGET, "health": UNPROBED}
            async with running(settings(*urls, timeouts={"connect_s": Timeouts().connect_s}, **rules)) as app:
                app.desk.backend(role).health = app.desk.backend(role.other).health
                began_s = passed_s()
                said = await ask(app.port, request(body=chat(stream=stream)))
                assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
                assert 1.9 <= passed_s() - began_s <= 2.2


@leaping
async def test_h15b_nobody_waits_for_a_connection_once_the_engine_is_known_to_be_unreachable() -> None:
    with black_hole() as hole:
        async with FakeEngine() as b, running(settings(hole, b.url, health=PROBED)) as app:
            await asyncio.sleep(20.0)
            began_s = passed_s()
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-reason") == "only_eligible"
            assert passed_s() - began_s < 0.1


# ---------------------------------------------------------------- H15 (c) and (d): names


class Names:
    """Stands for the resolver: `known` says where names are; others fail, or hang where they are in `hanging`."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.hanging: set[str] = set()
        self.hung = 0
        self.let_go = threading.Event()
        self._look_up = socket.getaddrinfo

    def __call__(self, host: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(host, str) and host.endswith(".test"):
            if host in self.hanging:
                self.hung += 1
                self.let_go.wait(60.0)  # longer than any test; its end lets go
            if host not in self.known:
                raise socket.gaierror(socket.EAI_NONAME, "no such name")
            host = self.known[host]
        return self._look_up(host, *rest, **more)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    resolver = Names()
    resolve_by(monkeypatch, resolver)
    yield resolver
    resolver.let_go.set()


def named(role: Role, engine: FakeEngine) -> str:
    return f"http://engine-{'a' if role is A else 'b'}.test:{engine.port}"


async def served_by(app: App, role: Role) -> None:
    """Ask until `role` serves; every answer on the way is a good one."""

    async def once() -> bool:
        said = await ask(app.port, request(body=chat()))
        assert said.status == 200
        return said.header("x-crossover-backend") == role.value

    await until_told(once)


QUICK: dict[str, Any] = {"health": {"interval_s": 0.1}, "circuit": {"open_s": 0.1}}


async def test_h15c_no_request_fails_when_a_name_stops_resolving(names: Names) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        names.known["engine-a.test"] = "127.0.0.1"
        async with running(settings(named(A, a), b.url, retries=NO_BUDGET, **QUICK)) as app:
            await served_by(app, A)
            del names.known["engine-a.test"]
            said = await asyncio.gather(*(ask(app.port, request(body=chat())) for _ in range(50)))
            assert {each.status for each in said} == {200}
            names.known["engine-a.test"] = "127.0.0.1"
            await served_by(app, A)


async def test_h15c_engine_is_used_once_its_name_resolves(names: Names) -> None:
    async with (
        FakeEngine() as a,
        FakeEngine(role="baseline") as b,
        running(settings(named(A, a), b.url, retries=NO_BUDGET, **QUICK)) as app,
    ):
        await served_by(app, B)
        names.known["engine-a.test"] = "127.0.0.1"
        await served_by(app, A)


async def test_h15c_lookup_that_hangs_does_not_keep_the_other_engine_from_serving(names: Names) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        names.known |= {"engine-a.test": "127.0.0.1", "engine-b.test": "127.0.0.1"}
        names.hanging.add("engine-a.test")
        timeouts = {"connect_s": 0.5}
        async with running(settings(named(A, a), named(B, b), retries=NO_BUDGET, timeouts=timeouts, **QUICK)) as app:
            backend = app.desk.backend(A)
            await until(lambda: backend.health.misses >= 8, 30.0, what="lookup after lookup coming to hang")
            said = await asyncio.gather(*(ask(app.port, request(body=chat())) for _ in range(20)))
            assert {(each.status, each.header("x-crossover-backend")) for each in said} == {(200, "baseline")}
            names.let_go.set()


async def test_h15d_engine_that_moved_to_a_new_address_is_found_and_no_request_fails(names: Names) -> None:
    names.known["engine-a.test"] = "127.0.0.1"
    async with FakeEngine(role="baseline") as b, FakeEngine() as old:
        async with running(settings(named(A, old), b.url, retries=NO_BUDGET, **QUICK)) as app:
            await served_by(app, A)
            await old.close()
            async with FakeEngine(host="127.0.0.2", port=old.port) as new:
                names.known["engine-a.test"] = "127.0.0.2"
                await served_by(app, A)
                assert new.requests
        await old.listen()


@pytest.fixture
def names_at_once(monkeypatch: pytest.MonkeyPatch) -> Names:
    """The resolver of a loop that leaps."""
    resolver = Names()
    resolve_by(monkeypatch, resolver, threaded=False)
    return resolver


async def closing(exchange: Exchange) -> None:
    """A whole answer, and a new connection for the next."""
    await exchange.answer(b"{}", "200 OK", "connection: close")


@leaping
async def test_h15c_lookup_that_failed_is_forgotten_within_a_second(names_at_once: Names) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        rules: dict[str, Any] = {"routing": pinned(A), "retries": NO_BUDGET, "health": UNPROBED}
        async with running(settings(named(A, a), b.url, **rules)) as app:
            app.desk.backend(A).health = app.desk.backend(B).health
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-reason") == "failover"
            names_at_once.known["engine-a.test"] = "127.0.0.1"
            await asyncio.sleep(1.0)
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize(("script", "within_s"), [(closing, 1.0), (plain, 31.0)], ids=["new", "kept"])
@leaping
async def test_h15d_engine_that_moved_is_found_though_its_old_address_still_answers(
    names_at_once: Names, script: Script, within_s: float
) -> None:
    """A request a second. A new connection looks its name up; one that is kept all the while is given up after thirty
    seconds."""
    names_at_once.known["engine-a.test"] = "127.0.0.1"
    async with (
        FakeEngine(role="baseline") as b,
        FakeEngine(script=script) as old,
        FakeEngine(host="127.0.0.2", port=old.port) as new,
        running(settings(named(A, old), b.url, routing=pinned(A), health=UNPROBED)) as app,
    ):
        await ask(app.port, request(body=chat()))
        names_at_once.known["engine-a.test"] = "127.0.0.2"
        moved_at_s = passed_s()
        while not new.requests:
            assert passed_s() - moved_at_s <= within_s, "requests still go to the old address"
            await asyncio.sleep(1.0)
            assert (await ask(app.port, request(body=chat()))).status == 200


# ---------------------------------------------------------------- H15 (e): both are gone


@leaping
async def test_h15e_readiness_turns_503_within_two_intervals_and_says_why() -> None:
    async with staged(health=PROBED) as stage:
        await asyncio.sleep(INTERVAL_S / 2)
        assert (await page(stage.app.port, "/ready")).status == 200
        await stage.a.close()
        await stage.b.close()
        gone_at_s = passed_s()
        while (said := await page(stage.app.port, "/ready")).status == 200:
            assert passed_s() - gone_at_s <= 2 * INTERVAL_S, "both engines are gone, and the proxy says it is ready"
            await asyncio.sleep(INTERVAL_S / 10)
        assert said.status == 503 and "no backend" in str(said.json["reason"])
        await stage.a.listen()
        await stage.b.listen()


@pytest.mark.parametrize("target", ["/live", "/livez", "/healthz", "/health/live"])
@leaping
async def test_h15e_liveness_stays_200_when_both_engines_are_gone(target: str) -> None:
    async with staged(health=PROBED) as stage:
        await stage.a.close()
        await stage.b.close()
        await until(lambda: not stage.app.readiness().ready, what="the proxy not being ready")
        assert (await page(stage.app.port, target)).status == 200
        await stage.a.listen()
        await stage.b.listen()


# ---------------------------------------------------------------- H16


async def half_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-")
    await exchange.gone()


async def half_event(exchange: Exchange) -> None:
    await exchange.stream_head()
    await exchange.chunk(b'data: {"choices":[')
    await exchange.gone()


ARRIVALS, RATE = 400, 200
FIRST_BYTE_S = 5.0


@pytest.mark.parametrize("hung", [hang, half_head, half_event])
@leaping
async def test_h16_hung_engine_stops_nobody_else(hung: Script) -> None:
    """Two hundred requests a second for two seconds, all meant for the hung one; a probe each tenth of a second."""
    waits: dict[str, list[float]] = {"ok": [], "504": []}
    stage: Stage

    async def one(number: int) -> None:
        await asyncio.sleep(number / RATE)
        seen_down = stage.app.desk.backend(A).health.up is False
        began_s = passed_s()
        said = await stage.ask(stream=True)
        waited_s = passed_s() - began_s
        if said.status == 504:
            error = said.json["error"]
            assert isinstance(error, dict) and error["type"] == "timeout_error"
        assert said.status in (200, 504)
        assert waited_s <= 2 * FIRST_BYTE_S, "a request hung for longer than its two attempts may"
        if seen_down:
            waits["ok" if said.status == 200 else "504"].append(waited_s)

    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(
            a=hung,
            max_in_flight=1000,
            routing=pinned(A),
            timeouts={"first_byte_s": FIRST_BYTE_S},
            health={"interval_s": 0.1, "timeout_s": 0.2},
        ) as stage:
            assert isinstance(stage.a, Paged)
            stage.a.pages = {"/ready": hung, "/health": hung}
            probed = stage.a.probed
            arriving = tasks.spawn(_all(one), name="arrivals")
            await until(lambda: stage.app.desk.backend(A).health.up is False, what="the hung engine being taken out")
            assert stage.a.probed - probed <= 4, "three missed probes, and one that was under way"
            await arriving
            assert not waits["504"] and len(waits["ok"]) > ARRIVALS / 4
            assert sorted(waits["ok"])[int(len(waits["ok"]) * 0.99)] < 0.010
            assert all(each.attempts <= 2 for each in stage.ended)
            assert len(stage.ended) == ARRIVALS


async def _all(one: Any) -> None:
    await asyncio.gather(*(one(number) for number in range(ARRIVALS)))


@leaping
async def test_h16_requests_to_the_other_engine_do_not_wait_behind_those_that_are_stuck() -> None:
    async with staged(a=hang, max_in_flight=1000, routing={"allow_header": True}, health=UNPROBED) as stage:
        stuck = [RawClient(stage.app.port) for _ in range(200)]
        for client in stuck:
            await client.__aenter__()
            await client.send(PLAIN_CHAT.request("x-crossover-backend: speculative"))
        await until(lambda: stage.a.open == len(stuck), what="every request being stuck")
        for _ in range(100):
            began_s = passed_s()
            assert (await stage.ask("x-crossover-backend: baseline")).status == 200
            assert passed_s() - began_s < 0.010
        for client in stuck:
            client.leave()


@pytest.mark.parametrize("form", FORMS[:4], ids=str)
@EITHER_ROLE
@leaping
async def test_h16_what_is_stuck_on_an_engine_that_goes_down_is_served_by_the_other_and_leaves_nothing(
    role: Role, form: Form
) -> None:
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(**scripts(role, hang, form.serve), routing=pinned(role), health=PROBED) as stage:
            frozen = engine_of(stage, role)
            assert isinstance(frozen, Paged)
            await asyncio.sleep(5.5)
            frozen.pages = dict.fromkeys(("/ready", "/health", "/v1/loads", "/server_info"), hang)
            began_s = passed_s()
            assert form.is_good(await form.ask(stage))
            assert passed_s() - began_s <= 3 * (INTERVAL_S + TIMEOUT_S), "three missed probes take no longer"
            assert (len(stage.a.requests), len(stage.b.requests)) == (1, 1)
            assert stage.circuit(role).state is CircuitState.CLOSED
            await until(lambda: not frozen.open, what="the engine seeing its connection closed")


@leaping
async def test_h16_busy_engine_keeps_what_waits_there_while_its_streams_flow() -> None:
    async def busy(exchange: Exchange) -> None:
        if b'"stream":false' in exchange.request.body:
            await asyncio.sleep(50.0)
            return await plain(exchange)
        await exchange.stream_head()
        for _ in range(60):
            await exchange.event(content("w"))
            await asyncio.sleep(0.9)
        await exchange.event(content("", finish_reason="stop"))
        return await exchange.end()

    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(a=busy, health=PROBED) as stage:
            assert isinstance(stage.a, Paged)
            await asyncio.sleep(5.5)
            stage.a.pages = dict.fromkeys(("/ready", "/health", "/v1/loads", "/server_info"), hang)
            said = await asyncio.gather(stage.ask(stream=True), stage.ask())
            assert all(each.whole for each in said) and not stage.b.requests


@leaping
async def test_h16_engine_that_hangs_while_it_is_idle_is_sent_requests_for_two_seconds_at_most() -> None:
    """It had answered until then. Three missed probes take seventeen."""
    with patch("fakes.stage.FakeEngine", Paged):
        async with staged(health=PROBED) as stage:
            assert isinstance(stage.a, Paged)
            await asyncio.sleep(5.5)
            stage.a.script, began_s = hang, passed_s()
            stage.a.pages = dict.fromkeys(("/ready", "/health", "/v1/loads", "/server_info"), hang)
            stuck = []
            while passed_s() - began_s < 15.0:
                stuck.append(asyncio.create_task(stage.ask()))
                await asyncio.sleep(0.5)
            assert stage.app.desk.backend(A).health.up
            assert len(stage.a.requests) <= 5
            assert {each.decision.reason for each in stage.ended if each.decision} == {Reason.SILENT}
            for each in stuck:
                each.cancel()
