"""The queue: what a request costs that comes or ends while others wait, in calls, however many these are."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from fakes.counted import calls_until
from fakes.speeds import bucket, curves
from fakes.until import turns
from fakes.waiting import run

from proxy import tasks
from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.model import BASELINE, ROLES, SPECULATIVE, Outcome, Policy, Role, Traits
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Affinity, Rules
from proxy.wire.admission import LOOK_AGAIN_S, LOOKED_AT, Admission, QueueRules

EQUAL = {1: 100.0, 8: 400.0}
PRICED = curves(bucket(EQUAL, EQUAL, prefill_tok_s=(100.0, 100.0)))
ROUTE, LIMITS, RUNNING = "/v1/chat/completions", (16, 64), 40
TALK = Traits(prompt_bytes=47 * 2048, prefix=tuple(range(1, 48)))
SHORT = Traits(prompt_bytes=400)
WAITERS: dict[str, list[Traits]] = {
    "plain": [SHORT],
    "asked": [SHORT._replace(asked=SPECULATIVE)],
    "home": [TALK],
    "heavy": [SHORT._replace(weight=60), SHORT._replace(weight=64), SHORT._replace(weight=1000)],
    "heavy home": [TALK._replace(weight=60), TALK._replace(weight=64)],
}
WAITERS["all of them"] = [traits for kind in ("asked", "home", "heavy", "heavy home") for traits in WAITERS[kind]]
# Those that take either backend wait only where both are full, and then keep everybody from both.
CLOSED = {"plain"}


class Crowd:
    """So many requests of a kind that wait: speculative is full and the conversation lives there, baseline is busy and
    has room, but where the kind waits for it too."""

    def __init__(self, kind: str, many: int) -> None:
        clock = asyncio.get_running_loop().time
        rules = Rules(Policy.MARGINAL, curves=PRICED, affinity=Affinity(), allow_header=True)
        backends = (BackendPlan(SPECULATIVE, "http://a", LIMITS[0]), BackendPlan(BASELINE, "http://b", LIMITS[1]))
        self.desk = Desk(Plan(backends, rules, BreakerRules(), HealthRules(), RetryRules()), clock)
        self.admission = Admission(self.desk, QueueRules(many + 10, 1e6))
        self.held = [self.placed(TALK._replace(asked=SPECULATIVE))]
        self.desk.taken(self.held[0], TALK)
        self.held += [self.placed(SHORT._replace(asked=SPECULATIVE)) for _ in range(LIMITS[0] - 1)]
        busy = LIMITS[1] if kind in CLOSED else RUNNING
        self.beside = [self.placed(SHORT._replace(asked=BASELINE)) for _ in range(busy)]
        kinds = WAITERS[kind]
        self.waiters = [self.asks(kinds[number % len(kinds)]) for number in range(many)]

    def placed(self, traits: Traits) -> Assignment:
        place = self.desk.assign(traits, "id", ROUTE)
        assert isinstance(place, Assignment)
        return place

    def asks(self, traits: Traits) -> "asyncio.Task[Assignment]":
        return tasks.spawn(self.admission.admit(traits, "id", ROUTE), name="asks")

    async def leave(self) -> None:
        for waiter in self.waiters:
            waiter.cancel()
        await turns()
        assert self.admission.waiting == 0


def cost_beside(kind: str, many: int) -> int:
    """The calls of one request that comes, and of one that ends, while so many wait."""
    costs = []

    async def scenario() -> None:
        crowd = Crowd(kind, many)
        await turns()
        assert crowd.admission.waiting == many

        async def come_and_end() -> None:
            crowd.waiters.append(crowd.asks(SHORT))
            await turns()
            crowd.desk.settle(crowd.beside.pop(), Outcome.FINISHED)
            await turns()

        await come_and_end()
        costs.append(await calls_until(come_and_end))
        assert crowd.admission.waiting == many  # one came, and one was placed
        await crowd.leave()

    run(scenario)
    return costs[0]


@pytest.mark.parametrize("kind", WAITERS)
def test_a_request_that_comes_or_ends_costs_no_more_where_a_thousand_wait(kind: str) -> None:
    few, many = cost_beside(kind, 12), cost_beside(kind, 1000)
    assert many <= few


def assigns_of(kind: str, many: int, during: Callable[[Crowd], Awaitable[None]]) -> int:
    """How often the desk is asked for a place meanwhile."""
    asked = 0

    async def scenario() -> None:
        crowd = Crowd(kind, many)
        await turns()
        assign = crowd.desk.assign

        def counted(*given: object, **named: object) -> object:
            nonlocal asked
            asked += 1
            return assign(*given, **named)  # type: ignore[arg-type]

        crowd.desk.assign = counted  # type: ignore[method-assign,assignment]
        await during(crowd)
        await crowd.leave()

    run(scenario)
    return asked


def test_with_time_alone_so_many_are_looked_at_and_no_more() -> None:
    async def one_round(_: Crowd) -> None:
        await asyncio.sleep(LOOK_AGAIN_S)  # sleeps: on a loop that leaps
        await turns()

    assert 0 < assigns_of("home", 1000, one_round) <= LOOKED_AT + 1


def test_a_full_queue_is_not_gone_through_for_each_that_is_refused() -> None:
    costs = []
    for many in (12, 1000):

        async def scenario(many: int = many) -> None:
            crowd = Crowd("all of them", many)
            await turns()
            crowd.admission.rules = QueueRules(many, 1e6)

            async def refused() -> None:
                crowd.waiters.append(crowd.asks(SHORT._replace(asked=SPECULATIVE)))
                await turns()

            costs.append(await calls_until(refused))
            assert crowd.waiters[-1].exception() is not None
            await crowd.leave()

        run(scenario)
    assert costs[1] <= costs[0]


@pytest.mark.parametrize("role", ROLES)
def test_one_that_failed_once_costs_no_more_where_many_have(role: Role) -> None:
    costs = []
    for many in (12, 1000):

        async def scenario(many: int = many) -> None:
            crowd = Crowd("plain", 1)
            failed = crowd.desk.backend(role)

            def again() -> None:
                waits = crowd.admission.readmit(SHORT, "id", ROUTE, failed)
                crowd.waiters.append(tasks.spawn(waits, name="again"))

            for _ in range(many):
                again()
            await turns()

            async def one_more() -> None:
                again()
                await turns()
                held = crowd.held if failed.role is BASELINE else crowd.beside
                crowd.desk.settle(held.pop(), Outcome.FINISHED)
                await turns()

            costs.append(await calls_until(one_more))
            await crowd.leave()

        run(scenario)
    assert costs[1] <= costs[0]
