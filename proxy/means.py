"""What requests travel by, for all of them alike: the one thing a reload has to change.

What happens to one request is in trip.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from proxy.dispatch import Assignment, Desk
from proxy.hearing import Record
from proxy.model import RequestFacts, Traits
from proxy.state.backend import Backend
from proxy.wire.admission import Admission
from proxy.wire.body import Bodies
from proxy.wire.pair import Pair
from proxy.wire.passage import Passage, Patience


class Stage(NamedTuple):
    """How far a request under way has come, for those who ask: since when it is here and since when its body is read
    (monotonic seconds, None: it is not), whether its first attempt failed, the place that it has and the answer that is
    passed on, None before there is one."""

    request_id: str
    route: str
    traits: Traits
    came_at_s: float
    read_at_s: float | None
    moved: bool
    assignment: Assignment | None
    passage: Passage | None


class UnderWay(Protocol):
    """A request under way."""

    @property
    def request_id(self) -> str:
        """The id that it is told by."""
        ...

    @property
    def stage(self) -> Stage:
        """How far it has come."""
        ...

    @property
    def task(self) -> "asyncio.Task[Any] | None":
        """The task that answers it."""
        ...

    def end(self) -> None:
        """End it because the proxy shuts down."""
        ...

    def leaves(self, backend: Backend) -> bool:
        """Whether it is on `backend` and is to be made elsewhere, once its wait is forsaken. The retry budget has paid
        for that then, and its place there is taken, where it has not to wait for one."""
        ...


@dataclass(slots=True)
class Means:
    """Looked up anew by each request: a reload replaces them. `trips` are the requests under way, and `on_end` gets the
    facts of each that has ended."""

    desk: Desk
    admission: Admission
    pair: Pair
    bodies: Bodies
    patience: Patience
    record: Record = field(default_factory=Record)
    trips: set[UnderWay] = field(default_factory=set)
    on_end: Callable[[RequestFacts], None] = lambda _: None
