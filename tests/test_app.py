"""One proxy from start to end: it starts whatever its backends do, says how it is, and leaves nothing behind."""

import asyncio
from types import SimpleNamespace

import pytest
from fakes.engine import Exchange, FakeEngine, either, stream
from fakes.leaping import leaping
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import staged
from fakes.until import until

from proxy import app as app_module
from proxy import logs
from proxy.app import App, Phase
from proxy.errors import ConfigError
from proxy.model import Outcome, Role

NOBODY = "http://127.0.0.1:1"
ALSO_NOBODY = "http://127.0.0.1:2"


async def get(app: App, path: str) -> Said:
    return await ask(app.port, request(path, method="GET"))


# ---------------------------------------------------------------- starting


async def test_it_starts_without_its_backends_and_says_that_it_is_not_ready() -> None:
    async with running(settings(NOBODY, ALSO_NOBODY)) as app:
        ready = await get(app, "/ready")
        assert (ready.status, ready.json) == (503, {"status": "not_ready", "reason": "no backend is eligible"})
        assert (await get(app, "/health/live")).status == 200
        said = await ask(app.port, request(body=chat()))
        assert (said.status, said.header("x-crossover-reason")) == (502, "all_down")


async def test_it_is_ready_as_soon_as_a_backend_comes() -> None:
    async with FakeEngine() as a:
        await a.close()
        async with running(settings(a.url, ALSO_NOBODY)) as app:
            assert (await get(app, "/ready")).status == 503
            await a.listen()
            await until(lambda: app.readiness().ready)
            assert (await get(app, "/ready")).json == {"status": "ready", "reason": "ok"}
            assert (await ask(app.port, request(body=chat()))).header("x-crossover-backend") == "speculative"


async def test_it_knows_its_backends_before_it_listens() -> None:
    async with staged(max_in_flight=48) as stage:
        facts = stage.app.desk.backend(Role.SPECULATIVE).facts
        assert facts is not None
        assert (facts.speculative_algorithm, facts.max_running_requests) == ("EAGLE3", 48)
        assert [backend.health.up for backend in stage.app.desk.backends] == [True, True]


async def test_a_backend_that_says_nothing_does_not_hold_the_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "FIRST_LOOK_S", 0.1)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server, FakeEngine(role="baseline") as b:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with running(settings(url, b.url)) as app:
            assert app.readiness().ready


@pytest.mark.parametrize(("section", "option"), [("listen", "--port"), ("admin", "--admin-port")])
async def test_a_start_that_fails_says_the_mend_and_leaves_nothing_behind(section: str, option: str) -> None:
    tasks = len(asyncio.all_tasks())
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        taken = {"host": "127.0.0.1", "port": a.port}
        app = App(
            settings(a.url, b.url).model_copy(
                update={section: getattr(settings(a.url, b.url), section).model_copy(update=taken)}
            ),
            logs.configure("json", "error"),
            lambda: settings(a.url, b.url),
        )
        try:
            with pytest.raises(ConfigError, match=rf"{section}\.port: {a.port} on 127.0.0.1 is taken; .* by {option}$"):
                await app.start()
        finally:
            await app.stop()
    await until(lambda: len(asyncio.all_tasks()) == tasks)


# ---------------------------------------------------------------- what it tells


async def test_disagreements_of_the_backends_are_warnings_in_the_status() -> None:
    async with FakeEngine() as a, FakeEngine() as b, running(settings(a.url, b.url)) as app:
        assert [each["code"] for each in app.status()["warnings"]] == ["baseline_speculates"]


async def test_the_status_names_phase_policy_pin_and_urls() -> None:
    async with staged(routing={"policy": "threshold"}) as stage:
        stage.app.pin(Role.BASELINE)
        status = stage.app.status()
        assert (status["phase"], status["policy"], status["pinned"]) == ("serving", "threshold", "baseline")
        assert status["urls"] == {"speculative": stage.a.url, "baseline": stage.b.url}
        assert status["dropped_in_flight"] == {}


