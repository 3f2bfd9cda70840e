"""One request as it is traced on its way: ids, instants, and the headers that carry the trace on to an engine.

What a span says of it is in spans.py; nothing of that is made before the request has ended.
"""

import time
from typing import NamedTuple

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision as Decided
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.model import Decision, Dialect, RequestFacts

CARRIED = (b"traceparent", b"tracestate")
"""The headers of W3C Trace Context, lower case: what a client says is continued, and engines get the proxy's own."""

SAMPLED, RANDOM_ID = 0x01, 0x02
"""Flags of Trace Context: the trace is recorded; its id was drawn at random."""

_NS = 1_000_000_000
_PROPAGATOR = TraceContextTextMapPropagator()
_IDS = RandomIdGenerator()


class Attempt(NamedTuple):
    """One sending to one engine: `engine` is its kind, `address` its host and port. `failure` is the code of the error
    for which it was given up at `ended_ns`; None of one that lasted to the request's end."""

    span_id: int
    number: int
    decision: Decision
    engine: str
    address: tuple[str, int]
    began_ns: int
    ended_ns: int | None = None
    failure: str | None = None
    status: int | None = None


class Ended(NamedTuple):
    """A request that has ended. Instants are unix nanoseconds; `first_ns` is that of the first content."""

    parent: SpanContext | None
    context: SpanContext
    dialect: Dialect
    facts: RequestFacts
    waits: tuple[tuple[int, int], ...]
    attempts: tuple[Attempt, ...]
    began_ns: int
    ended_ns: int
    first_ns: int | None


class Trace:
    """The trace of one request. Instants are given in monotonic seconds of one clock."""

    __slots__ = ("_attempts", "_began_s", "_context", "_dialect", "_parent", "_waits", "_zero_ns")

    def __init__(
        self, sampler: Sampler, name: str, dialect: Dialect, named: dict[bytes, bytes], began_s: float
    ) -> None:
        self._dialect = dialect
        self._began_s = began_s
        self._zero_ns = time.time_ns() - round(began_s * _NS)
        carrier = {each.decode(): named[each].decode("latin-1") for each in CARRIED if each in named}
        within = _PROPAGATOR.extract(carrier) if carrier else None
        parent = get_current_span(within).get_span_context() if within else None
        self._parent = parent = parent if parent is not None and parent.is_valid else None
        trace_id = _IDS.generate_trace_id() if parent is None else parent.trace_id
        # Most that samplers look at: by default the id and the parent alone.
        sampled = sampler.should_sample(within, trace_id, name, SpanKind.SERVER)
        flags = RANDOM_ID if parent is None else parent.trace_flags & RANDOM_ID
        if sampled.decision is Decided.RECORD_AND_SAMPLE:
            flags |= SAMPLED
        span_id = _IDS.generate_span_id()
        self._context = SpanContext(trace_id, span_id, False, TraceFlags(flags), sampled.trace_state)
        self._waits: list[tuple[int, int]] = []
        self._attempts: list[Attempt] = []

    @property
    def id(self) -> str | None:
        """The trace's id in 32 hexadecimal digits; None where it is not recorded here."""
        context = self._context
        return f"{context.trace_id:032x}" if context.trace_flags & SAMPLED else None

    def waited(self, began_s: float, ended_s: float) -> None:
        """The request waited for room."""
        self._waits.append((self._at_ns(began_s), self._at_ns(ended_s)))

    def attempt(self, now_s: float, number: int, decision: Decision, engine: str, address: tuple[str, int]) -> bytes:
        """An attempt is sent to an engine of this kind and address; the lines of its head that carry the trace on."""
        context, span_id = self._context, _IDS.generate_span_id()
        self._attempts.append(Attempt(span_id, number, decision, engine, address, self._at_ns(now_s)))
        line = b"traceparent: 00-%032x-%016x-%02x\r\n" % (context.trace_id, span_id, context.trace_flags)
        if context.trace_state:
            line += b"tracestate: %b\r\n" % context.trace_state.to_header().encode()
        return line

    def failed(self, now_s: float, code: str, status: int | None) -> None:
        """The last attempt failed and is given up."""
        if self._attempts:
            ended = self._attempts[-1]._replace(ended_ns=self._at_ns(now_s), failure=code, status=status)
            self._attempts[-1] = ended

    def ended(self, now_s: float, facts: RequestFacts) -> Ended | None:
        """The request has ended; None where it is not to be recorded."""
        if not self._context.trace_flags & SAMPLED:
            return None
        return Ended(
            self._parent,
            self._context,
            self._dialect,
            facts,
            tuple(self._waits),
            tuple(self._attempts),
            self._at_ns(self._began_s),
            self._at_ns(now_s),
            None if facts.ttft_s is None else self._at_ns(self._began_s + facts.ttft_s),
        )

    def _at_ns(self, at_s: float) -> int:
        """An instant of the monotonic clock in unix nanoseconds."""
        return self._zero_ns + round(at_s * _NS)
