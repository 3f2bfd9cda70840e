"""Decisions and how requests ended, as JSON tells them. What is remembered of them is the desk's."""

from collections.abc import Iterable
from typing import Any

from proxy.model import Because, DecisionRecord, RequestFacts


def told_decision(at_s: float, record: DecisionRecord) -> dict[str, Any]:
    """A decision as JSON tells it; `at_s` in unix seconds."""
    decision = record.decision
    return {
        "at_s": round(at_s, 3),
        "request_id": record.request_id,
        "route": record.route,
        "weight": record.weight,
        "attempt": record.attempt,
        "role": decision.role,
        "reason": decision.reason,
        "because": _because(decision.because),
    }


def told_facts(facts: RequestFacts) -> dict[str, Any]:
    """How a request ended, as JSON tells it; durations in seconds."""
    usage = facts.usage
    return {
        "status": facts.status,
        "outcome": facts.outcome,
        "failure": facts.failure,
        "failure_status": facts.failure_status,
        "first_failure": facts.first_failure,
        "first_failure_status": facts.first_failure_status,
        "backend_out": facts.backend_out,
        "silent_s": None if facts.silent_s is None else round(facts.silent_s, 3),
        "attempts": facts.attempts,
        "role": None if facts.decision is None else facts.decision.role,
        "stream": facts.traits.stream,
        "duration_s": round(facts.duration_s, 6),
        "queue_s": round(facts.queue_s, 6),
        "overhead_s": round(facts.overhead_s, 6),
        "ttft_s": None if facts.ttft_s is None else round(facts.ttft_s, 6),
        "tpot_s": None if facts.tpot_s is None else round(facts.tpot_s, 6),
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_tokens,
    }


def told_failure(at_s: float, facts: RequestFacts) -> dict[str, Any]:
    """A request that failed, as JSON tells it; `at_s` is its end in unix seconds."""
    named = {"at_s": round(at_s, 3), "request_id": facts.request_id, "route": facts.route}
    return {**named, "settled": told_facts(facts)}


def of_request(
    request_id: str, decisions: Iterable[tuple[float, DecisionRecord]]
) -> list[tuple[float, DecisionRecord]]:
    """Every attempt's decision of one request, in their order."""
    return [(at_s, record) for at_s, record in decisions if record.request_id == request_id]


def _because(because: Because) -> dict[str, Any]:
    told = because._asdict()
    costs = told.pop("costs")
    told |= {"speculative_cost_s": because.speculative_cost_s, "baseline_cost_s": because.baseline_cost_s}
    if costs is not None:
        told |= {"extrapolated": costs.extrapolated, "baseline_failures": costs.baseline_failures}
    return told
