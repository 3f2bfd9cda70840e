"""A real Prometheus beside the proxy: its binaries, a server that scrapes, and what it answers."""

import asyncio
import contextlib
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from fakes.until import until, until_told

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / ".venv" / "prometheus" / "usr" / "bin"
# Seconds between two scrapes: often enough that a rate over some of them is there at once.
SCRAPED_EVERY_S = 0.5
_LISTENING = re.compile(r'msg="?Listening on"? address=127\.0\.0\.1:(\d+)')


def binary(name: str) -> str:
    """Where a binary is; skips the test that needs it when it is nowhere."""
    found = str(SHIPPED / name) if (SHIPPED / name).exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/prometheus fetches it where apt-get is")
    return found


def promtool(*arguments: str | Path, given: bytes = b"", cwd: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    """What promtool says to arguments, and to what it is given on its standard input."""
    command = [binary("promtool"), *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, timeout=60, check=False, cwd=cwd)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server that runs, and a session to ask it."""

    api: str
    session: aiohttp.ClientSession

    async def asked(self, path: str, **params: str) -> Any:
        """The `data` of an answer of the API; an error is the test's failure, with what the server says."""
        async with self.session.get(f"{self.api}/{path}", params=params) as answer:
            said = await answer.json()
        assert said["status"] == "success", f"{params}: {said.get('error')}"
        return said["data"]

    async def values(self, query: str) -> list[float]:
        """What a query gives at this moment, a number for each series, without those that are none (0/0)."""
        found = (await self.asked("query", query=query))["result"]
        numbers = [float(each["value"][1]) for each in found]
        return [each for each in numbers if not isnan(each)]

    async def value(self, query: str) -> float | None:
        """The first of them; None where there is none."""
        return next(iter(await self.values(query)), None)


@contextlib.asynccontextmanager
async def scraping(folder: Path, *ports: int, rules: Sequence[Path] = ()) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes operators' ports and evaluates `rules`, each every SCRAPED_EVERY_S. It listens on a
    free port, which its log tells."""
    every = f"{round(SCRAPED_EVERY_S * 1000)}ms"
    targets = [f"127.0.0.1:{port}" for port in ports]
    values = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "crossover", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(values))
    log = folder / "prometheus.log"
    with log.open("wb") as out:
        server = await asyncio.create_subprocess_exec(
            binary("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            "--web.listen-address=127.0.0.1:0",
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        async with aiohttp.ClientSession() as session:
            await until(lambda: _LISTENING.search(log.read_text()) or server.returncode is not None, 60)
            found = _LISTENING.search(log.read_text())
            assert found is not None, log.read_text()
            at = f"http://127.0.0.1:{found[1]}"

            async def ready() -> bool:  # it listens before it answers
                async with session.get(f"{at}/-/ready") as answer:
                    return answer.status == 200

            await until_told(ready)
            yield Prometheus(f"{at}/api/v1", session)
    finally:
        if server.returncode is None:
            server.terminate()
        try:
            async with asyncio.timeout(10):
                await server.wait()
        except TimeoutError:
            server.kill()
            await server.wait()
