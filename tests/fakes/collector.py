"""An OTLP/HTTP collector of traces in a thread of its own, which decodes what it gets."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.threaded import Quiet, in_a_thread
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """One span as it came. Times are unix nanoseconds, ids hexadecimal digits."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    began_ns: int
    ended_ns: int
    failed: bool
    attributes: dict[str, Any]
    events: dict[str, int]
    state: str


@dataclass
class Collector:
    """What has come so far; `status` is what it answers, once its `gate` is open."""

    url: str = ""
    status: int = 200
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)

    def take(self, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        if self.status != 200:
            return
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resource = _plain(of_resource.resource.attributes)
            for scope in of_resource.scope_spans:
                self.spans += [_span(each) for each in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def _span(sent: Any) -> Span:
    return Span(
        name=sent.name,
        kind=sent.kind,
        trace_id=sent.trace_id.hex(),
        span_id=sent.span_id.hex(),
        parent_id=sent.parent_span_id.hex(),
        began_ns=sent.start_time_unix_nano,
        ended_ns=sent.end_time_unix_nano,
        failed=sent.status.code == 2,
        attributes=_plain(sent.attributes),
        events={event.name: event.time_unix_nano for event in sent.events},
        state=sent.trace_state,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    collector.gate.set()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/traces", self.path
            collector.gate.wait(10)
            collector.take({name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with in_a_thread(Handler, "collector") as port:
        collector.url = f"http://127.0.0.1:{port}/v1/traces"
        yield collector