async def test_decisions_have_the_wall_clocks_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clocks stand still, 100 seconds after the decision."""
    async with staged() as stage:
        await stage.ask()
        [record] = stage.app.desk.ring
        stage.app.desk.clock = lambda: record.at_s + 100.0
        monkeypatch.setattr("proxy.watch.watch.time", SimpleNamespace(time=lambda: 1_800_000_000.0))
        [(at_s, _)] = stage.app.watch.decisions()
        assert at_s == pytest.approx(1_799_999_900.0, abs=0.001)
        assert record.decision.role is Role.SPECULATIVE


async def test_the_reading_counts_connections_and_waiting_requests() -> None:
    gate = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await gate.wait()
        await either(exchange)

    async with staged(a=script, b=script, max_in_flight=1) as stage:
        asked = [asyncio.ensure_future(stage.ask()) for _ in range(3)]
        await until(lambda: stage.app.admission.waiting == 1)
        reading = stage.app.reading()
        assert (reading.waiting, reading.connections, reading.ready) == (1, 3, True)
        assert [backend.in_flight for backend in reading.backends] == [1, 1]
        gate.set()
        assert {(await each).status for each in asked} == {200}


# ---------------------------------------------------------------- ending


async def test_a_stop_ends_running_streams_with_an_error_event_and_counts_nothing() -> None:
    never = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await stream(exchange, gate=never)

    async with staged(a=script) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.head()
        await client.chunk()
        await stage.app.stop()
        assert b"shutting_down" in (await client.chunk() or b"")
        assert await client.chunk() is None
        assert (await stage.ended_one()).outcome is Outcome.SHUT_DOWN
        assert (stage.in_flight, stage.app.phase) == (0, Phase.STOPPED)
        never.set()


async def test_a_stop_answers_requests_that_have_no_answer_yet() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(a=script, b=script, max_in_flight=1) as stage:
        asked = [asyncio.ensure_future(stage.ask()) for _ in range(3)]
        await until(lambda: stage.app.admission.waiting == 1)
        await stage.app.stop()
        answers = [await each for each in asked]
        assert {(said.status, said.header("connection")) for said in answers} == {(503, "close")}


async def test_stopping_twice_is_stopping_once() -> None:
    async with staged() as stage:
        await stage.app.stop()
        await stage.app.stop()


async def test_nothing_is_left_of_a_stopped_proxy() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        tasks = len(asyncio.all_tasks())
        async with running(settings(a.url, b.url)) as app:
            assert {(await ask(app.port, request(body=chat(stream=True)))).status for _ in range(5)} == {200}
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def test_a_drain_waits_for_questions_as_well() -> None:
    answered = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await answered.wait()
        await either(exchange)

    async with staged(a=script, b=script) as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/models", method="GET"))
        await until(lambda: stage.b.open)
        drain = asyncio.ensure_future(stage.app.drain(settle=False))
        await until(lambda: stage.app.phase is Phase.DRAINING)
        answered.set()
        assert (await client.answer()).status == 200
        await drain


async def test_a_kept_connection_is_closed_and_not_left_deaf_when_the_drain_begins() -> None:
    gate = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await stream(exchange, gate=gate)

    async with staged(a=script) as stage, RawClient(stage.app.port) as idle, RawClient(stage.app.port) as busy:
        await idle.send(request("/ready", method="GET"))
        assert (await idle.answer()).status == 200
        await busy.send(request(body=chat(stream=True)))
        await busy.head()
        drain = asyncio.ensure_future(stage.app.drain(settle=False))
        assert await idle.rest() == b""
        gate.set()
        assert await busy.chunk()
        await drain
        assert b"[DONE]" in await busy.rest()


@leaping
async def test_readiness_fails_from_the_first_moment_of_a_drain() -> None:
    async with staged(timeouts={"settle_s": 0.2}) as stage:
        drain = asyncio.ensure_future(stage.app.drain(settle=True))
        await asyncio.sleep(0)
        assert (stage.app.phase, stage.app.readiness().reason) == (Phase.SETTLING, "settling")
        said = await stage.ask()
        assert (said.status, said.header("connection")) == (200, "close")
        await drain
        assert stage.app.phase is Phase.DRAINING
