"""The bounded FIFO queue in front of the desk: requests that found no room wait here, or are refused.

Waiting is not failing: nothing here touches the health of an engine, and no running request is cut.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.dispatch import Assignment, Desk
from proxy.dispatch.holders import require_holder
from proxy.errors import QueueFull, QueueTimeout, SessionUnrouted, ShuttingDown, StateUnreachable
from proxy.model import BASELINE, ROLES, SPECULATIVE, Role, Traits
from proxy.routing.affinity import Wait
from proxy.state.backend import Backend

# Room also comes with time alone (a lingering sequence ends, a circuit cools down) and nothing calls then.
LOOK_AGAIN_S = 0.25

# What is promised when nobody waits.
_NOBODYS: frozenset[Role] = frozenset()
_AT_ITS_COMING = Wait()


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
    failed: Backend | None = None  # the backend that has failed this request already


class Admission:
    """Gives each request its place: at once, after waiting, or never."""

    def __init__(self, desk: Desk, rules: QueueRules) -> None:
        self.rules = rules
        self._desk = desk
        self._waiters: deque[_Waiter] = deque()
        self._look: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._closed = False
        desk.on_room = self._room_may_be

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return len(self._waiters)

    def at_once(self, traits: Traits, request_id: str, route: str) -> Assignment | None:
        """A place for a request that need not wait, as most need not; None where that has to be looked into."""
        if self._waiters or self._closed:
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
        full = len(self._waiters) >= self.rules.max_waiting
        if full or not self._waiters:
            promised = self._claimed(self._waiters) if self._waiters else _NOBODYS
            # Who would not be let in goes wherever there is room.
            wait = None if full else _AT_ITS_COMING
            place = self._desk.assign(traits, request_id, route, promised=promised, wait=wait)
            if isinstance(place, Assignment):
                return place
        if full:
            raise QueueFull(
                f"every backend is at its limit and {self.rules.max_waiting} requests wait already; try again shortly"
            )
        return await self._wait(_Waiter(traits, request_id, route, _future(), self._desk.clock()))

    async def readmit(self, traits: Traits, request_id: str, route: str, failed: Backend) -> Assignment:
        """A place on the other backend for a request that `failed` has just failed. It waits ahead of all others,
        since it came before them, and is not counted against `max_waiting` unless that lets nobody wait.

        Raises and is cancelled like `admit`.
        """
        if self._closed:
            raise ShuttingDown("the proxy is shutting down; send the request to another instance or try again")
        before = self._claimed(waiter for waiter in self._waiters if waiter.failed is not None)
        place = self._desk.assign(traits, request_id, route, failed=failed, promised=before, attempt=2)
        if isinstance(place, Assignment):
            return place
        if not self.rules.max_waiting:
            raise QueueFull("one backend failed the request and the other is at its limit; try again shortly")
        return await self._wait(_Waiter(traits, request_id, route, _future(), self._desk.clock(), failed))

    def close(self) -> None:
        """Refuse everybody who waits and everybody who comes."""
        self._closed = True
        for waiter in self._waiters:
            if not waiter.place.done():
                waiter.place.set_exception(ShuttingDown("the proxy shut down while this request waited; try again"))

    async def _wait(self, waiter: _Waiter) -> Assignment:
        if waiter.failed is None:
            self._waiters.append(waiter)
        else:  # behind those that have failed before it
            self._waiters.insert(sum(each.failed is not None for each in self._waiters), waiter)
        self._room_may_be()
        limit = asyncio.get_running_loop().call_later(self.rules.max_wait_s, self._expire, waiter)
        try:
            return await waiter.place
        except asyncio.CancelledError:
            # The place may have been given in the very step in which the client left.
            place = waiter.place
            if place.done() and not place.cancelled() and place.exception() is None:
                self._desk.take_back(place.result())
            raise
        finally:
            limit.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _expire(self, waiter: _Waiter) -> None:
        if not waiter.place.done():
            message = f"no backend had room within queue.max_wait_s ({self.rules.max_wait_s:g} s); try again later"
            waiter.place.set_exception(QueueTimeout(message))

    def _room_may_be(self) -> None:
        # Deferred to the next turn of the loop: room is announced in the middle of the desk's own step. A look that
        # is due already is left as it is: put off at every settling, it might never come.
        if self._waiters and self._look is None:
            self._look = asyncio.get_running_loop().call_soon(self._give_places)

    def _give_places(self) -> None:
        """Place waiters in their order, until none behind can be placed.

        One that finds no room blocks those behind it from the backends that it claims, else a stream of light
        requests would starve a heavy one; one that takes either backend blocks everybody. A bulky one claims none:
        it waits, for `max_wait_s` at most, until a backend happens to be empty enough.
        """
        self._look = None
        if self._later is not None:
            self._later.cancel()
        blocked: set[Role] = set()
        ahead = dict.fromkeys(ROLES, 0)
        left: list[_Waiter] = []
        while self._waiters and len(blocked) < len(ROLES):
            waiter = self._waiters.popleft()
            if waiter.place.done() or self._is_lost(waiter) or self._is_stateless(waiter):
                continue
            claims = self._desk.claims(waiter.traits, waiter.failed)
            # One whose home is promised to those before it may still go to the other backend.
            hopeless = claims and claims <= blocked and not self._desk.follows(waiter.traits)
            if hopeless or not self._place(waiter, blocked, ahead):
                blocked |= claims
                for role in claims:
                    ahead[role] += 1
                left.append(waiter)
        self._waiters.extendleft(reversed(left))
        if self._waiters:
            self._later = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._room_may_be)

    def _claimed(self, waiters: Iterable[_Waiter]) -> frozenset[Role]:
        """The backends whose next room is for those who wait."""
        claimed: set[Role] = set()
        for waiter in waiters:
            claimed |= self._desk.claims(waiter.traits, waiter.failed)
            if len(claimed) == len(ROLES):
                break
        return frozenset(claimed)

    def _wait_of(self, waiter: _Waiter, ahead: Mapping[Role, int]) -> Wait | None:
        """How a request waits for its home; None when it is time to go wherever there is room, since to wait longer
        could mean to be refused."""
        waited_s = self._desk.clock() - waiter.since_s
        if waited_s >= self.rules.max_wait_s - 2.0 * LOOK_AGAIN_S:
            return None
        return Wait(waited_s, ahead[SPECULATIVE], ahead[BASELINE])

    def _is_lost(self, waiter: _Waiter) -> bool:
        """End a request that waits for a backend which takes no more: the other one has failed it already."""
        if waiter.failed is None or self._desk.serves_beside(waiter.failed):
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

    def _place(self, waiter: _Waiter, blocked: set[Role], ahead: dict[Role, int]) -> bool:
        place = self._desk.assign(
            waiter.traits,
            waiter.request_id,
            waiter.route,
            failed=waiter.failed,
            promised=frozenset(blocked),
            attempt=1 if waiter.failed is None else 2,
            wait=self._wait_of(waiter, ahead),
        )
        if isinstance(place, Assignment):
            waiter.place.set_result(place)
            return True
        return False


def _future() -> "asyncio.Future[Assignment]":
    return asyncio.get_running_loop().create_future()
