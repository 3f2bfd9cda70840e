"""The queue: who blocks whom, how long, and room that comes with time alone."""

import asyncio

import pytest
from fakes.until import turns
from fakes.waiting import BASELINE, LINGER_S, OPEN_S, SPECULATIVE, Rig, leaping, run

from proxy import tasks
from proxy.errors import QueueFull, QueueTimeout
from proxy.model import ROLES, Outcome, Role
from proxy.routing.breaker import Event
from proxy.wire.admission import LOOK_AGAIN_S

# ---------------------------------------------------------------- who blocks whom


@leaping
async def test_a_blocked_pinned_waiter_blocks_only_those_who_want_the_same_backend() -> None:
    rig = Rig()
    fast, slow = await rig.admit("fast", asked=SPECULATIVE), await rig.admit("slow", asked=BASELINE)
    pinned = await rig.queue("pinned", asked=SPECULATIVE)
    behind = await rig.queue("behind", asked=SPECULATIVE)
    free = await rig.queue("free")
    rig.finish(slow)
    assert (await free).backend.role is BASELINE
    assert not (pinned.done() or behind.done())
    rig.finish(fast)
    rig.finish(await pinned)
    assert (await behind).backend.role is SPECULATIVE
    assert rig.started == ["fast", "slow", "free", "pinned", "behind"]


@leaping
async def test_a_heavy_request_waits_until_all_its_sequences_fit() -> None:
    """Case H11: a request of sixteen sequences takes sixteen places."""
    rig = Rig(limits=(16, 16))
    light = [await rig.admit(asked=role) for role in ROLES]
    heavy = await rig.queue("heavy", weight=16)
    assert (heavy.done(), rig.in_flight()) == (False, 2)
    rig.finish(light[1])
    place = await heavy
    assert (place.backend.role, rig.in_flight(BASELINE)) == (BASELINE, 16)
    rig.finish(place)
    assert rig.in_flight(BASELINE) == 0


@pytest.mark.parametrize("asked", [None, SPECULATIVE])
def test_a_stream_of_light_requests_does_not_starve_a_heavy_one(asked: Role | None) -> None:
    async def scenario() -> None:
        rig = Rig(limits=(16, 1), max_waiting=1000, max_wait_s=30.0)
        served = 0

        async def light(number: int) -> None:
            nonlocal served
            await asyncio.sleep(0.05 * number)
            place = await rig.admit(f"light {number}")
            served += 1
            await asyncio.sleep(1.0)
            rig.finish(place)

        others = [tasks.spawn(light(number), name="light") for number in range(400)]
        await asyncio.sleep(5.0)
        heavy = await rig.admit("heavy", weight=8, asked=asked)
        assert asked is None or heavy.backend.role is SPECULATIVE
        assert served < 200
        rig.finish(heavy)
        await asyncio.gather(*others)
        assert rig.in_flight() == 0

    run(scenario)


@leaping
async def test_a_pinned_heavy_waiter_does_not_keep_the_other_backend_idle() -> None:
    rig = Rig(limits=(16, 4))
    light = await rig.admit(weight=9, asked=SPECULATIVE)
    heavy = await rig.queue("heavy", weight=8, asked=SPECULATIVE)
    others = [await rig.queue(str(number)) for number in range(4)]
    await turns()
    assert {task.result().backend.role for task in others} == {BASELINE}
    rig.finish(light)
    assert (await heavy).backend.role is SPECULATIVE


@leaping
async def test_a_request_heavier_than_the_limit_holds_up_nobody() -> None:
    """Its place is a backend that lies idle, which steady traffic never leaves."""
    rig = Rig(limits=(64, 64), max_wait_s=60.0)
    held = [await rig.admit(asked=SPECULATIVE) for _ in range(9)] + [await rig.admit(asked=BASELINE) for _ in range(11)]
    heavy = await rig.queue("heavy", weight=1024)
    others = [await rig.queue(str(number)) for number in range(108)]
    await turns()
    assert all(task.done() for task in others)
    assert (heavy.done(), rig.admission.waiting, rig.in_flight()) == (False, 1, 128)
    for place in [*held, *(task.result() for task in others)]:
        rig.finish(place)
    assert (await heavy).lease.weight == 64


