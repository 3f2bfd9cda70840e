"""The life of one request with its trace: where its spans begin and end. It takes a trip's place while traces are on.

What a span holds, and where it goes, is in traces/; without traces this module is not loaded.
"""

from functools import lru_cache
from urllib.parse import urlsplit

from proxy.dispatch import Assignment
from proxy.hearing import Trouble
from proxy.means import Means
from proxy.model import RequestFacts
from proxy.protocol.routes import Route
from proxy.state.backend import Backend
from proxy.traces import CARRIED, Traces
from proxy.trip import WELL, Trip
from proxy.wire.attempt import Opened
from proxy.wire.connection import Call
from proxy.wire.downstream import Reply
from proxy.wire.pair import Line
from proxy.wire.request import Request

# A shorter wait for room elsewhere is the time that deciding takes.
LEAST_WAIT_S = 0.001
_DEFAULT_PORTS = {"http": 80, "https": 443}


class TracedTrip(Trip):
    """One request on its way, seen by OpenTelemetry."""

    __slots__ = ("_trace", "_traces")

    def __init__(  # noqa: PLR0917 - a trip has these
        self, traces: Traces, means: Means, request: Request, route: Route, request_id: str, name: str | None
    ) -> None:
        super().__init__(means, request, route, request_id, name)
        self._traces = traces
        self._trace = traces.request(request.method, route.template, route.dialect, request.by_name, self._arrived_s)
        if not request.by_name.keys().isdisjoint(CARRIED):  # an engine gets the attempt's own in their place
            request.fields = [field for field in request.fields if field[0].lower() not in CARRIED]

    def facts(self) -> RequestFacts:
        """What is known of the request, and where its spans are found."""
        return super().facts()._replace(trace_id=self._trace.id)

    async def run(self) -> Reply | None:
        """From the first byte to the last."""
        try:
            return await super().run()
        finally:
            if self._admitted_s > self._read_s:  # one and the same instant for those that found room
                self._trace.waited(self._read_s, self._admitted_s)
            self._traces.ended(self._trace, self.facts(), self._desk.clock())

    async def _attempt(self, line: Line) -> Opened | Trouble:
        result = await super()._attempt(line)
        if isinstance(result, Trouble):
            self._trace.failed(
                self._desk.clock(), result.error.code, None if result.answer is None else result.answer.status
            )
        return result

    def _call(self, line: Line) -> Call:
        call, decision = super()._call(line), self._decision
        assert decision is not None
        number = 1 if self._first_failure is WELL else 2
        engine, address = line.rules.engine.value, _address(line.rules.url)
        carried = self._trace.attempt(self._desk.clock(), number, decision, engine, address)
        return Call(call.method, call.head[:-2] + carried + b"\r\n", call.body)

    async def _wait_elsewhere(self, failed: Backend, trouble: Trouble) -> Assignment:
        since_s = self._desk.clock()
        try:
            return await super()._wait_elsewhere(failed, trouble)
        finally:
            until_s = self._desk.clock()
            if until_s - since_s >= LEAST_WAIT_S:
                self._trace.waited(since_s, until_s)


@lru_cache(maxsize=16)
def _address(url: str) -> tuple[str, int]:
    """Host and port of a backend's url."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
