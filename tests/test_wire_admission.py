"""The queue: first come first served, within its limits, and nobody who left is ever started."""

import asyncio
import random
from typing import Any
from unittest.mock import patch

import pytest
from fakes.until import turns
from fakes.waiting import LINGER_S, OPEN_S, SPECULATIVE, Rig, leaping, run
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import tasks
from proxy.dispatch import Assignment
from proxy.errors import QueueFull, QueueTimeout, ShuttingDown
from proxy.model import BASELINE, ROLES, CircuitState, Outcome, Traits
from proxy.routing.breaker import Event
from proxy.wire.admission import LOOK_AGAIN_S, QueueRules

# ---------------------------------------------------------------- first come, first served


@leaping
async def test_a_place_is_given_at_once_where_there_is_room() -> None:
    rig = Rig()
    place = await rig.admit()
    assert (rig.in_flight(), rig.admission.waiting) == (1, 0)
    rig.finish(place)


@leaping
async def test_places_are_given_in_the_order_of_coming() -> None:
    rig = Rig()
    held = [await rig.admit("a"), await rig.admit("b")]
    waiting = [await rig.queue(name) for name in "cdefg"]
    assert rig.admission.waiting == 5
    for task in waiting:
        rig.finish(held.pop(0))
        held.append(await task)
    assert rig.started == list("abcdefg")
    assert rig.in_flight() == 2


@leaping
async def test_nobody_overtakes_a_waiter_in_the_tick_in_which_room_comes() -> None:
    rig = Rig()
    held = [await rig.admit("a"), await rig.admit("b")]
    waiter = await rig.queue("waiter")
    rig.finish(held[0])
    late = tasks.spawn(rig.admit("late"), name="late")
    await waiter
    await turns()
    assert (rig.started, late.done(), rig.in_flight()) == (["a", "b", "waiter"], False, 2)
    rig.finish(held[1])
    await late


@leaping
async def test_two_hundred_at_once_never_exceed_the_limits_and_all_are_served() -> None:
    rig = Rig(limits=(4, 8), max_waiting=200)
    most = 0

    async def request(number: int) -> None:
        nonlocal most
        place = await rig.admit(str(number))
        most = max(most, rig.in_flight())
        await asyncio.sleep(1.0)
        rig.finish(place)

    await asyncio.gather(*(request(number) for number in range(200)))
    assert (most, rig.in_flight(), rig.admission.waiting) == (12, 0, 0)
    assert rig.started == [str(number) for number in range(200)]


# ---------------------------------------------------------------- limits


@leaping
async def test_a_full_queue_refuses_at_once_and_says_when_to_come_again() -> None:
    rig = Rig(max_waiting=2)
    held = [await rig.admit(), await rig.admit()]
    waiting = [await rig.queue("c"), await rig.queue("d")]
    before_s = rig.loop.time()
    with pytest.raises(QueueFull) as refused:
        await rig.admit("e")
    assert rig.loop.time() - before_s < 0.1
    assert (refused.value.status, refused.value.retry_after_s, rig.admission.waiting) == (429, 1.0, 2)
    for place in held:
        rig.finish(place)
    await asyncio.gather(*waiting)


@leaping
async def test_with_a_queue_of_none_nobody_waits() -> None:
    rig = Rig(max_waiting=0)
    await rig.admit(), await rig.admit()
    with pytest.raises(QueueFull):
        await rig.admit()


@leaping
async def test_with_a_queue_of_none_who_has_left_a_backend_that_stood_still_waits_and_who_was_failed_does_not() -> None:
    """The first has been let in, and could have stayed: a reload may turn the queue off just then."""
    rig = Rig(max_waiting=0)
    held = [await rig.admit(), await rig.admit()]
    failed, *_ = rig.desk.backends
    with pytest.raises(QueueFull):
        await rig.admission.readmit(Traits(), "failed", "/generate", failed)
    left = tasks.spawn(rig.admission.readmit(Traits(), "left", "/generate", failed, returns=True), name="left")
    await turns()
    assert not left.done()
    rig.finish(held[1])
    assert (await left).backend.role is BASELINE


@leaping
async def test_a_waiter_is_refused_after_exactly_the_limit() -> None:
    """Case H21: not sooner, not later, and not the ones that came after it."""
    rig = Rig(max_wait_s=5.0)
    held = [await rig.admit(), await rig.admit()]
    began_s = rig.loop.time()
    first = await rig.queue("first")
    await asyncio.sleep(3.0)
    second = await rig.queue("second")
    with pytest.raises(QueueTimeout) as refused:
        await first
    assert rig.loop.time() - began_s == pytest.approx(5.0, abs=0.05)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 1.0)
    assert (second.done(), rig.admission.waiting, rig.in_flight()) == (False, 1, 2)
    rig.finish(held[0])
    await second


@leaping
async def test_waiting_in_vain_says_nothing_of_the_backends() -> None:
    rig = Rig(max_wait_s=1.0, max_waiting=20)
    await rig.admit(), await rig.admit()
    waiting = [await rig.queue(str(number)) for number in range(20)]
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {QueueTimeout}
    for backend in rig.desk.backends:
        assert (backend.circuit.state, backend.circuit.failures) == (CircuitState.CLOSED, 0)
        assert (backend.health.up, backend.failures.value) == (None, 0.0)


@leaping
async def test_a_raised_limit_of_the_queue_holds_for_the_next_who_comes() -> None:
    rig = Rig(max_waiting=0)
    held = [await rig.admit(), await rig.admit()]
    rig.admission.rules = QueueRules(1, 60.0)
    waiter = await rig.queue("c")
    rig.finish(held[0])
    assert isinstance(await waiter, Assignment)


# ---------------------------------------------------------------- clients that leave


