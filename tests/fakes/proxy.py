"""The real proxy, in the test's own event loop, in front of whatever a test puts behind it."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from proxy import config, logs
from proxy.app import App
from proxy.config import Settings

QUICK = {
    "listen": {"host": "127.0.0.1", "port": 0},
    "admin": {"port": 0},
    "health": {"interval_s": 0.1},
    "timeouts": {"connect_s": 5.0, "settle_s": 0.0, "linger_s": 0.0, "drain_s": 5.0},
    "log": {"level": "error"},
}


def settings(speculative: str, baseline: str, **sections: Mapping[str, Any] | str) -> Settings:
    """Settings with quick probes and free ports; sections overlay the quick ones key by key."""
    values: dict[str, Any] = {"backends": {"speculative": {"url": speculative}, "baseline": {"url": baseline}}}
    for name in {*QUICK, *sections}:
        quick, own = QUICK.get(name, {}), sections.get(name, {})
        values[name] = own if isinstance(own, str) else {**quick, **own}
    return config.from_mapping(values)


@contextlib.asynccontextmanager
async def running(chosen: Settings) -> AsyncIterator[App]:
    """A started proxy; stopped at the end, when its books must be empty."""
    app = App(chosen, logs.configure("json", chosen.log.level), lambda: chosen)
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


def url(app: App, path: str = "") -> str:
    """Where a client finds the proxy."""
    return f"http://127.0.0.1:{app.port}{path}"
