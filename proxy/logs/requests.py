"""The line of one request, which is most of all lines: as JSON it is made here, past structlog's processors.

As text, for people, it goes the way of every other line. What may stand in a line is the same on both ways, and so is
what is escaped.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from structlog.typing import FilteringBoundLogger

from proxy.logs.controls import escape_controls, is_harmless
from proxy.model import Decision, RequestFacts, Usage

EVENT = "request_settled"
# Durations are logged in millionths, smoothed counts in hundredths. Multiplied, rounded and divided, a number takes
# half the time of `round` with digits.
_MILLION, _HUNDRED = 1e6, 1e2
# Fields that are left out where they say nothing.
_OPTIONAL = ("client", "client_name", "failure", "first_failure")


class Way:
    """How the lines of requests go, as `configure` has set it: none, straight to `write` as JSON, or by a logger."""

    __slots__ = ("silent", "write")

    def __init__(self) -> None:
        self.silent = False
        self.write: Callable[[bytes], None] | None = None


class Stamps:
    """Instants as ISO 8601 in UTC; the text of a second is made once."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second, self._text = -1, ""

    def at(self, unix_ns: int) -> str:
        """An instant to the microsecond, without a fraction where it has none."""
        second, rest_ns = divmod(unix_ns, 1_000_000_000)
        if second != self._second:
            self._second, self._text = second, datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        fraction = rest_ns // 1000
        return f"{self._text}.{fraction:06d}Z" if fraction else f"{self._text}Z"


way = Way()
_stamps = Stamps()


def request_settled(logger: FilteringBoundLogger, facts: RequestFacts) -> None:
    """The line of one request."""
    if way.silent:
        return
    if way.write is None:
        logger.info(EVENT, **request_fields(facts))
        return
    way.write(request_line(facts, _stamps.at(time.time_ns())))


def request_line(facts: RequestFacts, timestamp: str) -> bytes:
    """The line as JSON, its end included."""
    fields = request_fields(facts)
    fields["event"] = EVENT
    fields["level"] = "info"
    fields["timestamp"] = timestamp
    try:
        line = orjson.dumps(fields)
        if is_harmless(line):
            # A copy, which is as long as the line: orjson's own is cut from a larger piece, and to keep many of those
            # until the thread has written them costs more than everything else here.
            return line + b"\n"
    except orjson.JSONEncodeError:  # half of a pair of surrogates: escaped, it can be told
        pass
    return orjson.dumps(escape_controls(None, "info", fields)) + b"\n"


def request_fields(facts: RequestFacts) -> dict[str, Any]:
    """The fields of a request's line, without those that say nothing. Durations in seconds, to the microsecond."""
    traits = facts.traits
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "client": facts.client,
        "client_name": facts.client_name,
        "method": facts.method,
        "route": facts.route,
        "status": facts.status,
        "outcome": facts.outcome._value_,
        "failure": facts.failure,
        "first_failure": facts.first_failure,
        "weight": traits.weight,
        "stream": traits.stream,
        "body_bytes": traits.prompt_bytes,
        "attempts": facts.attempts,
    }
    for name in _OPTIONAL:
        if fields[name] is None:
            del fields[name]
    if facts.decision is not None:
        _tell_decision(fields, facts.decision)
    fields["duration_s"] = round(facts.duration_s * _MILLION) / _MILLION
    fields["queue_s"] = round(facts.queue_s * _MILLION) / _MILLION
    fields["overhead_s"] = round(facts.overhead_s * _MILLION) / _MILLION
    if facts.ttft_s is not None:
        fields["ttft_s"] = round(facts.ttft_s * _MILLION) / _MILLION
    if facts.tpot_s is not None:
        fields["tpot_s"] = round(facts.tpot_s * _MILLION) / _MILLION
    _tell_tokens(fields, facts.usage)
    return fields


def _tell_decision(fields: dict[str, Any], decision: Decision) -> None:
    because = decision.because
    if decision.role is not None:
        fields["role"] = decision.role._value_
    fields["reason"] = decision.reason._value_
    fields["policy"] = because.policy._value_
    fields["regime"] = because.regime._value_
    fields["speculative_in_flight"] = because.speculative_in_flight
    fields["baseline_in_flight"] = because.baseline_in_flight
    fields["smoothed"] = round(because.smoothed * _HUNDRED) / _HUNDRED
    fields["enter_at"] = because.enter_at
    fields["leave_at"] = because.leave_at
    if because.recent_failures:
        fields["recent_failures"] = because.recent_failures


def _tell_tokens(fields: dict[str, Any], usage: Usage) -> None:
    if usage.prompt_tokens:
        fields["prompt_tokens"] = usage.prompt_tokens
    if usage.completion_tokens:
        fields["completion_tokens"] = usage.completion_tokens
    if usage.cached_tokens:
        fields["cached_tokens"] = usage.cached_tokens
