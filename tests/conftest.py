"""What every test shares: the loop that the product runs on, hypothesis without a wall clock, and how long and of which
seeds the storms are."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings

# Machines are shared and noisy: an example's time says nothing about the code.
settings.register_profile("crossover", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crossover")

# What is few tests and many seconds: storms, real engines, browsers, other programs, simulated hours.
LONGEST = (
    "cases/test_storm",
    "cases/test_leaks",
    *(f"tests/{kind}" for kind in ("real", "page", "ops", "clients", "simulate", "pair", "bench")),
)
# Long enough for some dozens of kills and reloads.
STORM_S = 60.0
# Of load before the dashboard's queries are asked (tests/ops): some scrapes of everything.
OPS_S = 3.0


class AwakeLoop(uvloop.Loop):
    """uvloop, woken once in a while as it closes: seen once, the word of its last thread did not wake it, for ever."""

    async def shutdown_default_executor(self) -> None:
        ending = asyncio.ensure_future(super().shutdown_default_executor())
        while not ending.done():
            await asyncio.wait([ending], timeout=5.0)
        await ending


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `crossover serve` runs on: its transports are not asyncio's own, and behave otherwise at edges."""
    return {"uvloop": AwakeLoop}


def pytest_addoption(parser: pytest.Parser) -> None:
    storm = parser.getgroup("storm", "the storm of every fault (tests/cases/test_storm.py)")
    storm.addoption("--storm-seconds", type=float, default=STORM_S, help="how long each storm lasts")
    storm.addoption("--storm-seed", type=int, action="append", help="the seed of a storm; may be given several times")
    parser.addoption("--ops-seconds", type=float, default=OPS_S, help="how long tests/ops load the demo")
    storm.addoption("--storm-figures", help="file to write the figures of the last storm to, as JSON")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "storm_seed" in metafunc.fixturenames:
        metafunc.parametrize("storm_seed", metafunc.config.getoption("--storm-seed") or [1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: begun last, one worker would be busy for minutes after the others have ended."""

    def rank(item: pytest.Item) -> int:
        where = item.path.as_posix()
        return next((place for place, name in enumerate(LONGEST) if f"/{name}" in where), len(LONGEST))

    items.sort(key=rank)
