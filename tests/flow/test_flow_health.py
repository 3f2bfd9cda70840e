"""Who is asked follows from what engines show: probes, tokens, refusals (H15, H16, H17)."""

import asyncio

import pytest
from fakes.engine import Exchange, FakeEngine, Script, content
from fakes.leaping import leaping
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role
from proxy.routing.health import Evidence

LIVENESS = ("/health/live", "/livez", "/healthz")
READINESS = ("/health", "/ready", "/readyz", "/health/ready", "/ping")
QUICK = {"interval_s": 0.1, "timeout_s": 5.0, "max_misses": 2, "min_hits": 1}


class Probed(FakeEngine):
    """An engine whose health pages answer by a script."""

    def __init__(self, pages: Script) -> None:
        super().__init__()
        self.pages = pages

    async def _serve(self, exchange: Exchange) -> None:
        if exchange.request.target in ("/ready", "/health"):
            await self.pages(exchange)
        else:
            await super()._serve(exchange)


async def probe(stage: Stage, target: str, method: str = "GET") -> Said:
    return await ask(stage.app.port, request(target, method=method), bodiless=method == "HEAD")


async def seen_down(stage: Stage, role: Role) -> None:
    await until(lambda: stage.app.desk.backend(role).health.up is False, what=f"{role} being seen down")


async def seen_up(stage: Stage, role: Role) -> None:
    await until(lambda: stage.app.desk.backend(role).health.up is True, what=f"{role} being seen up")


# ---------------------------------------------------------------- an engine goes and comes


async def test_engine_that_is_not_ready_gets_no_requests() -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = False
        await seen_down(stage, Role.SPECULATIVE)
        assert (await stage.ask()).header("x-crossover-backend") == "baseline"


async def test_engine_that_is_ready_again_gets_requests() -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = False
        await seen_down(stage, Role.SPECULATIVE)
        stage.a.ready = True
        await seen_up(stage, Role.SPECULATIVE)
        assert (await stage.ask()).header("x-crossover-backend") == "speculative"


async def test_no_request_fails_while_one_engine_goes_away() -> None:
    async with staged(health=QUICK) as stage:
        statuses = [(await stage.ask()).status for _ in range(5)]
        await stage.a.close()
        statuses += [(await stage.ask()).status for _ in range(30)]
        assert set(statuses) == {200}


async def test_engine_that_comes_back_on_its_port_is_used_again() -> None:
    async with staged(health=QUICK, circuit={"open_s": 0.1}) as stage:
        await stage.a.close()
        await seen_down(stage, Role.SPECULATIVE)
        await stage.a.listen()
        await seen_up(stage, Role.SPECULATIVE)
        assert (await stage.ask()).header("x-crossover-backend") == "speculative"


async def test_running_stream_is_not_cut_when_its_engine_is_seen_down() -> None:
    gate = asyncio.Event()

    async def gated(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("w0"))
        await gate.wait()
        await exchange.event(content("w1", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    async with staged(a=gated, health=QUICK) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.reader.readuntil(b"w0")
        stage.a.ready = False
        await seen_down(stage, Role.SPECULATIVE)
        gate.set()
        await client.reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n")


async def test_both_engines_serve_as_if_up_when_both_are_seen_down() -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = stage.b.ready = False
        await seen_down(stage, Role.SPECULATIVE)
        await seen_down(stage, Role.BASELINE)
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-reason")) == (200, "all_down")


async def test_engine_whose_ready_page_is_missing_is_asked_for_its_health() -> None:
    async def control(exchange: Exchange) -> None:
        await exchange.answer(b"", "404 Not Found" if exchange.request.target == "/ready" else "200 OK")

    async with (
        Probed(control) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, health=QUICK)) as app,
    ):
        assert app.desk.backend(Role.SPECULATIVE).health.up is True


# ---------------------------------------------------------------- starting


async def test_proxy_starts_while_an_engine_is_down() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        await a.close()
        async with running(settings(a.url, b.url, health=QUICK)) as app:
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "baseline"
        await a.listen()


async def test_engine_that_was_down_at_the_start_is_used_once_it_is_there() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        await a.close()
        async with running(settings(a.url, b.url, health=QUICK)) as app:
            await a.listen()
            await until(lambda: app.desk.backend(Role.SPECULATIVE).health.up, what="the late engine being seen")
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "speculative"


async def test_limits_of_an_engine_that_was_down_at_the_start_are_learned() -> None:
    async with FakeEngine(max_running_requests=7) as a, FakeEngine(role="baseline") as b:
        await a.close()
        async with running(settings(a.url, b.url, health=QUICK)) as app:
            await a.listen()
            await until(lambda: app.desk.snapshot().speculative.max_in_flight == 7, what="the late engine's limit")


