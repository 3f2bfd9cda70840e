"""The queue in front of a desk, on a loop that never sleeps."""

import asyncio
from collections.abc import Awaitable, Callable

from fakes.until import turns

from proxy import tasks
from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.model import ROLES, Outcome, Policy, Role, Traits
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Rules
from proxy.wire.admission import Admission, QueueRules

SPECULATIVE, BASELINE = ROLES
LINGER_S = 5.0
OPEN_S = 10.0


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop that never sleeps: when all wait, its clock leaps to the next timer, and else it stands still, however
    busy the machine is."""

    now_s = 1000.0

    def __init__(self) -> None:
        super().__init__()
        # Where days have leapt by, a nanosecond more is no later any more, and no timer would ever be due.
        self._clock_resolution = 1e-5

    def time(self) -> float:
        return self.now_s

    def _run_once(self) -> None:
        if not self._ready:
            due_s = min((timer.when() for timer in self._scheduled if not timer.cancelled()), default=0.0)
            self.now_s = max(self.now_s, due_s)
        super()._run_once()


class Rig:
    def __init__(self, limits: tuple[int, int] = (1, 1), max_waiting: int = 100, max_wait_s: float = 60.0) -> None:
        self.loop = asyncio.get_running_loop()
        rules = Rules(policy=Policy.OVERFLOW, allow_header=True, leave_at=1000)
        backends = (
            BackendPlan(SPECULATIVE, "http://a", limits[0]),
            BackendPlan(BASELINE, "http://b", limits[1]),
        )
        breaker = BreakerRules(max_failures=5, open_s=OPEN_S)
        self.desk = Desk(Plan(backends, rules, breaker, HealthRules(), RetryRules(), LINGER_S), self.loop.time)
        self.admission = Admission(self.desk, QueueRules(max_waiting, max_wait_s))
        self.started: list[str] = []

    async def admit(self, name: str = "x", weight: int = 1, asked: Role | None = None) -> Assignment:
        place = await self.admission.admit(Traits(weight=weight, asked=asked), name, "/generate")
        self.started.append(name)
        return place

    async def queue(self, name: str, weight: int = 1, asked: Role | None = None) -> "asyncio.Task[Assignment]":
        """A request that is in the queue, or has its place, when this returns."""
        task = tasks.spawn(self.admit(name, weight, asked), name=name)
        await turns(2)
        return task

    def finish(self, place: Assignment) -> None:
        self.desk.settle(place, Outcome.FINISHED)

    def in_flight(self, role: Role | None = None) -> int:
        snapshot = self.desk.snapshot()
        return snapshot.in_flight if role is None else snapshot.of(role).in_flight


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(all_of_it())


def leaping(scenario: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop that never sleeps."""

    def test() -> None:
        run(scenario)

    test.__doc__ = scenario.__doc__
    return test
