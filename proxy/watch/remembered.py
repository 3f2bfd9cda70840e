"""What became of the latest requests, to be asked for by their ids: their decisions and how they ended.

Nothing is reckoned for a request that nobody asks about: a settled one leaves its facts, and that is all.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from proxy.model import Because, DecisionRecord, RequestFacts

# Half a minute at ten thousand requests a minute, about four megabytes; what is older is in the log.
MAX_SETTLED = 5000


class Remembered:
    """The facts of requests that have ended, oldest first."""

    def __init__(self) -> None:
        self._settled: deque[RequestFacts] = deque(maxlen=MAX_SETTLED)

    def settled(self, facts: RequestFacts) -> None:
        """Keep a request that has ended, without the hashes of its prompt: long ones have thousands."""
        if facts.traits.prefix:
            facts = facts._replace(traits=facts.traits._replace(prefix=()))
        self._settled.append(facts)

    def facts(self, request_id: str) -> RequestFacts | None:
        """The latest request of that id that has ended."""
        return next((facts for facts in reversed(self._settled) if facts.request_id == request_id), None)


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
        "first_failure": facts.first_failure,
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
