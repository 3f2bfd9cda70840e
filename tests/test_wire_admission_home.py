"""The queue and a full home: who waits for it holds nobody else up, and is never refused while the other has room."""

import asyncio

import pytest
from fakes.speeds import bucket, curves
from fakes.until import turns
from fakes.waiting import leaping

from proxy import tasks
from proxy.dispatch import Assignment, BackendPlan, Desk, Plan
from proxy.errors import QueueFull
from proxy.model import BASELINE, SPECULATIVE, Outcome, Policy, Reason, Traits
from proxy.routing.breaker import BreakerRules
from proxy.routing.health import HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Affinity, Rules
from proxy.wire.admission import Admission, QueueRules

EQUAL = {1: 100.0, 8: 400.0}
ROUTE = "/v1/chat/completions"
# A conversation of 24,000 tokens: three seconds of prefill for it and each that runs beside it.
TALK = Traits(prompt_bytes=47 * 2048, prefix=tuple(range(1, 48)))
OTHER = Traits(prompt_bytes=400)


PRICED = curves(bucket(EQUAL, EQUAL, prefill_tok_s=(8000.0, 8000.0)))


class Rig:
    """Two at a time on speculative, where the conversation lives, and three on baseline."""

    def __init__(self, max_waiting: int = 100, max_wait_s: float = 60.0) -> None:
        loop = asyncio.get_running_loop()
        rules = Rules(Policy.MARGINAL, curves=PRICED, affinity=Affinity(), allow_header=True)
        backends = (BackendPlan(SPECULATIVE, "http://a", 2), BackendPlan(BASELINE, "http://b", 3))
        self.desk = Desk(Plan(backends, rules, BreakerRules(), HealthRules(), RetryRules()), loop.time)
        self.admission = Admission(self.desk, QueueRules(max_waiting, max_wait_s))
        self.desk.taken(place := self.placed(TALK._replace(asked=SPECULATIVE)), TALK)
        self.held = [place, self.placed(OTHER._replace(asked=SPECULATIVE))]

    def placed(self, traits: Traits) -> Assignment:
        place = self.desk.assign(traits, "id", ROUTE)
        assert isinstance(place, Assignment)
        return place

    async def asks(self, traits: Traits) -> "asyncio.Task[Assignment]":
        task = tasks.spawn(self.admission.admit(traits, "id", ROUTE), name="asks")
        await turns(3)
        return task


@leaping
async def test_a_conversation_waits_for_its_full_home_and_others_pass_it_by() -> None:
    rig = Rig()
    waiter = await rig.asks(TALK)
    assert (waiter.done(), rig.admission.waiting) == (False, 1)
    for _ in range(3):
        assert (await (await rig.asks(OTHER))).backend.role is BASELINE
    rig.desk.settle(rig.held[1], Outcome.FINISHED)
    place = await waiter
    assert (place.backend.role, place.decision.reason) == (SPECULATIVE, Reason.AFFINITY)


@leaping
async def test_behind_another_for_the_same_home_a_conversation_goes_at_once() -> None:
    rig = Rig()
    first, second = await rig.asks(TALK), await rig.asks(TALK)
    assert (first.done(), second.done()) == (False, True)
    assert (await second).backend.role is BASELINE
    first.cancel()


@leaping
async def test_nobody_takes_the_place_at_home_before_the_one_that_waits_for_it() -> None:
    rig = Rig()
    waiter = await rig.asks(TALK)
    rig.desk.settle(rig.held[1], Outcome.FINISHED)
    late = await rig.asks(OTHER._replace(asked=SPECULATIVE))
    assert (await waiter).backend.role is SPECULATIVE
    assert not late.done()
    late.cancel()


@leaping
async def test_who_has_waited_as_long_as_the_cache_is_worth_goes_to_the_other_backend() -> None:
    rig = Rig()
    began_s = rig.desk.clock()
    place = await (await rig.asks(TALK))
    assert (place.backend.role, place.decision.reason) == (BASELINE, Reason.OTHER_FULL)
    assert 2.9 < rig.desk.clock() - began_s < 3.6


@pytest.mark.parametrize("max_wait_s", [0.1, 2.0])
def test_who_waits_for_home_is_not_refused_for_that(max_wait_s: float) -> None:
    @leaping
    async def scenario() -> None:
        rig = Rig(max_wait_s=max_wait_s)
        assert (await (await rig.asks(TALK))).backend.role is BASELINE

    scenario()


@leaping
async def test_where_the_queue_is_full_a_conversation_goes_where_there_is_room() -> None:
    rig = Rig(max_waiting=0)
    assert (await (await rig.asks(TALK))).backend.role is BASELINE
    rig = Rig(max_waiting=1)
    waiter = await rig.asks(TALK)
    assert not waiter.done()
    assert (await (await rig.asks(TALK))).backend.role is BASELINE
    for _ in range(2):
        await (await rig.asks(OTHER))
    with pytest.raises(QueueFull):
        await (await rig.asks(OTHER))
    waiter.cancel()
