"""A proxy in front of two embedded engines, in a thread of its own, for clients that know nothing of our loop."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fakes.background import in_background
from fakes.proxy import running, settings, url

from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import Role

# Fifty times faster than life; the embedded health probe answers at once.
QUICK = {"time_scale": 0.02, "health_latency_s": 0.0}


@contextlib.asynccontextmanager
async def embedded(**sections: Any) -> AsyncIterator[str]:
    """The base URL of a proxy in front of two embedded engines."""
    engines = [EmbeddedEngine(EngineOptions(role=role, **QUICK)) for role in Role]
    for engine in engines:
        await engine.start()
    try:
        async with running(settings(engines[0].url, engines[1].url, **sections)) as app:
            yield url(app)
    finally:
        for engine in engines:
            await engine.stop()


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """Where the proxy listens. Its limits are short, and its circuits never open: one test's faults are not
    another's."""
    sections = {
        "timeouts": {"connect_s": 2.0, "first_byte_s": 2.0, "settle_s": 0.0, "linger_s": 0.0, "drain_s": 5.0},
        "circuit": {"max_failures": 1000},
        "retries": {"max_ratio": 1.0, "reserve": 1000},
        "listen": {"host": "127.0.0.1", "port": 0, "max_body_bytes": 200_000},
    }
    with in_background(embedded(**sections)) as where:
        yield where
