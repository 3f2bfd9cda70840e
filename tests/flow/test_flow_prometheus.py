"""A real Prometheus reads the running proxy, and promtool finds nothing to say about its metrics."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from fakes.engine import FakeEngine
from fakes.proxy import running, settings, url
from fakes.until import until

from proxy.app import App

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
CONFIG = """\
global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs: [{{job_name: crossover, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""
LISTENING = re.compile(r'msg="?Listening on"? address=127\.0\.0\.1:(\d+)')


def binary(name: str) -> str:
    """Where a binary is; skips the test that needs it when it is nowhere."""
    found = str(SHIPPED / name) if (SHIPPED / name).exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/prometheus fetches it where apt-get is")
    return found


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
    promtool = binary("promtool")
    async with used() as app:
        text = app.metrics.exposition()
    checked = _piped(text, promtool, "check", "metrics")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def _piped(text: bytes, *command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=text, capture_output=True, timeout=20, check=False)


@contextlib.contextmanager
def scraping(port: int, folder: Path) -> Iterator[Path]:
    """A Prometheus that scrapes `port`; gives its log. It listens on a free port, which the log tells."""
    (folder / "prometheus.yml").write_text(CONFIG.format(port=port))
    log = folder / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                binary("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            yield log
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait(10)


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
    async with used() as app, aiohttp.ClientSession() as session:
        scrapes = Scrapes(app)
        with scraping(app.admin_port, tmp_path) as log:
            await until(lambda: LISTENING.search(log.read_text()))
            found = LISTENING.search(log.read_text())
            assert found is not None
            api = f"http://127.0.0.1:{found[1]}/api/v1/query"

            async def value(query: str) -> float | None:
                async with session.get(api, params={"query": query}) as answer:
                    result = (await answer.json())["data"]["result"] if answer.status == 200 else []
                return float(result[0]["value"][1]) if result else None

            # When it comes for the third time, what it got the first time is stored.
            await until(lambda: scrapes.count >= 3)
            assert await value("sum(crossover_requests_total)") == 3
            assert await value('up{job="crossover"}') == 1
            assert await value('crossover_requests_total{outcome="finished", role="speculative"}') == 2
            assert await value("count(crossover_ttft_seconds_bucket)")
