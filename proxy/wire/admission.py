"""The bounded FIFO queue in front of the desk: requests that found no room wait here, or are refused.

Waiting is not failing: nothing here touches the health of an engine, and no running request is cut. Who waits for the
same stands in one lane (lanes.py), of which only the first is looked at when a request comes or ends: what that costs
does not grow with the queue.
"""

import asyncio
from dataclasses import dataclass
from itertools import count

from proxy.dispatch import Assignment, Desk
from proxy.dispatch.holders import require_holder
from proxy.dispatch.sight import Stand
from proxy.errors import QueueFull, QueueTimeout, SessionUnrouted, ShuttingDown, StateUnreachable
from proxy.model import BASELINE, ROLES, SPECULATIVE, Role, Traits
from proxy.routing.affinity import Wait
from proxy.state.backend import Backend
from proxy.wire.lanes import Lanes, Turn

# Room also comes with time alone (a lingering sequence ends, a circuit cools down) and nothing calls then.
LOOK_AGAIN_S = 0.25

# Then also so many are looked at who are not the first of a lane, in turn: what a cache is worth changes, and those who
# wait for theirs choose each for itself. Some two milliseconds of work; a hundred have all been seen within a second.
LOOKED_AT = 32

# Who waits for its home is asked once more so long before its wait ends, and goes wherever there is room.
LAST_CALL_S = 2.0 * LOOK_AGAIN_S

# What is promised when nobody waits.
_NOBODYS: frozenset[Role] = frozenset()
_AT_ITS_COMING = Wait()

