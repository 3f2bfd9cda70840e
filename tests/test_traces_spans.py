"""Spans of whatever may become of a request: sayable in protobuf, within their request, by the conventions' names."""

from typing import Any

import pytest
from fakes.told import DECISIONS, FACTS
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes

from proxy.model import Decision, Dialect, RequestFacts
from proxy.traces import Trace, export
from proxy.traces.spans import spans
from proxy.traces.trace import Ended

RESOURCE, SCOPE = Resource({"service.name": "crossover"}), InstrumentationScope("crossover", "1")
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MODULES = (gen_ai_attributes, http_attributes, server_attributes, error_attributes)
CONVENTIONS = {value for module in MODULES for value in vars(module).values() if isinstance(value, str)}


def ended(facts: RequestFacts, dialect: Dialect = Dialect.CHAT, decisions: tuple[Decision, ...] = ()) -> Ended:
    trace = Trace(ALWAYS_ON, "POST /", dialect, {b"traceparent": PARENT}, 10.0)
    trace.waited(10.1, 10.2)
    for number, decision in enumerate(decisions, 1):
        trace.attempt(10.0 + number, number, decision, "sglang", ("127.0.0.1", 30000))
        if number < len(decisions):
            trace.failed(10.5 + number, "backend_broken", 500)
    found = trace.ended(20.0, facts)
    assert found is not None
    return found


@given(FACTS, st.sampled_from(Dialect), st.lists(DECISIONS, max_size=2), st.none() | st.text())
def test_whatever_happened_can_be_said_in_protobuf_and_has_no_odd_number(
    facts: RequestFacts, dialect: Dialect, decisions: list[Decision], model: str | None
) -> None:
    facts = facts._replace(traits=facts.traits._replace(model=model))
    made = list(spans(ended(facts, dialect, tuple(decisions)), RESOURCE, SCOPE))
    assert encode_spans(made).SerializeToString()
    assert len(made) == 2 + len(decisions)
    for span in made:
        odd = {name: value for name, value in (span.attributes or {}).items() if not _is_plain(value)}
        assert not odd
        assert made[0].start_time <= span.start_time <= span.end_time <= made[0].end_time  # type: ignore[operator]
    assert len({span.context.span_id for span in made}) == len(made)
    assert {span.context.trace_id for span in made} == {0x0AF7651916CD43DD8448EB211C80319C}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and abs(value) < float("inf"))


@given(FACTS, DECISIONS)
def test_every_name_is_one_of_the_conventions_or_our_own(facts: RequestFacts, decision: Decision) -> None:
    for span in spans(ended(facts, decisions=(decision,)), RESOURCE, SCOPE):
        for name in span.attributes or {}:
            assert name in CONVENTIONS or name.startswith("crossover."), name


def test_what_is_not_sampled_makes_no_span_and_its_trace_goes_on() -> None:
    trace = Trace(ALWAYS_OFF, "POST /", Dialect.CHAT, {b"traceparent": PARENT}, 10.0)
    decision = Decision(None, None, None, None)  # type: ignore[arg-type]
    line = trace.attempt(11.0, 1, decision, "sglang", ("h", 1))
    assert line.startswith(b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-") and line.endswith(b"-00\r\n")
    assert trace.ended(20.0, None) is None  # type: ignore[arg-type]


@given(st.lists(FACTS, max_size=5))
def test_the_thread_that_serves_requests_may_go_on_after_each_request_of_a_batch(batch: list[RequestFacts]) -> None:
    let_go: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export.time, "sleep", let_go.append)
        made = export._Made([(ended(facts), RESOURCE, SCOPE) for facts in batch])
        assert len(list(made)) == len(made) == 2 * len(batch)
    assert let_go == [0] * len(batch)
