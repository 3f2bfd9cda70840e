"""Requests for an engine, all that are under way: begun, counted among those under way, ended.

What happens to one of them is in trip.py.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.dispatch import Desk
from proxy.means import Means
from proxy.protocol.routes import Route
from proxy.state.backend import Backend
from proxy.trip import Trip
from proxy.wire.admission import Admission
from proxy.wire.body import Bodies
from proxy.wire.downstream import Reply
from proxy.wire.pair import Pair
from proxy.wire.passage import Patience
from proxy.wire.request import Request

# In the first turn what lies in a socket is read, in the second it wakes who waits for it, whose place in that turn may
# be behind ours: in the third it has been heard.
TURNS = 3


class Relay(Means):
    """Carries requests. `on_end` gets the facts of every request that was decided on, when it has ended; `trip` is what
    each is carried by."""

    def __init__(self, desk: Desk, admission: Admission, pair: Pair, bodies: Bodies, patience: Patience) -> None:
        super().__init__(desk, admission, pair, bodies, patience)
        self.trip: Callable[[Means, Request, Route, str, str | None], Trip] = Trip

    def carry(
        self, request: Request, route: Route, request_id: str, client_name: str | None = None
    ) -> Coroutine[Any, Any, Reply | None]:
        """Carry one request to its end: the reply, None where an answer was passed on; or it is cancelled with its
        client. The key of a client with a name was for the proxy and goes no further."""
        return self.trip(self, request, route, request_id, client_name).run()

    def end_all(self) -> None:
        """End every request that still runs, with an error event where its answer has begun."""
        for trip in tuple(self.trips):
            trip.end()

    def rescue(self, backend: Backend, turns: int = TURNS) -> None:
        """A backend stands still: what waits there and has heard nothing yet goes to the other one if that serves, the
        first to come first, as far as the retry budget lets it. The rest waits on, as it may go on.

        Some `turns` of the loop later, that is, and if it still does: what has come by now is read and heard first."""
        if turns:
            asyncio.get_running_loop().call_soon(self.rescue, backend, turns - 1)
        elif self.desk.stands_still(backend):
            self._move_from(backend)

    def _move_from(self, backend: Backend) -> None:
        waits = tuple(self.pair.unheard(backend))
        if not waits or not self.desk.may_move(backend):
            return
        trips = {trip.task: trip for trip in self.trips}
        for wait in waits:
            trip = trips.get(wait.task)
            if trip is not None and not wait.has_come() and trip.leaves(backend):
                wait.forsake()
