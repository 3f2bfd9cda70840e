"""Requests to OpenTelemetry: spans by its conventions, sent by OTLP over HTTP. The one room that knows the library.

It is loaded only where `traces.enabled` is set. A span holds what the log line does and no word of a prompt or an
answer. When spans begin and end is in traced.py; which requests are traced is the library's sampler's to say.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy import __version__
from proxy.model import Decision, Dialect, Outcome, RequestFacts, Traits

CARRIED = (b"traceparent", b"tracestate")
"""The headers of W3C Trace Context, lower case: what a client says is continued, and engines get the proxy's own."""

# How long a stop waits for the last spans; a collector that does not answer would hold it for half a minute.
CLOSE_WITHIN_S = 2.0

_NS = 1_000_000_000
# What the conventions call an operation, by the wire form of its answer.
_OPERATIONS = {
    Dialect.CHAT: "chat",
    Dialect.COMPLETIONS: "text_completion",
    Dialect.RESPONSES: "chat",
    Dialect.MESSAGES: "chat",
    Dialect.GENERATE: "text_completion",
    Dialect.OLLAMA: "chat",
}
Attributes = dict[str, str | bool | int | float]


class Destination(NamedTuple):
    """Where spans go and as whose; what is None or empty is left to the OTEL_* variables, and then to defaults."""

    endpoint: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    sample_ratio: float | None = None
    service_name: str | None = None


class Traces:
    """Makes the traces of requests and sends them from a thread of its own: as many as fit its queue, the rest is
    dropped. `told` gets a message when spans do not arrive, once, and one when they do again; from that thread."""

    def __init__(self, destination: Destination, told: Callable[[str], None]) -> None:
        # The library's own warnings would be lines that no collector of logs can read, one for each failure.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        exporter = OTLPSpanExporter(endpoint=destination.endpoint, headers=dict(destination.headers) or None)
        self._exporter = _Watched(exporter, told)
        self._processor = BatchSpanProcessor(self._exporter)
        provider = TracerProvider(
            sampler=_sampler(destination.sample_ratio), resource=_resource(destination), shutdown_on_exit=False
        )
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("crossover", __version__)

    def request(self, method: str, route: str, dialect: Dialect, named: dict[bytes, bytes], now_s: float) -> "Trace":
        """Begin the trace of a request whose head came at `now_s`; `named` are its headers by name."""
        return Trace(self._tracer, method, route, dialect, named, now_s)

    def close(self) -> None:
        """Send what is left, for CLOSE_WITHIN_S at most. It blocks."""
        closing = threading.Thread(target=self._processor.shutdown, name="traces end", daemon=True)
        closing.start()
        closing.join(CLOSE_WITHIN_S)
        if closing.is_alive():
            self._exporter.shutdown()


class Trace:
    """The spans of one request: itself, its waits, its attempts. Instants are monotonic seconds of one clock."""

    __slots__ = ("_attempt", "_dialect", "_server", "_tracer", "_within", "_zero_ns")

    def __init__(  # noqa: PLR0917 - made in one place, which has them in this order
        self, tracer: Tracer, method: str, route: str, dialect: Dialect, named: dict[bytes, bytes], now_s: float
    ) -> None:
        self._tracer = tracer
        self._dialect = dialect
        self._zero_ns = time.time_ns() - round(now_s * _NS)
        carrier = {name.decode(): named[name].decode("latin-1") for name in CARRIED if name in named}
        parent = _PROPAGATOR.extract(carrier) if carrier else None
        told: Attributes = {"http.request.method": method, "http.route": route}
        self._server = tracer.start_span(
            f"{method} {route}", parent, SpanKind.SERVER, told, start_time=self._at_ns(now_s)
        )
        self._within = set_span_in_context(self._server)
        self._attempt: Span | None = None

    def waited(self, began_s: float, ended_s: float) -> None:
        """The request waited for room."""
        span = self._tracer.start_span("queue", self._within, start_time=self._at_ns(began_s))
        span.end(self._at_ns(ended_s))

    def attempt(self, number: int, decision: Decision, traits: Traits, engine: str, address: tuple[str, int]) -> bytes:
        """An attempt is sent to an engine of this kind and address; the lines of its head that carry the trace on."""
        operation = _OPERATIONS.get(self._dialect)
        span = self._attempt = self._tracer.start_span(
            " ".join(filter(None, (operation or "request", traits.model))), self._within, SpanKind.CLIENT
        )
        if span.is_recording():
            role, reason = str(decision.role), decision.reason.value
            self._server.add_event("crossover.decided", {"crossover.role": role, "crossover.reason": reason})
            span.set_attributes(
                {
                    **_asked(operation, traits),
                    "gen_ai.provider.name": engine,
                    "server.address": address[0],
                    "server.port": address[1],
                    "crossover.role": role,
                    "crossover.reason": reason,
                    "crossover.attempt": number,
                }
            )
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(span))
        return b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in carrier.items())

    def failed(self, code: str, status: int | None) -> None:
        """The attempt failed and is given up."""
        span, self._attempt = self._attempt, None
        if span is not None:
            _fail(span, code)
            if status is not None:
                span.set_attribute("http.response.status_code", status)
            span.end()

    def end(self, facts: RequestFacts, arrived_s: float, sent_s: float) -> None:
        """The request has ended; the clock said `arrived_s` when it came and `sent_s` at its first attempt."""
        attempt, server = self._attempt, self._server
        failure = facts.failure or (str(facts.status) if facts.status >= 500 else None)
        answered = _answered(facts)
        if attempt is not None:
            if attempt.is_recording():
                attempt.set_attributes(answered)
                if facts.ttft_s is not None:
                    at_s = arrived_s + facts.ttft_s
                    attempt.set_attribute("gen_ai.response.time_to_first_chunk", max(0.0, at_s - sent_s))
                    attempt.add_event("crossover.first_token", timestamp=self._at_ns(at_s))
                if failure is not None:
                    _fail(attempt, failure)
            attempt.end()
        if server.is_recording():
            server.set_attributes({**_asked(_OPERATIONS.get(self._dialect), facts.traits), **answered, **_told(facts)})
            if facts.status >= 500 or facts.outcome is Outcome.FAILED_AFTER_COMMIT:
                _fail(server, failure or facts.outcome.value)
            elif failure is not None:  # a client's own error is none of the server's
                server.set_attribute("error.type", failure)
        server.end()

    def _at_ns(self, at_s: float) -> int:
        """An instant of the monotonic clock as the library wants it: unix time in nanoseconds."""
        return self._zero_ns + round(at_s * _NS)