@leaping
async def test_a_request_that_finds_no_idle_backend_is_refused_after_its_wait() -> None:
    rig = Rig(limits=(64, 64), max_wait_s=5.0)
    held = [await rig.admit(asked=role) for role in ROLES]
    with pytest.raises(QueueTimeout):
        await rig.admit("heavy", weight=1024)
    assert (len(held), rig.in_flight(), rig.admission.waiting) == (2, 2, 0)


@leaping
async def test_lighter_waiters_keep_their_order_around_one_that_holds_up_nobody() -> None:
    rig = Rig(limits=(4, 1), max_wait_s=60.0)
    held = [await rig.admit(asked=SPECULATIVE) for _ in range(4)]
    await rig.admit("other", asked=BASELINE)
    waiting = [
        await rig.queue(name, weight=weight, asked=SPECULATIVE)
        for name, weight in (("heavy", 4), ("two", 2), ("one", 1), ("last", 1))
    ]
    rig.finish(held.pop())
    await turns()
    assert not any(task.done() for task in waiting)
    rig.finish(held.pop())
    await turns()
    assert [task.done() for task in waiting] == [False, True, False, False]
    rig.finish(held.pop())
    rig.finish(held.pop())
    await turns()
    assert rig.started[-3:] == ["two", "one", "last"]


# ---------------------------------------------------------------- a full queue


@leaping
async def test_a_queue_full_of_waiters_for_one_backend_does_not_close_the_other() -> None:
    rig = Rig(limits=(1, 1), max_waiting=2)
    held = await rig.admit(asked=SPECULATIVE)
    waiting = [await rig.queue(name, asked=SPECULATIVE) for name in "bc"]
    assert (await rig.admit("free")).backend.role is BASELINE
    with pytest.raises(QueueFull):
        await rig.admit("full")
    rig.finish(held)
    with pytest.raises(QueueFull):
        await rig.admit("overtaker", asked=SPECULATIVE)
    rig.finish(await waiting[0])
    await waiting[1]


@leaping
async def test_a_queue_full_of_heavy_waiters_closes_nothing() -> None:
    rig = Rig(limits=(4, 4), max_waiting=2)
    for role in ROLES:
        await rig.admit(asked=role)
    waiting = [await rig.queue("heavy", weight=1024) for _ in range(2)]
    assert (await rig.admit("light")).lease.weight == 1
    for task in waiting:
        task.cancel()


@leaping
async def test_a_backend_that_lies_idle_takes_a_request_heavier_than_its_limit() -> None:
    rig = Rig(limits=(4, 4))
    light = [await rig.admit(asked=role) for role in ROLES]
    heavy = await rig.queue("heavy", weight=64)
    rig.finish(light[0])
    assert (await heavy).lease.weight == 4


@leaping
async def test_a_settling_in_every_turn_of_the_loop_does_not_put_the_next_waiter_off() -> None:
    rig = Rig(limits=(1, 200))
    churn = [await rig.admit(asked=BASELINE) for _ in range(200)]
    held = await rig.admit(asked=SPECULATIVE)
    waiter = await rig.queue("waiter", asked=SPECULATIVE)
    turns_taken = 0

    def settle_another() -> None:
        nonlocal turns_taken
        if churn and not waiter.done():
            turns_taken += 1
            # Both ways of being ahead of the look in the next turn.
            rig.loop.call_soon(settle_another)
            rig.finish(churn.pop())

    rig.finish(held)
    settle_another()
    await waiter
    assert turns_taken < 10


# ---------------------------------------------------------------- room that comes with time alone


@leaping
async def test_waiters_are_placed_when_a_lingering_sequence_ends() -> None:
    rig = Rig()
    gone = await rig.admit(asked=SPECULATIVE)
    await rig.admit(asked=BASELINE)
    rig.desk.settle(gone, Outcome.CLIENT_GONE_WAITING, unheard=True)
    began_s = rig.loop.time()
    await rig.admit("waiter")
    assert LINGER_S <= rig.loop.time() - began_s <= LINGER_S + LOOK_AGAIN_S + 0.05


@leaping
async def test_waiters_are_placed_when_a_circuit_has_cooled_down() -> None:
    rig = Rig()
    for _ in range(5):
        place = await rig.admit(asked=SPECULATIVE)
        rig.desk.judge(place, Event.FAILURE)
        rig.desk.settle(place, Outcome.FAILED_BEFORE_COMMIT)
    await rig.admit()
    began_s = rig.loop.time()
    place = await rig.admit("waiter")
    assert place.probe
    assert rig.loop.time() - began_s <= OPEN_S + LOOK_AGAIN_S + 0.05