# ---------------------------------------------------------------- the proxy's own pages


@pytest.mark.parametrize("target", READINESS + LIVENESS)
async def test_page_is_200_while_an_engine_serves(target: str) -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = False
        await seen_down(stage, Role.SPECULATIVE)
        assert (await probe(stage, target)).status == 200


@pytest.mark.parametrize("target", READINESS)
async def test_readiness_is_503_when_both_engines_are_down(target: str) -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = stage.b.ready = False
        await until(lambda: not stage.app.readiness().ready, what="the proxy not being ready")
        assert (await probe(stage, target)).status == 503


async def test_readiness_says_why_not() -> None:
    async with staged(health=QUICK) as stage:
        await stage.a.close()
        await stage.b.close()
        await until(lambda: not stage.app.readiness().ready, what="the proxy not being ready")
        said = (await probe(stage, "/ready")).json
        assert said == {"status": "not_ready", "reason": "no backend is eligible"}


@pytest.mark.parametrize("target", LIVENESS)
async def test_liveness_is_200_when_both_engines_are_down(target: str) -> None:
    async with staged(health=QUICK) as stage:
        stage.a.ready = stage.b.ready = False
        await until(lambda: not stage.app.readiness().ready, what="the proxy not being ready")
        assert (await probe(stage, target)).status == 200


@pytest.mark.parametrize("target", ["/ready", "/health", "/health/live"])
async def test_page_has_no_body_for_head(target: str) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request(target, method="HEAD") + request("/v1/unheard-of", method="GET"))
        assert (await client.answer(bodiless=True)).status == 200
        assert (await client.head()).status == 404, "the head's answer had a body"


async def test_own_pages_do_not_reach_an_engine() -> None:
    async with staged(health={"interval_s": 300}) as stage:
        for target in READINESS + LIVENESS:
            await probe(stage, target)
        assert not stage.a.requests and not stage.b.requests


# ---------------------------------------------------------------- tokens, probes, flapping


async def test_tokens_overrule_missed_probes() -> None:
    """The page answers nothing, and generations go on well."""
    async with staged(health={"interval_s": 300}) as stage:
        backend = stage.app.desk.backend(Role.SPECULATIVE)
        for _ in range(10):
            stage.app.desk.observe_health(backend, Evidence.MISS)
            await stage.ask()
        assert backend.health.up is True


async def test_tokens_bring_back_an_engine_that_only_missed_probes() -> None:
    async with staged(health={"interval_s": 300}) as stage:
        for role in Role:
            for _ in range(3):
                stage.app.desk.observe_health(stage.app.desk.backend(role), Evidence.MISS)
        await stage.ask()
        assert stage.app.desk.backend(Role.SPECULATIVE).health.up is True


@leaping
async def test_generations_without_a_first_byte_overrule_a_green_page() -> None:
    async def hang(exchange: Exchange) -> None:
        await exchange.gone()

    timeouts = {"connect_s": 0.03, "first_byte_s": 0.03}
    async with staged(a=hang, timeouts=timeouts, circuit={"max_failures": 3}) as stage:
        for _ in range(3):
            await stage.ask()
        assert (await stage.ask()).header("x-crossover-reason") == "only_eligible"


async def test_single_missed_probe_changes_nothing() -> None:
    async with staged(health={"interval_s": 300}) as stage:
        stage.app.desk.observe_health(stage.app.desk.backend(Role.SPECULATIVE), Evidence.MISS)
        assert (await stage.ask()).header("x-crossover-backend") == "speculative"


async def test_no_request_fails_while_an_engine_flaps() -> None:
    async with staged(health=QUICK) as stage:
        statuses = []
        for turn in range(6):
            stage.a.ready = turn % 2 == 1
            await (seen_up if stage.a.ready else seen_down)(stage, Role.SPECULATIVE)
            statuses += [(await stage.ask()).status for _ in range(3)]
        assert set(statuses) == {200}


async def test_slow_page_within_its_limit_is_no_miss() -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.15)  # sleeps: a page slower than the probes, within their limit
        await exchange.answer(b"")

    async with (
        Probed(slow) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, health={"interval_s": 0.1, "timeout_s": 5.0})) as app,
    ):
        backend = app.desk.backend(Role.SPECULATIVE)
        await until(lambda: backend.health.up is not None, what="the first answer")
        assert (backend.health.up, backend.health.misses) == (True, 0)
