"""Traces by OpenTelemetry: spans from the client through the decision to the engine, in an OTLP collector.

Off, headers pass as they are and nothing is loaded; a collector that is away costs requests nothing.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.collector import Collector, Span, collecting
from fakes.engine import Exchange, Script, either, stream
from fakes.failing import cut, fail
from fakes.interpreter import printed
from fakes.proxy import running, settings
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.config import RESTART_KEYS, InvalidConfig
from proxy.errors import ConfigError
from proxy.model import Outcome
from proxy.relay import Trip

CHAT = "/v1/chat/completions"
SERVER, CLIENT = 2, 3
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
SECRET = "PROMPTMARK"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    for name in ("OTEL_SERVICE_NAME", "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with collecting() as scene:
        yield scene


@contextlib.asynccontextmanager
async def traced(
    collector: Collector, a: Script = either, b: Script = either, *, traces: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Stage]:
    chosen = {"enabled": True, "endpoint": collector.url, **(traces or {})}
    async with staged(a, b, traces=chosen, **more) as stage:
        yield stage


async def whole(collector: Collector, count: int = 1) -> list[Span]:
    """All spans, once those of so many requests have come."""
    await until(lambda: sum(span.kind == SERVER for span in collector.spans) >= count, what="the spans")
    return collector.spans


def one(spans: list[Span], kind: int) -> Span:
    [found] = [span for span in spans if span.kind == kind]
    return found


# ---------------------------------------------------------------- what a trace has


async def test_a_request_is_a_span_with_its_decision_and_its_tokens(collector: Collector) -> None:
    async with traced(collector, routing={"policy": "overflow", "leave_at": 9}) as stage:
        await stage.ask("x-request-id: mine", stream=True)
        server = one(await whole(collector), SERVER)
    told = server.attributes
    assert server.name == f"POST {CHAT}"
    assert (told["http.request.method"], told["http.route"], told["http.response.status_code"]) == ("POST", CHAT, 200)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.stream"]) == ("chat", True)
    assert (told["crossover.request_id"], told["crossover.outcome"]) == ("mine", "finished")
    assert (told["crossover.role"], told["crossover.reason"]) == ("speculative", "room")
    assert (told["crossover.policy"], told["crossover.leave_at"]) == ("overflow", 9)
    assert (told["crossover.speculative_in_flight"], told["crossover.baseline_in_flight"]) == (0, 0)
    assert "crossover.smoothed" not in told  # policy overflow does not look at it
    assert not server.failed and "crossover.decided" in server.events


async def test_the_line_of_a_request_that_is_recorded_has_the_id_of_its_trace(
    collector: Collector, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    async with traced(collector, log={"format": "json", "level": "info"}) as stage:
        await stage.ask("x-request-id: own")
        drawn = one(await whole(collector), SERVER).trace_id
        await stage.ask("x-request-id: continued", f"traceparent: {SAMPLED}")
        await stage.ask("x-request-id: unsampled", f"traceparent: {UNSAMPLED}")
    async with staged(log={"format": "json", "level": "info"}) as stage:
        await stage.ask("x-request-id: off", f"traceparent: {SAMPLED}")
    lines = [line for line in map(json.loads, capfdbinary.readouterr().out.splitlines()) if "outcome" in line]
    told = {line["request_id"]: line.get("trace_id") for line in lines}
    assert told == {"own": drawn, "continued": TRACE, "unsampled": None, "off": None}


async def test_an_attempt_is_a_span_below_it_with_the_engine_and_its_first_token(collector: Collector) -> None:
    async with traced(collector) as stage:
        await stage.ask(stream=True)
        spans = await whole(collector)
        server, attempt = one(spans, SERVER), one(spans, CLIENT)
        port = stage.a.port
    assert (attempt.trace_id, attempt.parent_id) == (server.trace_id, server.span_id)
    assert server.began_ns <= attempt.began_ns <= attempt.events["crossover.first_token"] <= attempt.ended_ns
    assert attempt.ended_ns <= server.ended_ns
    told = attempt.attributes
    assert attempt.name == f"chat {told['gen_ai.request.model']}"
    assert (told["gen_ai.provider.name"], told["server.address"], told["server.port"]) == ("sglang", "127.0.0.1", port)
    assert (told["crossover.role"], told["crossover.attempt"]) == ("speculative", 1)
    assert 0 <= told["gen_ai.response.time_to_first_chunk"] <= (attempt.ended_ns - attempt.began_ns) / 1e9 + 0.01


async def test_tokens_are_those_that_the_engine_counted(collector: Collector) -> None:
    async with traced(collector) as stage:
        await stage.ask()
        usage = (await stage.ended_one()).usage
        spans = await whole(collector)
    assert usage.completion_tokens
    for span in (one(spans, SERVER), one(spans, CLIENT)):
        assert span.attributes["gen_ai.usage.output_tokens"] == usage.completion_tokens
        assert span.attributes["gen_ai.usage.input_tokens"] == usage.prompt_tokens


async def test_a_failover_is_two_attempts_one_after_the_other(collector: Collector) -> None:
    async with traced(collector, a=fail) as stage:
        await stage.ask()
        spans = await whole(collector)
    first, second = sorted((span for span in spans if span.kind == CLIENT), key=lambda span: span.began_ns)
    assert (first.attributes["crossover.role"], second.attributes["crossover.role"]) == ("speculative", "baseline")
    assert first.failed and first.attributes["error.type"] == "backend_broken"
    assert not second.failed and second.attributes["crossover.reason"] == "failover"
    assert first.ended_ns <= second.began_ns
    server = one(spans, SERVER)
    assert not server.failed and server.attributes["crossover.first_failure"] == "backend_broken"
    assert first.parent_id == second.parent_id == server.span_id


async def test_a_wait_for_room_is_a_span(collector: Collector) -> None:
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await gate.wait()
        await either(exchange)

    async with traced(collector, a=held, b=held, max_in_flight=1) as stage:
        asking = [asyncio.create_task(stage.ask()) for _ in range(3)]
        await until(lambda: stage.app.admission.waiting == 1)
        gate.set()
        await asyncio.gather(*asking)
        spans = await whole(collector, 3)
    [queue] = collector.named("queue")
    [server] = [span for span in spans if span.span_id == queue.parent_id]
    assert server.kind == SERVER and server.attributes["crossover.queue_s"] > 0
    assert server.began_ns <= queue.began_ns < queue.ended_ns <= server.ended_ns


async def test_an_answer_that_breaks_is_an_error_and_one_that_its_client_leaves_is_none(collector: Collector) -> None:
    async with traced(collector, a=cut) as stage:
        await stage.ask(stream=True)
        broken = one(await whole(collector), SERVER)
        assert broken.failed and broken.attributes["error.type"] == (await stage.ended_one()).failure
        stage.a.script = lambda exchange: stream(exchange, gate=asyncio.Event())
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat(stream=True)))
            await client.head()
        await whole(collector, 2)
        left = [span for span in collector.spans if span.kind == SERVER][-1]
    assert left.attributes["crossover.outcome"] == Outcome.CLIENT_GONE_IN_STREAM
    assert not left.failed


async def test_a_refused_request_has_a_span_and_no_attempt(collector: Collector) -> None:
    async with traced(collector, listen={"max_body_bytes": 1024, "host": "127.0.0.1", "port": 0}) as stage:
        await ask(stage.app.port, request(CHAT, chat(messages=[{"role": "user", "content": "x" * 2000}])))
        spans = await whole(collector)
    [server] = spans
    assert (server.attributes["http.response.status_code"], server.attributes["error.type"]) == (413, "body_too_large")
    assert not server.failed  # a client's own error


async def test_no_word_of_a_prompt_or_an_answer_is_in_a_span(collector: Collector) -> None:
    async with traced(collector) as stage:
        body = chat(messages=[{"role": "user", "content": SECRET}], user=SECRET)
        await ask(stage.app.port, request(CHAT, body, f"authorization: Bearer {SECRET}", f"cookie: {SECRET}"))
        spans = await whole(collector)
    assert SECRET not in repr(spans) + repr(collector.resource)
    assert stage.a.requests and SECRET.encode() in stage.a.requests[-1].body


async def test_words_that_no_encoding_can_say_spoil_no_batch(collector: Collector) -> None:
    async with traced(collector) as stage:
        body = b'{"model": "\\ud800", "messages": []}'
        assert (await ask(stage.app.port, request(CHAT, body))).status == 200
        spans = await whole(collector)
    assert one(spans, SERVER).attributes["gen_ai.request.model"] == "?"
    assert len(spans) == 2


# ---------------------------------------------------------------- the trace of the client


async def test_a_clients_trace_is_continued_to_the_engine_with_its_state(collector: Collector) -> None:
    async with traced(collector) as stage:
        await stage.ask(f"traceparent: {SAMPLED}", "tracestate: vendor=value", "baggage: a=b")
        spans = await whole(collector)
        got = stage.a.requests[-1]
    server, attempt = one(spans, SERVER), one(spans, CLIENT)
    assert (server.trace_id, server.parent_id, server.state) == (TRACE, PARENT, "vendor=value")
    carried = [value for name, value in got.headers if name.lower() == "traceparent"]
    assert len(carried) == 1
    assert re.fullmatch(f"00-{TRACE}-{attempt.span_id}-0[13]", carried[0])
    assert [value for name, value in got.headers if name.lower() == "tracestate"] == ["vendor=value"]
    assert got.header("baggage") == "a=b"


async def test_each_attempt_carries_its_own_span(collector: Collector) -> None:
    async with traced(collector, a=fail) as stage:
        await stage.ask()
        await whole(collector)
        said = [engine.requests[-1].header("traceparent") or "" for engine in (stage.a, stage.b)]
    ids = {span.attributes["crossover.role"]: span.span_id for span in collector.spans if span.kind == CLIENT}
    assert [each.split("-")[2] for each in said] == [ids["speculative"], ids["baseline"]]


async def test_a_client_that_samples_nothing_is_not_traced_and_its_trace_still_goes_on(collector: Collector) -> None:
    async with traced(collector) as stage:
        await stage.ask(f"traceparent: {UNSAMPLED}")
        carried = stage.a.requests[-1].header("traceparent") or ""
        await stage.ask()
        spans = await whole(collector)
    assert carried.startswith(f"00-{TRACE}-") and PARENT not in carried and carried.endswith("-00")
    assert TRACE not in {span.trace_id for span in spans}


@pytest.mark.parametrize(
    "odd",
    [
        "traceparent: nonsense",
        f"traceparent: 00-{'0' * 32}-{PARENT}-01",
        f"traceparent: {SAMPLED}\r\ntraceparent: {SAMPLED}",
        "traceparent: \xff\xfe",
        f"traceparent: {SAMPLED}\r\ntracestate: {'=' * 600}",
    ],
)
async def test_an_odd_trace_of_a_client_breaks_nothing_and_goes_no_further(collector: Collector, odd: str) -> None:
    async with traced(collector) as stage:
        said = await stage.ask(odd)
        await whole(collector)
        got = stage.a.requests[-1]
    assert said.status == 200
    carried = [value for name, value in got.headers if name.lower() == "traceparent"]
    assert len(carried) == 1 and re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", carried[0])
    assert "====" not in repr(got.headers)


# ---------------------------------------------------------------- where they go


async def test_the_service_and_the_headers_are_as_configured(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("# of the collector\n\nX-Key: KEYMARK with spaces\n")
    chosen = {"service_name": "edge", "headers_file": str(tmp_path / "headers")}
    async with traced(collector, traces=chosen) as stage:
        await stage.ask()
        await whole(collector)
        assert "KEYMARK" not in stage.app.effective()
    assert collector.resource["service.name"] == "edge"
    assert collector.headers[0]["x-key"] == "KEYMARK with spaces"
    assert collector.headers[0]["content-type"] == "application/x-protobuf"


async def test_standard_variables_hold_where_nothing_is_configured(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1/traces"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of-variables")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named-by-variable")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    async with traced(collector, traces={"endpoint": None}) as stage:
        await stage.ask()
        await whole(collector)
    assert collector.resource["service.name"] == "named-by-variable"
    assert collector.resource["deployment.environment"] == "test"
    assert collector.headers[0]["x-key"] == "of-variables"


async def test_without_any_name_it_is_crossover(collector: Collector) -> None:
    async with traced(collector) as stage:
        await stage.ask()
        await whole(collector)
    assert collector.resource["service.name"] == "crossover"


async def test_a_ratio_of_none_traces_only_whom_the_client_traces(collector: Collector) -> None:
    async with traced(collector, traces={"sample_ratio": 0.0}) as stage:
        await stage.ask()
        await stage.ask(f"traceparent: {SAMPLED}")
        spans = await whole(collector)
    assert {span.trace_id for span in spans} == {TRACE}


async def test_what_is_left_is_sent_at_a_stop(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    async with traced(collector) as stage:
        await stage.ask()
        assert not collector.spans
    assert {span.kind for span in collector.spans} == {SERVER, CLIENT}


# ---------------------------------------------------------------- a collector that is away


def nobody() -> str:
    """The url of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces"


