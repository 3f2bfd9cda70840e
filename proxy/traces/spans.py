"""A request that has ended as spans by the conventions of OpenTelemetry: itself, its waits for room, its attempts.

It is made here and not by a tracer, step by step: that takes five times as long, on the thread that serves requests.
How spans leave is in export.py.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from proxy.model import Decision, Dialect, Outcome, RequestFacts, Traits
from proxy.traces.trace import Attempt, Ended

# What the conventions call an operation, by the wire form of its answer.
_OPERATIONS = {
    Dialect.CHAT: "chat",
    Dialect.COMPLETIONS: "text_completion",
    Dialect.RESPONSES: "chat",
    Dialect.MESSAGES: "chat",
    Dialect.GENERATE: "text_completion",
    Dialect.OLLAMA: "chat",
}
_FINE, _FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
Attributes = dict[str, str | bool | int | float]
# Name, context, parent and kind of a span, and the rest of it by name.
Made = tuple[str, SpanContext, SpanContext | None, SpanKind, dict[str, Any]]


def spans(ended: Ended, resource: Resource, scope: InstrumentationScope) -> Iterator[ReadableSpan]:
    """The spans of one request, its own first."""
    for name, context, parent, kind, more in (_server(ended), *_queues(ended), *_attempts(ended)):
        yield ReadableSpan(name, context, parent, resource, kind=kind, instrumentation_scope=scope, **more)


def _server(ended: Ended) -> Made:
    facts, failure = ended.facts, _failure(ended.facts)
    told: Attributes = {"http.request.method": facts.method, "http.route": facts.route}
    told |= {**_asked(ended.dialect, facts.traits), **_answered(facts), **_told(facts)}
    if failure is not None:
        told["error.type"] = failure
    # A client's own error is none of the server's.
    broken = facts.status >= 500 or facts.outcome is Outcome.FAILED_AFTER_COMMIT
    more = {
        "attributes": told,
        "events": [Event("crossover.decided", _decided(each.decision), each.began_ns) for each in ended.attempts],
        "status": _FAILED if broken else _FINE,
        "start_time": ended.began_ns,
        "end_time": ended.ended_ns,
    }
    return f"{facts.method} {facts.route}", ended.context, ended.parent, SpanKind.SERVER, more


def _queues(ended: Ended) -> Iterator[Made]:
    context = ended.context
    for number, (began_ns, ended_ns) in enumerate(ended.waits, 1):
        # Nobody was told this id, so that any will do that no other span of the trace has.
        of = _child(context, context.span_id ^ number)
        yield "queue", of, context, SpanKind.INTERNAL, {"start_time": began_ns, "end_time": ended_ns}


def _attempts(ended: Ended) -> Iterator[Made]:
    asked, failure = _asked(ended.dialect, ended.facts.traits), _failure(ended.facts)
    words = asked.get("gen_ai.operation.name"), asked.get("gen_ai.request.model")
    name = " ".join(str(word) for word in words if word) or "request"
    for each in ended.attempts:
        lasted = each.ended_ns is None  # to the end of the request, whose end is then its own
        more = {
            "attributes": {**asked, **_sent(each), **_came(each, ended, failure)},
            "events": _first(each, ended),
            "status": _FAILED if (failure if lasted else each.failure) else _FINE,
            "start_time": each.began_ns,
            "end_time": ended.ended_ns if lasted else each.ended_ns,
        }
        yield name, _child(ended.context, each.span_id), ended.context, SpanKind.CLIENT, more


def _failure(facts: RequestFacts) -> str | None:
    return facts.failure or (str(facts.status) if facts.status >= 500 else None)


def _child(context: SpanContext, span_id: int) -> SpanContext:
    return SpanContext(context.trace_id, span_id, False, context.trace_flags, context.trace_state)


def _asked(dialect: Dialect, traits: Traits) -> Attributes:
    told: Attributes = {"gen_ai.request.stream": traits.stream}
    if (operation := _OPERATIONS.get(dialect)) is not None:
        told["gen_ai.operation.name"] = operation
    if traits.model:
        told["gen_ai.request.model"] = _sayable(traits.model)
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


def _sent(attempt: Attempt) -> Attributes:
    return {
        "gen_ai.provider.name": attempt.engine,
        "server.address": attempt.address[0],
        "server.port": attempt.address[1],
        "crossover.attempt": attempt.number,
        **_decided(attempt.decision),
    }


def _came(attempt: Attempt, ended: Ended, failure: str | None) -> Attributes:
    """What an attempt brought: its failure, or the answer that went to the client."""
    if attempt.ended_ns is not None:
        told: Attributes = {} if attempt.status is None else {"http.response.status_code": attempt.status}
        return told if attempt.failure is None else {**told, "error.type": attempt.failure}
    told = _answered(ended.facts)
    if failure is not None:
        told["error.type"] = failure
    if ended.first_ns is not None:
        told["gen_ai.response.time_to_first_chunk"] = max(0, ended.first_ns - attempt.began_ns) / 1e9
    return told


def _first(attempt: Attempt, ended: Ended) -> list[Event]:
    if attempt.ended_ns is not None or ended.first_ns is None:
        return []
    return [Event("crossover.first_token", {}, ended.first_ns)]


def _decided(decision: Decision) -> Attributes:
    role = "none" if decision.role is None else decision.role.value
    return {"crossover.role": role, "crossover.reason": decision.reason.value}


def _told(facts: RequestFacts) -> Attributes:
    """What the log line says of the request and of its last decision, by the same names."""
    told: Attributes = {
        "crossover.request_id": _sayable(facts.request_id),
        "crossover.outcome": facts.outcome.value,
        "crossover.weight": facts.traits.weight,
        "crossover.attempts": facts.attempts,
        "crossover.queue_s": facts.queue_s,
        "crossover.overhead_s": facts.overhead_s,
    }
    if facts.first_failure is not None:
        told["crossover.first_failure"] = facts.first_failure
    if facts.client_name is not None:
        told["crossover.client_name"] = _sayable(facts.client_name)
    if facts.decision is None:
        return told
    because = facts.decision.because
    numbers = because._asdict()
    del numbers["costs"]
    counts = {f"crossover.{role}_in_flight": numbers.pop(f"{role}_in_flight") for role in ("speculative", "baseline")}
    numbers |= {"speculative_cost_s": because.speculative_cost_s, "baseline_cost_s": because.baseline_cost_s}
    said = {f"crossover.{name}": value for name, value in numbers.items() if _says(value)}
    return {**told, **_decided(facts.decision), **counts, **said}


def _says(value: object) -> bool:
    """Whether a number or a word says something, as in the log line; infinite ones have no place in a collector."""
    return bool(value) and not (isinstance(value, float) and not isfinite(value))


def _sayable(text: str) -> str:
    """A client's words as UTF-8 can say them: half of a pair of surrogates would spoil everybody's batch."""
    return text.encode("utf-8", "replace").decode()
