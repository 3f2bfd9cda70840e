"""One line of a log to the request it tells of, or to why it tells of none. Files are opened in files.py.

The event is the one that logs/requests.py writes. A log mixes many others, and whoever collects it puts its own words
around: what stands before the first brace is passed over, and the wrappings of Docker and journald are taken off.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from proxy.lab.simulation.traces import MAX_AT_S
from proxy.model import Outcome, Policy, Reason, Role, Traits, Usage

EVENT, DROPPED, ENGINE = "request_settled", "log_lines_dropped", "engine_seen"

# Where Docker's own files and journald, as JSON, keep the line that was written.
_WRAPPED_IN = ("log", "MESSAGE")

# No request takes longer than a month, and no engine serves more tokens or sequences of one: beyond, a number is a
# mistake, and sums of such would leave the range of a float.
MAX_DURATION_S = 31 * 86400.0
MAX_TOKENS = 10_000_000
MAX_WEIGHT = 4096
_MAX_BYTES = 1 << 40
_MAX_RUNNING = 100_000


class Skip(StrEnum):
    """Why a line tells of no request."""

    BLANK = "blank"
    NO_JSON = "no JSON"
    OTHER_EVENT = "other events"
    INCOMPLETE = "settled requests that lack a field or have an odd one"
    TOO_LONG = "longer than any line of this log"


class InForce(NamedTuple):
    """What decided a request; None where its policy goes by no such number."""

    policy: Policy
    enter_at: int | None
    leave_at: int | None


class Settled(NamedTuple):
    """A request as its line tells it; instants in unix seconds. `told` is None where no backend was decided on;
    `sampled` says that others like it were left out of the log."""

    at_s: float
    duration_s: float
    queue_s: float
    ttft_s: float | None
    tpot_s: float | None
    route: str
    traits: Traits
    outcome: Outcome
    status: int
    role: Role | None
    reason: Reason | None
    told: InForce | None
    usage: Usage
    sampled: bool = False


class Dropped(NamedTuple):
    """The proxy's own word that it could not write so many lines."""

    lines: int


class EngineSeen(NamedTuple):
    """What an engine said when the proxy first saw it: the sequences that it runs at most."""

    role: Role
    max_running: int


def read_event(line: bytes) -> Settled | Dropped | EngineSeen | Skip:
    """What a line tells; total: whatever stands in it, nothing is raised."""
    if not line.strip():
        return Skip.BLANK
    fields = _object_in(line)
    if fields is None:
        return Skip.NO_JSON
    if "event" not in fields:
        inner = next((fields[name] for name in _WRAPPED_IN if isinstance(fields.get(name), str)), None)
        fields = {} if inner is None else _object_in(inner.encode(errors="replace")) or {}
    try:
        return _told(fields)
    except (KeyError, ValueError, OverflowError):
        return Skip.INCOMPLETE


def _object_in(line: bytes) -> dict[str, Any] | None:
    place = line.find(b'{"')
    try:
        value = orjson.loads(line[place:]) if place >= 0 else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _told(fields: dict[str, Any]) -> Settled | Dropped | EngineSeen | Skip:
    event = fields.get("event")
    if event == EVENT:
        return _settled(fields)
    if event == DROPPED:
        return Dropped(_whole(fields, "lines", 1 << 50))
    if event == ENGINE and fields.get("max_running_requests") is not None:
        return EngineSeen(Role(fields["role"]), _whole(fields, "max_running_requests", _MAX_RUNNING, least=1))
    return Skip.OTHER_EVENT


def _settled(fields: dict[str, Any]) -> Settled:
    duration_s = _seconds(fields, "duration_s")
    weight = _whole(fields, "weight", MAX_WEIGHT, least=1)
    role = Role(fields["role"]) if "role" in fields else None
    reason = Reason(fields["reason"]) if "reason" in fields else None
    traits = Traits(
        weight=weight,
        stream=fields.get("stream") is True,
        prompt_bytes=_whole(fields, "body_bytes", _MAX_BYTES),
        constrained=fields.get("constrained") is True,
        session=fields.get("session") is True,
        # What a client wished is seen where it was granted alone.
        asked=role if reason is Reason.HEADER else None,
        max_tokens=_whole(fields, "max_tokens", MAX_TOKENS) or None if "max_tokens" in fields else None,
    )
    return Settled(
        at_s=_unix_s(fields["timestamp"]) - duration_s,
        duration_s=duration_s,
        queue_s=min(_seconds(fields, "queue_s"), duration_s),
        ttft_s=_seconds(fields, "ttft_s") if "ttft_s" in fields else None,
        tpot_s=_seconds(fields, "tpot_s") if "tpot_s" in fields else None,
        route=_text(fields, "route"),
        traits=traits,
        outcome=Outcome(fields["outcome"]),
        status=_whole(fields, "status", 999),
        role=role,
        reason=reason,
        told=_in_force(fields) if "policy" in fields else None,
        usage=Usage(*(_whole(fields, name, MAX_TOKENS) if name in fields else 0 for name in _USAGE)),
        sampled="sample" in fields,
    )


_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens")


def _in_force(fields: dict[str, Any]) -> InForce:
    bounds = (_whole(fields, name, 1 << 40) if name in fields else None for name in ("enter_at", "leave_at"))
    return InForce(Policy(fields["policy"]), *bounds)


def _unix_s(said: object) -> float:
    if not isinstance(said, str):
        raise ValueError("no instant")
    at = datetime.fromisoformat(said)
    at_s = (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    if not 0.0 <= at_s <= MAX_AT_S:
        raise ValueError("of no clock that is right")
    return at_s


def _seconds(fields: dict[str, Any], name: str) -> float:
    value = fields[name]
    if type(value) not in (int, float) or not 0 <= value <= MAX_DURATION_S:
        raise ValueError(name)
    return float(value)


def _whole(fields: dict[str, Any], name: str, most: int, *, least: int = 0) -> int:
    value = fields[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(name)
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(name)
    return value
