"""A guard against growing dear: the product's CPU time beside that of a bare aiohttp proxy, measured in the same run.

Not a benchmark: machines that run tests are shared, so both take turns in short windows, the best of several rounds
counts, and a round that is good enough ends it. What things cost is measured with scripts/bench.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from bench.contenders import BARE, OURS, Client, Engine, Running, client, contender, engine
from bench.figures import cost
from bench.jobs import LOAD, PLAIN, SHAPES, Job, Measurement

# The most that an event and a plain request may cost, as multiples of what they cost the bare proxy. The best of a few
# rounds gave 0.54 and 0.50: far enough above that noise does not fail it, and what costs nearly twice as much does.
MAX_EVENT_RATIO = 0.9
MAX_REQUEST_RATIO = 0.9
# One disturbed round is common where tests run in parallel, four in a row are not.
ROUNDS = 4
# Long enough for some thousand events and hundreds of requests.
SECONDS = 0.6
# A quarter of the load test's streams: what an event costs hangs on the rate, and this much any machine carries.
STREAMS = 64

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CPU clocks of other processes are read as on Linux")


@dataclass(frozen=True, slots=True)
class Rig:
    """Both proxies, up, and what they are measured with."""

    running: dict[str, Running]
    behind: Engine
    load: Client

    def cost(self, name: str, test: str) -> float:
        """CPU microseconds of a unit in one window."""
        shape, running = SHAPES[test], self.running[name]
        job = Job(
            test=test,
            port=running.port,
            pids=running.pids,
            engine_pid=self.behind.pid,
            engine_port=self.behind.ports[0],
            streams=STREAMS,
            rate=shape.rate,
            shape=shape.shape,
            seconds=SECONDS,
            streams_per_s=4 * STREAMS,
            settle_s=0.1,
        )
        found = cost(Measurement(0, test, name, self.load.measure(job)))
        assert found is not None
        return found

    def least_ratio(self, test: str, enough: float) -> float:
        """The least ratio of ours to the bare proxy's cost, of as many rounds as it takes."""
        ratios: list[float] = []
        while len(ratios) < ROUNDS and min(ratios, default=enough + 1) > enough:
            ratios.append(self.cost(OURS, test) / self.cost(BARE, test))
        return min(ratios)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with engine() as behind, client() as load, contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(contender(name, behind, {})) for name in (OURS, BARE)}
        yield Rig(running, behind, load)


def test_an_event_costs_little_more_than_in_a_bare_proxy(rig: Rig) -> None:
    assert rig.least_ratio(LOAD, MAX_EVENT_RATIO) <= MAX_EVENT_RATIO


def test_a_plain_request_costs_little_more_than_in_a_bare_proxy(rig: Rig) -> None:
    assert rig.least_ratio(PLAIN, MAX_REQUEST_RATIO) <= MAX_REQUEST_RATIO
