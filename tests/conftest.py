"""What every test shares: hypothesis without a wall clock, and how long and of which seeds the storms are."""

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared and noisy: an example's time says nothing about the code.
settings.register_profile("crossover", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crossover")

# Long enough for some dozens of kills and reloads.
STORM_S = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    storm = parser.getgroup("storm", "the storm of every fault (tests/cases/test_storm.py)")
    storm.addoption("--storm-seconds", type=float, default=STORM_S, help="how long each storm lasts")
    storm.addoption("--storm-seed", type=int, action="append", help="the seed of a storm; may be given several times")
    storm.addoption("--storm-figures", help="file to write the figures of the last storm to, as JSON")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "storm_seed" in metafunc.fixturenames:
        metafunc.parametrize("storm_seed", metafunc.config.getoption("--storm-seed") or [1])