class _Watched(SpanExporter):
    """An exporter that tells once when nothing arrives, and once when it does again."""

    def __init__(self, exporter: OTLPSpanExporter, told: Callable[[str], None]) -> None:
        self._exporter, self._told = exporter, told
        self._arrives = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; on the library's thread."""
        result = self._exporter.export(spans)
        arrives = result is SpanExportResult.SUCCESS
        if arrives is not self._arrives:
            self._arrives = arrives
            self._told(ARRIVES if arrives else LOST)
        return result

    def shutdown(self) -> None:
        """Give up waiting for the collector."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own has no types


LOST = (
    "the collector of traces does not take the spans; requests are served all the same, and spans are dropped. Mend: "
    "check traces.endpoint and traces.headers_file, and whether the collector runs"
)
ARRIVES = "the collector of traces takes the spans again"
_PROPAGATOR = TraceContextTextMapPropagator()


def _sampler(ratio: float | None) -> Sampler | None:
    """None leaves it to OTEL_TRACES_SAMPLER."""
    return None if ratio is None else ParentBased(TraceIdRatioBased(ratio))


def _resource(destination: Destination) -> Resource:
    """Who this is: by the configuration, else by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, else crossover."""
    named = destination.service_name or OTELResourceDetector().detect().attributes.get("service.name") or "crossover"
    return Resource.create({"service.version": __version__}).merge(Resource({"service.name": named}))


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR))


def _asked(operation: str | None, traits: Traits) -> Attributes:
    told: Attributes = {"gen_ai.request.stream": traits.stream, "crossover.weight": traits.weight}
    if operation is not None:
        told["gen_ai.operation.name"] = operation
    if traits.model is not None:
        told["gen_ai.request.model"] = traits.model
    if traits.max_tokens is not None:
        told["gen_ai.request.max_tokens"] = traits.max_tokens
    return told


def _answered(facts: RequestFacts) -> Attributes:
    told: Attributes = {}
    if facts.status:
        told["http.response.status_code"] = facts.status
    usage = facts.usage
    if usage.prompt_tokens:
        told["gen_ai.usage.input_tokens"] = usage.prompt_tokens
    if usage.completion_tokens:
        told["gen_ai.usage.output_tokens"] = usage.completion_tokens
    if usage.cached_tokens:
        told["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    return told


def _told(facts: RequestFacts) -> Attributes:
    """What the log line says of the request and of its last decision, by the same names."""
    told: Attributes = {
        "crossover.request_id": facts.request_id,
        "crossover.outcome": facts.outcome.value,
        "crossover.attempts": facts.attempts,
        "crossover.queue_s": facts.queue_s,
        "crossover.overhead_s": facts.overhead_s,
    }
    if facts.first_failure is not None:
        told["crossover.first_failure"] = facts.first_failure
    if facts.client_name is not None:
        told["crossover.client_name"] = facts.client_name
    if facts.decision is None:
        return told
    told |= {"crossover.role": str(facts.decision.role), "crossover.reason": facts.decision.reason.value}
    because = facts.decision.because
    numbers = because._asdict() | {
        "costs": None,
        "speculative_cost_s": because.speculative_cost_s,
        "baseline_cost_s": because.baseline_cost_s,
    }
    return told | {f"crossover.{name}": _plain(value) for name, value in numbers.items() if _says(value)}


def _says(value: object) -> bool:
    """Whether a number or a word says something; infinite ones have no place in a collector."""
    return value is not None and not (isinstance(value, float) and not isfinite(value))


def _plain(value: str | bool | int | float) -> str | bool | int | float:
    """Enums by their words."""
    return str(value) if isinstance(value, str) else value
