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
from proxy.routing.health import Evidence, HealthRules
from proxy.routing.retries import RetryRules
from proxy.routing.rules import Affinity, Rules
from proxy.wire.admission import Admission, QueueRules

EQUAL = {1: 100.0, 8: 400.0}
ROUTE = "/v1/chat/completions"
# A conversation of 24,000 tokens: three seconds of prefill for it and each that runs beside it.
TALK = Traits(prompt_bytes=47 * 2048, prefix=tuple(range(1, 48)))
OTHER = Traits(prompt_bytes=400)
# Twice as long, so that it waits twice as long.
LONG = Traits(prompt_bytes=94 * 2048, prefix=tuple(range(1000, 1094)))


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


@leaping
async def test_who_has_waited_long_enough_goes_though_one_before_it_still_waits_for_the_same_home() -> None:
    rig = Rig()
    rig.desk.taken(rig.held[0], LONG)
    for _ in range(2):  # who would be slowed down: it costs three times as much to move there
        rig.placed(OTHER._replace(asked=BASELINE))
    first, second = await rig.asks(LONG), await rig.asks(TALK)
    began_s = rig.desk.clock()
    assert (await second).backend.role is BASELINE
    assert 8.9 < rig.desk.clock() - began_s < 9.6
    assert not first.done()
    first.cancel()


# ---------------------------------------------------------------- a home that goes away


def falls_silent(rig: Rig) -> None:
    for _ in range(10):
        rig.desk.observe_health(rig.desk.backend(SPECULATIVE), Evidence.MISS)
    assert not rig.desk.snapshot().speculative.eligible


async def crowd_for_home(rig: Rig) -> "list[asyncio.Task[Assignment]]":
    """One sequence runs on baseline, and four wait for speculative: two for their conversation, two that asked."""
    rig.desk.taken(rig.held[0], LONG)
    rig.held.append(rig.placed(OTHER._replace(asked=BASELINE)))
    waiters = [await rig.asks(LONG) for _ in range(2)]
    waiters += [await rig.asks(OTHER._replace(asked=SPECULATIVE)) for _ in range(2)]
    assert rig.admission.waiting == 4
    return waiters


@pytest.mark.parametrize("how", ["silence", "drain"])
def test_who_waits_for_a_home_that_goes_away_goes_on_in_order_to_the_other_backend(how: str) -> None:
    @leaping
    async def scenario() -> None:
        rig = Rig()
        waiters = await crowd_for_home(rig)
        began_s = rig.desk.clock()
        if how == "silence":
            falls_silent(rig)
        else:
            rig.desk.drain(SPECULATIVE, draining=True)
        await turns()
        assert [waiter.done() for waiter in waiters] == [True, True, False, False]
        assert {waiter.result().backend.role for waiter in waiters[:2]} == {BASELINE}
        for number in (2, 3):
            rig.desk.settle(rig.held.pop(), Outcome.FINISHED)
            if number == 2:
                assert (await waiters[2]).backend.role is BASELINE
                rig.held.append(waiters[0].result())
        assert (await waiters[3]).backend.role is BASELINE
        assert rig.desk.clock() == began_s  # in the very turns in which room came
        assert rig.admission.waiting == 0

    scenario()


@leaping
async def test_a_home_that_comes_back_is_no_home_any_more_but_takes_who_waits() -> None:
    rig = Rig()
    waiters = await crowd_for_home(rig)
    falls_silent(rig)
    await turns()
    late = await rig.asks(LONG)
    for place in rig.held[:2]:
        rig.desk.settle(place, Outcome.FAILED_AFTER_COMMIT)
    for _ in range(10):
        rig.desk.observe_health(rig.desk.backend(SPECULATIVE), Evidence.HIT)
    await turns()
    places = [waiter.result() for waiter in waiters]
    assert [place.backend.role for place in places] == [BASELINE] * 2 + [SPECULATIVE] * 2
    assert (late.done(), places[0].decision.because.baseline_cached) == (False, 0)
    late.cancel()