@leaping
async def test_a_waiter_that_left_is_never_started() -> None:
    rig = Rig()
    held = [await rig.admit("a"), await rig.admit("b")]
    waiting = [await rig.queue(name) for name in "cdef"]
    for task in waiting[:3]:
        task.cancel()
    await turns()
    assert rig.admission.waiting == 1
    for place in held:
        rig.finish(place)
    await waiting[3]
    await turns()
    assert (rig.started, rig.in_flight()) == (["a", "b", "f"], 1)


@leaping
async def test_a_client_that_leaves_in_the_tick_in_which_room_comes_leaks_nothing() -> None:
    rig = Rig()
    held = [await rig.admit("a"), await rig.admit("b")]
    waiter, next_one = await rig.queue("c"), await rig.queue("d")
    rig.finish(held[0])
    waiter.cancel()
    await turns()
    assert (waiter.cancelled(), next_one.done(), rig.in_flight(), rig.started) == (True, True, 2, ["a", "b", "d"])


@leaping
async def test_a_client_that_leaves_after_its_place_was_given_gives_it_back() -> None:
    rig = Rig()
    held = [await rig.admit("a"), await rig.admit("b")]
    waiter, next_one = await rig.queue("c"), await rig.queue("d")
    rig.finish(held[0])
    # Right behind the look that gives the place, before the waiter can run.
    rig.loop.call_soon(waiter.cancel)
    with patch.object(rig.desk, "withdraw") as withdraw:
        await turns()
    assert (waiter.cancelled(), rig.started, rig.in_flight()) == (True, ["a", "b", "d"], 2)
    assert rig.desk.ring[2].request_id == "c"
    assert withdraw.call_args.args[1:] == (Traits(), "/generate"), "it is no demand"
    rig.finish(held[1])
    rig.finish(await next_one)
    assert rig.in_flight() == 0


@leaping
async def test_a_probe_place_that_is_given_back_is_free_again() -> None:
    rig = Rig()
    for _ in range(5):
        place = await rig.admit(asked=SPECULATIVE)
        rig.desk.judge(place, Event.FAILURE)
        rig.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT)
    held = await rig.admit("baseline")
    waiter = await rig.queue("probe")
    # Told in the step that gives the place: the client leaves right behind it, before the waiter itself can run.
    rig.desk.on_change = lambda _: rig.loop.call_soon(waiter.cancel)
    await asyncio.sleep(OPEN_S + LOOK_AGAIN_S)
    await turns()
    again = await rig.admit("again")
    assert (waiter.cancelled(), again.probe, again.backend.role) == (True, True, SPECULATIVE)
    rig.finish(held)


@leaping
async def test_leaving_and_timing_out_in_one_tick_is_no_trouble() -> None:
    rig = Rig(max_wait_s=2.0)
    await rig.admit(), await rig.admit()
    waiter = await rig.queue("c")
    rig.loop.call_at(rig.loop.time() + 2.0, waiter.cancel)
    await asyncio.sleep(3.0)
    assert waiter.done()
    assert (rig.admission.waiting, rig.in_flight()) == (0, 2)


# ---------------------------------------------------------------- the end


@leaping
async def test_closing_refuses_those_who_wait_and_those_who_come() -> None:
    rig = Rig()
    held = [await rig.admit(), await rig.admit()]
    waiting = [await rig.queue(name) for name in "cde"]
    rig.admission.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} == {ShuttingDown}
    for place in held:
        rig.finish(place)
    with pytest.raises(ShuttingDown) as refused:
        await rig.admit()
    assert (refused.value.status, rig.in_flight(), rig.admission.waiting) == (503, 0, 0)


@leaping
async def test_a_place_that_was_given_before_the_closing_is_kept() -> None:
    rig = Rig()
    held = [await rig.admit(), await rig.admit()]
    waiter = await rig.queue("c")
    rig.finish(held[0])
    rig.loop.call_soon(rig.admission.close)
    assert isinstance(await waiter, Assignment)
    assert rig.in_flight() == 2


# ---------------------------------------------------------------- whatever happens


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_any_traffic_ends_with_empty_books_and_in_order(seed: int) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        rig = Rig(limits=(8, 8), max_waiting=20, max_wait_s=5.0)
        came: dict[str, int] = {}
        ends: list[str] = []

        async def request(name: str) -> None:
            await asyncio.sleep(chance.random() * 5)
            came[name] = len(came)
            asked = chance.choice([None, None, *ROLES])
            try:
                place = await rig.admit(name, chance.choice([1, 1, 1, 4, 8]), asked)
            except (QueueFull, QueueTimeout) as error:
                ends.append(error.code)
                return
            assert all(rig.in_flight(role) <= 8 for role in ROLES)
            assert asked is None or place.backend.role is asked
            try:
                await asyncio.sleep(chance.random() * 2)
            finally:
                outcome = chance.choice([Outcome.FINISHED, Outcome.CLIENT_GONE_WAITING])
                rig.desk.settle(place, outcome, unheard=chance.random() < 0.2)
                ends.append("served")

        requests = [tasks.spawn(request(str(number)), name=str(number)) for number in range(80)]
        for task in requests[::5]:
            rig.loop.call_later(chance.random() * 8, task.cancel)
        results: list[Any] = await asyncio.gather(*requests, return_exceptions=True)
        left = sum(isinstance(result, asyncio.CancelledError) for result in results)
        assert not [result for result in results if isinstance(result, AssertionError)]
        assert len(ends) + left >= 80
        await asyncio.sleep(LINGER_S)
        assert (rig.in_flight(), rig.admission.waiting) == (0, 0)
        assert sum(len(book._leases) for book in rig.desk.ledger.books) == 0

    run(scenario)