@pytest.mark.parametrize("status", [400, 307])  # not tried again, unlike one that is away for a moment
async def test_a_dead_collector_is_told_once_and_requests_are_served(
    collector: Collector, capfdbinary: pytest.CaptureFixture[bytes], status: int
) -> None:
    collector.status = status
    async with traced(collector, log={"level": "warning"}) as stage:
        for sent in range(1, 4):
            assert (await stage.ask()).status == 200
            await until(lambda sent=sent: len(collector.headers) >= sent)  # type: ignore[misc]
        collector.status = 200
        await stage.ask()
        await whole(collector)
    said = capfdbinary.readouterr()
    assert said.out.count(b"the collector of traces does not take the spans") == 1
    assert said.out.count(b"the collector of traces takes the spans again") == 1
    assert said.err == b""


async def test_a_stop_does_not_wait_for_a_collector_that_is_away(collector: Collector) -> None:
    collector.url = nobody()
    async with asyncio.timeout(8.0):  # the library's own patience is ten seconds a batch, and half a minute in all
        async with traced(collector) as stage:
            assert (await stage.ask()).status == 200


async def test_spans_that_are_not_taken_are_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    async with traced(collector) as stage:
        collector.gate.clear()
        for _ in range(12):
            await stage.ask()
        collector.gate.set()
    # Two spans of each of those that were on their way, and of a queue of those that came last.
    assert 8 <= len(collector.spans) <= 16


