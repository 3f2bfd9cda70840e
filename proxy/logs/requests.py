"""The line of one request, which is most of all lines: as JSON it is made here, past structlog's processors.

As text, for people, it goes the way of every other line. What may stand in a line is the same on both ways, and so is
what is escaped.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Any

import orjson
from structlog.typing import FilteringBoundLogger

from proxy.logs.controls import escape_controls, is_harmless
from proxy.logs.keep import Keep
from proxy.model import Decision, Outcome, RequestFacts, Traits

EVENT = "request_settled"
# Durations are logged in millionths, smoothed counts in hundredths. Multiplied, rounded and divided, a number takes
# half the time of `round` with digits.
_MILLION, _HUNDRED = 1e6, 1e2
_FINISHED = Outcome.FINISHED
# How orjson tells an instant in UTC: with a Z behind it, as structlog does.
_AS_Z = orjson.OPT_UTC_Z


class Way:
    """How the lines of requests go, as `configure` has set it: none, straight to `write` as JSON, or by a logger; how
    many of them, and what is left out."""

    __slots__ = ("keep", "silent", "write")

    def __init__(self) -> None:
        self.silent = False
        self.write: Callable[[bytes], None] | None = None
        self.keep: Keep | None = None  # of everything


way = Way()


def request_settled(logger: FilteringBoundLogger, facts: RequestFacts) -> None:
    """The line of one request."""
    if way.silent:
        return
    sample = None
    if (keep := way.keep) is not None:
        if keep.share < 1.0 and _went_well(facts):
            if not keep.writes(facts.request_id):
                return
            sample = keep.share
        left_out: dict[str, Any] = dict.fromkeys(keep.redacted)
        facts = facts._replace(**left_out)
    if way.write is None:
        fields = request_fields(facts)
        logger.info(EVENT, **(fields if sample is None else {**fields, "sample": sample}))
        return
    way.write(request_line(facts, datetime.now(UTC), sample))


def _went_well(facts: RequestFacts) -> bool:
    """Whether there is nothing to look into: answered to the end, at the first attempt, and no refusal."""
    return facts.outcome is _FINISHED and facts.status < 400 and facts.attempts == 1 and facts.failure is None


def request_line(facts: RequestFacts, at: datetime, sample: float | None = None) -> bytes:
    """The line as JSON, its end included. `at` is in UTC, told in ISO 8601, without a fraction where it has none;
    `sample` is the share of such lines that is kept, where that is not all of them."""
    fields = request_fields(facts)
    if sample is not None:
        fields["sample"] = sample
    fields["event"] = EVENT
    fields["level"] = "info"
    fields["timestamp"] = at
    try:
        line = orjson.dumps(fields, option=_AS_Z)
        if is_harmless(line):
            # A copy, which is as long as the line: orjson's own is cut from a larger piece, and to keep many of those
            # until the thread has written them costs more than everything else here.
            return line + b"\n"
    except orjson.JSONEncodeError:  # half of a pair of surrogates: escaped, it can be told
        pass
    return orjson.dumps(escape_controls(None, "info", fields), option=_AS_Z) + b"\n"


def request_fields(facts: RequestFacts) -> dict[str, Any]:
    """The fields of a request's line, without those that say nothing. Durations in seconds, to the microsecond."""
    traits = facts.traits
    fields: dict[str, Any] = {"request_id": facts.request_id}
    if facts.trace_id is not None:
        fields["trace_id"] = facts.trace_id
    if facts.client is not None:
        fields["client"] = facts.client
    if facts.client_name is not None:
        fields["client_name"] = facts.client_name
    fields["method"] = facts.method
    fields["route"] = facts.route
    fields["status"] = facts.status
    outcome = facts.outcome
    fields["outcome"] = outcome._value_
    if outcome is not _FINISHED or facts.first_failure is not None:
        _tell_failures(fields, facts)
    fields["weight"] = traits.weight
    fields["stream"] = traits.stream
    fields["body_bytes"] = traits.prompt_bytes
    _tell_wishes(fields, traits)
    fields["attempts"] = facts.attempts
    if facts.decision is not None:
        _tell_decision(fields, facts.decision)
    fields["duration_s"] = round(facts.duration_s * _MILLION) / _MILLION
    fields["queue_s"] = round(facts.queue_s * _MILLION) / _MILLION
    fields["overhead_s"] = round(facts.overhead_s * _MILLION) / _MILLION
    if facts.ttft_s is not None:
        fields["ttft_s"] = round(facts.ttft_s * _MILLION) / _MILLION
    if facts.tpot_s is not None:
        fields["tpot_s"] = round(facts.tpot_s * _MILLION) / _MILLION
    _tell_tokens(fields, *facts.usage)
    return fields