# Turns of those that have failed once are so much lower: before all others, and in order among themselves.
_FAILED_BEFORE = 1 << 62


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Most requests that wait at once, and the longest that each waits."""

    max_waiting: int = 100
    max_wait_s: float = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    traits: Traits
    request_id: str
    route: str
    place: "asyncio.Future[Assignment]"
    since_s: float
    turn: Turn
    failed: Backend | None = None  # the backend that has failed this request already
    returns: bool = False  # that gave no sign of life, and may have the request back once it serves again


class Admission:
    """Gives each request its place: at once, after waiting, or never."""

    def __init__(self, desk: Desk, rules: QueueRules) -> None:
        self.rules = rules
        self._desk = desk
        self._lanes: Lanes[_Waiter] = Lanes()
        self._numbers = count()
        self._look: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._closed = False
        # What the next look is for.
        self._room = False
        self._news: list[_Waiter] = []  # who has just come, or is about to be refused
        self._rounds = False
        self._last = -_FAILED_BEFORE  # the turn at which the last round ended
        self._terrain = desk.terrain()
        desk.on_room = self._room_may_be

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return len(self._lanes.places)

    def at_once(self, traits: Traits, request_id: str, route: str) -> Assignment | None:
        """A place for a request that need not wait, as most need not; None where that has to be looked into."""
        if self._lanes.places or self._closed:
            return None
        place = self._desk.assign(traits, request_id, route, wait=_AT_ITS_COMING)
        return place if isinstance(place, Assignment) else None

    async def admit(self, traits: Traits, request_id: str, route: str) -> Assignment:
        """A place for a request, first come first served. Awaits only when there is no room.

        Raises QueueFull at once when the queue is full and those in it claim all room, QueueTimeout after
        `max_wait_s`, ShuttingDown when the proxy ends first. A request that is cancelled while it waits is never
        started.
        """
        if self._closed:
            raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
        full = len(self._lanes.places) >= self.rules.max_waiting
        if full or not self._lanes.places:
            promised = self._lanes.claimed() if self._lanes.places else _NOBODYS
            # Who would not be let in goes wherever there is room.
            wait = None if full else _AT_ITS_COMING
            place = self._desk.assign(traits, request_id, route, promised=promised, wait=wait)
            if isinstance(place, Assignment):
                return place
        if full:
            raise QueueFull(
                f"every backend is at its limit and {self.rules.max_waiting} requests wait already; try again shortly"
            )
        turn = next(self._numbers)
        return await self._wait(_Waiter(traits, request_id, route, _future(), self._desk.clock(), turn))

    async def readmit(
        self, traits: Traits, request_id: str, route: str, failed: Backend, *, returns: bool = False
    ) -> Assignment:
        """A place on the other backend for a request that `failed` has just failed, or, if it `returns`, on that one
        again once it serves. It waits ahead of all others, since it came before them, and is not counted against
        `max_waiting`, unless that lets nobody wait and it could have stayed nowhere.

        Raises and is cancelled like `admit`.
        """
        if self._closed:
            raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
        place = self.beside(traits, request_id, route, failed)
        if place is not None:
            return place
        if not self.rules.max_waiting and not returns:
            raise QueueFull("one backend failed the request and the other is at its limit; try again shortly")
        turn = next(self._numbers) - _FAILED_BEFORE
        return await self._wait(
            _Waiter(traits, request_id, route, _future(), self._desk.clock(), turn, failed, returns)
        )

    def beside(self, traits: Traits, request_id: str, route: str, failed: Backend) -> Assignment | None:
        """A place on the other backend than `failed`; None where it has no room, or what it has is for those who wait
        after such a failure."""
        before = self._lanes.claimed(before=0)
        place = self._desk.assign(traits, request_id, route, failed=failed, promised=before, attempt=2)
        return place if isinstance(place, Assignment) else None

    def close(self) -> None:
        """Refuse everybody who waits and everybody who comes."""
        self._closed = True
        for waiter in self._lanes:
            if not waiter.place.done():
                waiter.place.set_exception(ShuttingDown("the proxy shut down while this request waited; try again"))

    async def _wait(self, waiter: _Waiter) -> Assignment:
        limits = self._join(waiter)
        try:
            return await waiter.place
        except asyncio.CancelledError:
            # The place may have been given in the very step in which the client left.
            place = waiter.place
            if place.done() and not place.cancelled() and place.exception() is None:
                self._desk.take_back(place.result())
                if waiter.failed is None:  # else its first attempt was counted, and is taken back with that
                    self._desk.withdraw(place.result(), waiter.traits, waiter.route)
            raise
        finally:
            for limit in limits:
                limit.cancel()
            self._lanes.drop(waiter.turn)

    def _join(self, waiter: _Waiter) -> list[asyncio.TimerHandle]:
        """Let a request into the queue; returns what ends its wait."""
        stand = self._desk.stand(waiter.traits, self._shut(waiter))
        first = self._lanes.put(waiter.turn, waiter, stand.lane, stand.claims)
        if first or stand.roams or not stand.claims:
            self._is_to_be_seen(waiter)
        loop, most_s = asyncio.get_running_loop(), self.rules.max_wait_s
        limits = [loop.call_later(most_s, self._expire, waiter)]
        if stand.roams:
            limits.append(loop.call_later(most_s - LAST_CALL_S, self._is_to_be_seen, waiter))
        self._look_later()
        return limits

    def _is_to_be_seen(self, waiter: _Waiter) -> None:
        self._news.append(waiter)
        self._look_soon()

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.place.done():
            message = f"no backend had room within queue.max_wait_s ({self.rules.max_wait_s:g} s); try again later"
            waiter.place.set_exception(QueueTimeout(message))

    def _room_may_be(self) -> None:
        if self._lanes.places:
            self._room = True
            self._look_soon()

    def _look_soon(self) -> None:
        # Deferred to the next turn of the loop: room is announced in the middle of the desk's own step. A look that
        # is due already is left as it is: put off at every settling, it might never come.
        if self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._give_places)

    def _look_later(self) -> None:
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._later = None
        if self._lanes.places:
            self._room = self._rounds = True
            self._look_soon()
            self._look_later()

    def _give_places(self) -> None:
        """Place waiters in their order, until none behind can be placed.

        One that finds no room blocks those behind it from the backends that it claims, else a stream of light
        requests would starve a heavy one; one that takes either backend blocks everybody. A bulky one claims none:
        it waits, for `max_wait_s` at most, until a backend happens to be empty enough.
        """
        self._look = None
        room, self._room = self._room, False
        rounds, self._rounds = self._rounds, False
        news, self._news = self._news, []
        terrain = self._desk.terrain()
        if terrain != self._terrain:
            self._terrain = terrain
            self._sort_anew()
            room = True
        seen: set[Turn] = set()
        if room:
            self._see_the_first(seen)
        for waiter in news:
            self._see(waiter, seen)
        if rounds:
            self._go_round(seen)

    def _sort_anew(self) -> None:
        """Put everybody into the lane of today: wishes, health or limits have changed. Who had chosen to wait for home
        chooses anew."""
        waiters = list(self._lanes)
        self._lanes = Lanes()
        for waiter in waiters:
            if not self._is_over(waiter):
                stand = self._desk.stand(waiter.traits, self._shut(waiter))
                self._lanes.put(waiter.turn, waiter, stand.lane, stand.claims)

    def _see_the_first(self, seen: set[Turn]) -> None:
        """Look at the first of each lane, and at those behind it as far as there is room."""
        while (waiter := self._lanes.first(seen)) is not None and self._see(waiter, seen):
            pass

    def _go_round(self, seen: set[Turn]) -> None:
        """Look at some of all, and go on behind them next time."""
        waiters = self._lanes.behind(self._last, LOOKED_AT)
        self._last = waiters[-1].turn if len(waiters) == LOOKED_AT else -_FAILED_BEFORE
        for waiter in waiters:
            if not self._see(waiter, seen):
                self._last = -_FAILED_BEFORE
                return

    def _see(self, waiter: _Waiter, seen: set[Turn]) -> bool:
        """Place somebody who waits, or put it into the lane where it stands now; False where nobody behind it can be
        placed either."""
        turn = waiter.turn
        if turn in seen or turn not in self._lanes.places:
            return True
        seen.add(turn)
        if self._is_over(waiter):
            self._lanes.drop(turn)
            return True
        blocked = self._lanes.claimed(before=turn)
        stand = self._desk.stand(waiter.traits, self._shut(waiter))
        if self._has_hope(waiter, stand, blocked) and self._place(waiter, blocked):
            self._lanes.drop(turn)
            return True
        lane = stand.lane
        if stand.roams and len(stand.claims) == 1 and blocked <= stand.claims and self._wait_of(waiter) is not None:
            lane = lane._replace(role=next(iter(stand.claims)), home=True)
        self._lanes.put(turn, waiter, lane, stand.claims)
        return len(blocked | stand.claims) < len(ROLES)

    def _has_hope(self, waiter: _Waiter, stand: Stand, blocked: frozenset[Role]) -> bool:
        """Whether it is worth asking the desk."""
        if not stand.claims:
            return self._desk.has_room(stand.roles - blocked, waiter.traits.weight)
        # One whose home is promised to those before it may still go to the other backend.
        return len(blocked) < len(ROLES) if stand.roams else not stand.claims <= blocked

    def _wait_of(self, waiter: _Waiter) -> Wait | None:
        """How a request waits for its home; None when it is time to go wherever there is room, since to wait longer
        could mean to be refused."""
        waited_s = self._desk.clock() - waiter.since_s
        if waited_s >= self.rules.max_wait_s - LAST_CALL_S:
            return None
        ahead, turn = self._lanes.ahead, waiter.turn
        return Wait(waited_s, ahead(SPECULATIVE, turn), ahead(BASELINE, turn))

    def _shut(self, waiter: _Waiter) -> Backend | None:
        """The backend to which a request may not go, since that has failed it."""
        failed = waiter.failed
        return None if failed is not None and waiter.returns and self._desk.is_back(failed) else failed

    def _is_over(self, waiter: _Waiter) -> bool:
        return waiter.place.done() or self._is_lost(waiter) or self._is_stateless(waiter)

    def _is_lost(self, waiter: _Waiter) -> bool:
        """End a request that waits for a backend which takes no more: the other one has failed it already."""
        shut = self._shut(waiter)
        if shut is None or self._desk.serves_beside(shut):
            return False
        message = "one backend failed the request, and the other went away while it waited there; try again"
        waiter.place.set_exception(QueueTimeout(message))
        return True

    def _is_stateless(self, waiter: _Waiter) -> bool:
        """End a request whose state is gone: its engine has begun anew while it waited, and no other has it."""
        if not waiter.traits.session:
            return False
        try:
            require_holder(self._desk, waiter.traits)
        except SessionUnrouted as error:
            waiter.place.set_exception(error)
            return True
        except StateUnreachable:
            return False  # it may come back within max_wait_s
        return False

    def _place(self, waiter: _Waiter, blocked: frozenset[Role]) -> bool:
        place = self._desk.assign(
            waiter.traits,
            waiter.request_id,
            waiter.route,
            failed=self._shut(waiter),
            promised=blocked,
            attempt=1 if waiter.failed is None else 2,
            wait=self._wait_of(waiter),
        )
        if isinstance(place, Assignment):
            waiter.place.set_result(place)
            return True
        return False


def _future() -> "asyncio.Future[Assignment]":
    return asyncio.get_running_loop().create_future()
