"""A real Prometheus reads the running proxy, and promtool finds nothing to say about its metrics."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from fakes.engine import FakeEngine
from fakes.proxy import running, settings, url
from fakes.scraped import promtool, scraping
from fakes.until import until

from proxy.app import App

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@contextlib.asynccontextmanager
async def used() -> AsyncIterator[App]:
    """A proxy that has seen plain and streamed answers, a failover, a refusal and a change."""
    async with (
        FakeEngine() as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url)) as app,
        aiohttp.ClientSession() as session,
    ):
        for stream in (False, True):
            async with session.post(url(app, "/v1/chat/completions"), json={**CHAT, "stream": stream}) as answer:
                assert (await answer.read(), answer.status)[1] == 200
        await a.close()
        async with session.post(url(app, "/v1/chat/completions"), json=CHAT) as answer:
            assert answer.status == 200
        async with session.get(url(app, "/no/such/route")) as answer:
            assert answer.status == 404
        async with session.post(f"http://127.0.0.1:{app.admin_port}/pin", json={"role": "baseline"}) as answer:
            assert answer.status == 200
        yield app


async def test_promtool_finds_nothing_to_say_about_the_metrics() -> None:
    async with used() as app:
        text = app.metrics.exposition()
    checked = promtool("check", "metrics", given=text)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


class Scrapes:
    """Counts how often the metrics are read."""

    def __init__(self, app: App) -> None:
        self.count = 0
        self._read = app.metrics.exposition
        app.metrics.exposition = self._counted  # type: ignore[method-assign]

    def _counted(self) -> bytes:
        self.count += 1
        return self._read()


async def test_prometheus_scrapes_the_running_proxy(tmp_path: Path) -> None:
    async with used() as app, scraping(tmp_path, app.admin_port) as prometheus:
        scrapes = Scrapes(app)
        # When it comes for the third time, what it got the first time is stored.
        await until(lambda: scrapes.count >= 3)
        assert await prometheus.value("sum(crossover_requests_total)") == 3
        assert await prometheus.value('up{job="crossover"}') == 1
        assert await prometheus.value('crossover_requests_total{outcome="finished", role="speculative"}') == 2
        assert await prometheus.value("count(crossover_ttft_seconds_bucket)")