def _tell_failures(fields: dict[str, Any], facts: RequestFacts) -> None:
    if facts.failure is not None:
        fields["failure"] = facts.failure
    if facts.failure_status is not None:
        fields["failure_status"] = facts.failure_status
    if facts.first_failure is not None:
        fields["first_failure"] = facts.first_failure
    if facts.first_failure_status is not None:
        fields["first_failure_status"] = facts.first_failure_status
    if facts.backend_out is not None:
        fields["backend_out"] = facts.backend_out
    if facts.silent_s is not None:
        fields["silent_s"] = round(facts.silent_s * _MILLION) / _MILLION


def _tell_wishes(fields: dict[str, Any], traits: Traits) -> None:
    """What rules and costs look at besides, so that the same traffic can be decided anew (lab/replay)."""
    if traits.constrained:
        fields["constrained"] = True
    if traits.session:
        fields["session"] = True
    if traits.max_tokens is not None:
        fields["max_tokens"] = traits.max_tokens


def _tell_decision(fields: dict[str, Any], decision: Decision) -> None:
    # Taken apart at once: as many looks by name take three times as long.
    role, reason, _, because = decision
    policy, speculative, baseline, smoothed, enter_at, leave_at, regime, failures, costs = because[:9]
    if role is not None:
        fields["role"] = role._value_
    fields["reason"] = reason._value_
    fields["policy"] = policy._value_
    if regime is not None:
        fields["regime"] = regime._value_
    fields["speculative_in_flight"] = speculative
    fields["baseline_in_flight"] = baseline
    if smoothed is not None:
        fields["smoothed"] = round(smoothed * _HUNDRED) / _HUNDRED
    if enter_at is not None:
        fields["enter_at"] = enter_at
    if leave_at is not None:
        fields["leave_at"] = leave_at
    if failures:
        fields["recent_failures"] = failures
    if costs is not None:
        _tell_costs(fields, *costs)
    if (more := because[9:]) != _NO_MORE:
        _tell_more(fields, *more)


# Neither backend has anything of the prompt cached, the curves are as measured, and neither is out.
_NO_MORE = (0, 0, False, None, None)


def _tell_more(  # noqa: PLR0917 - as `_tell_decision` takes it apart
    fields: dict[str, Any],
    speculative_cached: int,
    baseline_cached: int,
    learned: bool,
    speculative_out: str | None,
    baseline_out: str | None,
) -> None:
    if speculative_cached or baseline_cached:
        fields["speculative_cached"], fields["baseline_cached"] = speculative_cached, baseline_cached
    if learned:
        fields["learned"] = True
    if speculative_out is not None:
        fields["speculative_out"] = speculative_out
    if baseline_out is not None:
        fields["baseline_out"] = baseline_out


def _tell_costs(
    fields: dict[str, Any], speculative_s: float, baseline_s: float, extrapolated: bool, failures: int
) -> None:
    # Infinite where demand is more than a backend was measured to give, which no JSON can tell.
    if speculative_s < inf:
        fields["speculative_cost_s"] = round(speculative_s * _MILLION) / _MILLION
    if baseline_s < inf:
        fields["baseline_cost_s"] = round(baseline_s * _MILLION) / _MILLION
    if extrapolated:
        fields["extrapolated"] = True
    if failures:
        fields["baseline_failures"] = failures


def _tell_tokens(fields: dict[str, Any], prompt: int, completion: int, cached: int) -> None:
    if prompt:
        fields["prompt_tokens"] = prompt
    if completion:
        fields["completion_tokens"] = completion
    if cached:
        fields["cached_tokens"] = cached
