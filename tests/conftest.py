"""What every test shares: the loop that the product runs on, hypothesis without a wall clock, and how long and of which
seeds the storms are."""

import asyncio
import faulthandler
import gc
from collections.abc import Callable, Mapping

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from fakes.loops import EndingLoop
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


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `crossover serve` runs on: its transports are not asyncio's own, and behave otherwise at edges."""
    return {"uvloop": EndingLoop}


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """pytest counts a test's time no longer once it has failed, and what ends it then may hang as well."""
    limit_s = float(node.config.getini("faulthandler_timeout") or 0)
    if isinstance(node, pytest.Item) and limit_s:
        faulthandler.dump_traceback_later(limit_s, file=node.config.stash[fault_handler_stderr_fd_key], exit=True)


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


def pytest_collection() -> None:
    """What is read now, thousands of tests, is there to the end: the collector need not look at it again and again."""
    gc.disable()


def pytest_collection_finish() -> None:
    """From here on it looks at what the tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()
