"""Spans on their way out: a bounded queue and a thread of the library's, OTLP over HTTP, and a word when they are lost.

What is sent is made on that thread (spans.py), so that requests wait for none of it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from proxy import __version__
from proxy.model import Dialect, RequestFacts
from proxy.traces.session import session
from proxy.traces.spans import spans
from proxy.traces.trace import Ended, Trace

# How long a stop waits for the last spans; a collector that does not answer would hold it for half a minute.
CLOSE_WITHIN_S = 2.0

LOST = (
    "the collector of traces does not take the spans; requests are served all the same, and spans are dropped. Mend: "
    "check traces.endpoint and traces.headers_file, and whether the collector runs"
)
ARRIVES = "the collector of traces takes the spans again"


class Destination(NamedTuple):
    """Where spans go and as whose; what is None or empty is left to the OTEL_* variables, and then to defaults."""

    endpoint: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    sample_ratio: float | None = None
    service_name: str | None = None


class Traces:
    """Makes the traces of requests, and sends them: as many as fit the queue, the oldest are dropped. `told` gets a
    message when spans do not arrive, once, and one when they do again; from the exporter's thread."""

    def __init__(self, destination: Destination, told: Callable[[str], None]) -> None:
        # The library's own warnings would be lines that no collector of logs can read, one for each failure.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        exporter = OTLPSpanExporter(
            endpoint=destination.endpoint, headers=dict(destination.headers) or None, session=session()
        )
        self._exporter = _Exporter(exporter, _resource(destination), told)
        self._processor = BatchSpanProcessor(self._exporter)
        self._sampler = _sampler(destination.sample_ratio)

    def request(self, method: str, route: str, dialect: Dialect, named: dict[bytes, bytes], now_s: float) -> Trace:
        """Begin the trace of a request whose head came at `now_s`; `named` are its headers by name."""
        return Trace(self._sampler, f"{method} {route}", dialect, named, now_s)

    def ended(self, trace: Trace, facts: RequestFacts, now_s: float) -> None:
        """Have a request that has ended sent, where it is to be recorded."""
        ended = trace.ended(now_s, facts)
        if ended is not None:
            # The queue looks at the flags of its `context` alone, as of a span's.
            self._processor.on_end(cast("ReadableSpan", ended))

    def close(self) -> None:
        """Send what is left, for CLOSE_WITHIN_S at most. It blocks."""
        closing = threading.Thread(target=self._processor.shutdown, name="traces end", daemon=True)
        closing.start()
        closing.join(CLOSE_WITHIN_S)
        if closing.is_alive():
            self._exporter.shutdown()


class _Exporter(SpanExporter):
    """Makes spans of requests that have ended, and sends them; tells once when they do not arrive."""

    def __init__(self, exporter: OTLPSpanExporter, resource: Resource, told: Callable[[str], None]) -> None:
        self._exporter, self._resource, self._told = exporter, resource, told
        self._scope = InstrumentationScope("crossover", __version__)
        self._arrives = True

    def export(self, batch: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; on the library's thread."""
        ended = cast("Sequence[Ended]", batch)
        result = self._exporter.export(_Made([(each, self._resource, self._scope) for each in ended]))
        arrives = result is SpanExportResult.SUCCESS
        if arrives is not self._arrives:
            self._arrives = arrives
            self._told(ARRIVES if arrives else LOST)
        return result

    def shutdown(self) -> None:
        """Give up waiting for the collector."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's own has no types


class _Made(Sequence[ReadableSpan]):
    """The spans of a batch, each made as it is asked for. After those of one request the thread that serves requests
    may go on: with whole batches at once it waited six times as long for the interpreter (30 ms of 5, one time in ten,
    on a machine full of other work)."""

    def __init__(self, ended: list[tuple[Ended, Resource, InstrumentationScope]]) -> None:
        self._ended = ended

    def __len__(self) -> int:
        return sum(1 + len(each.waits) + len(each.attempts) for each, _, _ in self._ended)

    def __iter__(self) -> Iterator[ReadableSpan]:
        for each in self._ended:
            yield from spans(*each)
            time.sleep(0)  # gives the interpreter's lock away

    def __getitem__(self, at: int | slice) -> Any:
        return list(self)[at]


def _sampler(ratio: float | None) -> Sampler:
    if ratio is not None:
        return ParentBased(TraceIdRatioBased(ratio))
    return TracerProvider(shutdown_on_exit=False).sampler  # the one of OTEL_TRACES_SAMPLER


def _resource(destination: Destination) -> Resource:
    """Who this is: by the configuration, else by OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, else crossover."""
    named = destination.service_name or OTELResourceDetector().detect().attributes.get("service.name") or "crossover"
    return Resource.create({"service.version": __version__}).merge(Resource({"service.name": named}))