# ---------------------------------------------------------------- off


async def test_off_headers_pass_untouched_and_a_plain_trip_carries_every_request() -> None:
    async with staged() as stage:
        await stage.ask(f"traceparent: {SAMPLED}", "tracestate: vendor=value")
        got = stage.a.requests[-1]
        assert (got.header("traceparent"), got.header("tracestate")) == (SAMPLED, "vendor=value")
        assert stage.app.relay.trip is Trip


async def test_the_variable_that_turns_opentelemetry_off_turns_this_off(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    async with traced(collector) as stage:
        await stage.ask(f"traceparent: {SAMPLED}")
        assert stage.a.requests[-1].header("traceparent") == SAMPLED
        assert stage.app.relay.trip is Trip


def test_off_nothing_of_the_library_is_loaded() -> None:
    code = "import sys, proxy.app, proxy.serve; names = ('opentelemetry', 'google', 'proxy.trace'); "
    code += "print([name for name in sys.modules if name.startswith(names)])"
    assert printed(code).strip() == "[]"


async def test_a_start_without_the_packages_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "proxy.traced", raising=False)
    monkeypatch.setitem(sys.modules, "proxy.traces", None)
    chosen = settings("http://127.0.0.1:1", "http://127.0.0.1:2", traces={"enabled": True})
    with pytest.raises(ConfigError, match=r"crossover-proxy\[otel\]"):
        async with running(chosen):
            pass


@pytest.mark.parametrize("key", ["enabled", "endpoint", "sample_ratio", "service_name", "headers_file"])
def test_a_change_takes_a_restart(key: str) -> None:
    assert f"traces.{key}" in RESTART_KEYS


def test_a_wrong_endpoint_is_refused_without_being_quoted() -> None:
    with pytest.raises(InvalidConfig) as refused:
        settings("http://a:1", "http://b:2", traces={"endpoint": f"http://user:{SECRET}@host/v1/traces"})
    assert "headers_file" in str(refused.value) and SECRET not in str(refused.value)
