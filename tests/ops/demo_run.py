"""The demo under load with a real Prometheus beside it, and then under faults: what every query gave, and which alerts
stood, before them and after."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from fakes.dashboard import annotations, filled, queries
from fakes.proxy import running, url
from fakes.raw import RawClient, request
from fakes.scraped import Prometheus, scraping
from fakes.until import until, until_told
from shipped_rules import RULES

from proxy import config
from proxy.app import App
from proxy.lab.demo import CONFIG, CURVES, Demo
from proxy.lab.engine_options import ENGINE_VERSION
from proxy.model import Role

CLIENTS = 8
# Tokens of an answer: a tenth of a second of the demo's engines, so that streams end between any two scrapes.
TOKENS = 12
# The window of rates in the dashboard's queries: several scrapes.
WINDOW = "4s"
# Panels that are empty until something goes wrong.
PANELS_OF_FAULTS = ("Turned away", "Failures by code", "Failover and retries", "Connections ended without an answer")
# What the faults bring about.
OF_FAULTS = {"CrossoverEngineDown", "CrossoverAllEnginesOut", "CrossoverReloadFailed"}


@dataclass(slots=True)
class Seen:
    """What was seen. `alerts` are names by state; `rules` each rule with its health."""

    under_load: dict[str, list[float]] = field(default_factory=dict)
    after_faults: dict[str, list[float]] = field(default_factory=dict)
    alerts_before: dict[str, str] = field(default_factory=dict)
    alerts_after: dict[str, str] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)
    requests: int = 0


async def run(folder: Path, load_s: float) -> Seen:
    """All of it, with load for `load_s` seconds."""
    seen = Seen()
    async with demo(folder) as (started, app), scraping(folder, app.admin_port, rules=RULES) as prometheus:
        async with loaded(app, seen):
            await until_told(lambda: prometheus.value("up == 1"), 15)  # it looks for targets every five seconds
            await asyncio.sleep(load_s)  # sleeps: load for as long as was asked, over which rates are taken
            await asked_for(seen.under_load, prometheus, app, but=PANELS_OF_FAULTS)
            seen.alerts_before = await alerts(prometheus)
        await break_everything(started, app)

        async def noticed() -> bool:
            seen.alerts_after = await alerts(prometheus)
            return seen.alerts_after.keys() >= OF_FAULTS

        await asked_for(seen.after_faults, prometheus, app)
        with suppress(TimeoutError):
            await until_told(noticed)
        groups = (await prometheus.asked("rules"))["groups"]
        seen.rules = [rule for group in groups for rule in group["rules"]]
    return seen


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[tuple[Demo, App]]:
    """The demo's engines, and a proxy before them with its settings but for ports and quick probes."""
    started = Demo(None, None, 1.0)
    try:
        await started.start()
        started.settings()
        assert started._folder is not None
        speeds = started._folder / CURVES
        # The file names no versions, and those of the embedded engines are known.
        versions = f'speculative: "{ENGINE_VERSION}", baseline: "{ENGINE_VERSION}"'
        speeds.write_text(speeds.read_text().replace("speculative: null, baseline: null", versions))
        changes = {
            "listen.port": 0,
            "admin.port": 0,
            "health.interval_s": 0.2,
            "listen.head_timeout_s": 2.0,
            "timeouts.settle_s": 0,
            "timeouts.drain_s": 1,
        }
        async with running(config.override(started.settings(), changes)) as app:
            await until(lambda: all(each.facts for each in app.desk.backends), what="both engines seen")
            yield started, app
    finally:
        await started.stop()


@asynccontextmanager
async def loaded(app: App, seen: Seen) -> AsyncIterator[None]:
    """Clients that ask again and again while it lasts."""
    over = asyncio.Event()
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(ask_on(session, app, seen, over, number))
        try:
            yield
        finally:
            over.set()


async def ask_on(session: aiohttp.ClientSession, app: App, seen: Seen, over: asyncio.Event, number: int) -> None:
    """Turns of one conversation, so that prompts are cached; each whole."""
    turns = 0
    while not over.is_set():
        turns += 1
        body = {
            "model": "demo",
            "max_tokens": TOKENS,
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": f"{number} " * 1500 + f"and {turns}"}],
        }
        async with session.post(url(app, "/v1/chat/completions"), json=body) as answer:
            assert answer.status == 200
            await answer.read()
        seen.requests += 1


async def break_everything(started: Demo, app: App) -> None:
    """A refusal at the door, a silent connection, one request too many, a wrong configuration, a request that fails
    over, and one that fails on both engines."""
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(RawClient(app.port))
        ask = await stack.enter_async_context(RawClient(app.port))
        await ask.send(request("/no/such/route", method="GET"))
        assert (await ask.answer()).status == 404
        assert await silent.reader.read() == b"", "closed without a word"
    await crowd(app)
    assert started._folder is not None
    (started._folder / CONFIG).write_text("backends: nonsense\n")
    app._source = started.settings
    assert not (await app.reload())[0]
    for engine in started._engines:
        engine.kill()
        await engine.wait()
        await said(app, 2)


async def crowd(app: App) -> None:
    """One more than there is room for, and no queue."""
    limits = {f"backends.{role}.max_in_flight": 1 for role in Role}
    narrow = config.override(app.settings, {"queue.max_waiting": 0, **limits})
    app._source = lambda: narrow
    assert (await app.reload())[0]
    assert sorted(await asyncio.gather(*(said(app, 64) for _ in range(3)))) == [200, 200, 429]


async def said(app: App, tokens: int) -> int:
    """The status that one plain request has."""
    body = b'{"model": "demo", "max_tokens": %d, "messages": [{"role": "user", "content": "hello"}]}' % tokens
    async with RawClient(app.port) as client:
        await client.send(request("/v1/chat/completions", body, "content-type: application/json"))
        return (await client.answer()).status


async def asked_for(
    into: dict[str, list[float]], prometheus: Prometheus, app: App, *, but: tuple[str, ...] = ()
) -> None:
    """Ask until every query has had an answer, for ten seconds at most; what had none is for the tests to say."""
    awaited = [query for title, query in queries() if title not in but]

    async def told() -> bool:
        await all_asked(prometheus, into, app)
        return all(into[query] for query in awaited)

    with suppress(TimeoutError):
        await until_told(told)


async def all_asked(prometheus: Prometheus, into: dict[str, list[float]], app: App) -> None:
    """Every query of the dashboard, as Grafana would send it."""
    [instance] = await prometheus.asked("label/instance/values", **{"match[]": "crossover_build_info"})
    assert instance == f"127.0.0.1:{app.admin_port}", "what the dashboard offers to choose from"
    for query in (*(query for _, query in queries()), *annotations()):
        if not into.get(query):
            into[query] = await prometheus.values(filled(query, instance=instance, __rate_interval=WINDOW))


async def alerts(prometheus: Prometheus) -> dict[str, str]:
    """The alerts that are pending or firing."""
    found = (await prometheus.asked("alerts"))["alerts"]
    return {each["labels"]["alertname"]: each["state"] for each in found}
