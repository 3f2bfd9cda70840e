"""Facts to log lines: JSON for machines, text for people; one line a request with the numbers of its decision.

Nothing of a request's body, headers or query is ever logged; a client's own words appear only as its request id, which
is checked to be visible ASCII. An exception is logged as its type and the lines it came through: its message, or the
values of variables, may be a prompt.
"""

import asyncio
import contextlib
import logging
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, BinaryIO, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from proxy.model import Change, RequestFacts

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Innermost lines of a failure that are logged: from aiohttp's call of ours down to a library's.
MAX_FRAMES = 12
_HARMLESS = frozenset({int, float, bool})


def configure(style: Literal["json", "text"], level: str) -> FilteringBoundLogger:
    """Set up logging to standard output and return the logger. Called again, it changes every logger that it gave."""
    quiet_libraries()
    render: Any = structlog.processors.JSONRenderer(_to_json)
    factory: Any = structlog.BytesLoggerFactory(cast(BinaryIO, _Output(sys.stdout.buffer)))
    if style == "text":
        render = structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty(), pad_event_to=18)
        factory = structlog.PrintLoggerFactory(cast(TextIO, _Output(sys.stdout)))
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, name_failure, escape_controls, render],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


class _Output:
    """A stream whose failure (its reader has gone, the disk is full) loses lines, and never a request."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def write(self, line: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def quiet_libraries() -> None:
    """Keep libraries from logging: aiohttp puts pieces of broken requests into its messages."""
    for name in ("aiohttp", "asyncio"):
        library = logging.getLogger(name)
        library.setLevel(logging.CRITICAL + 1)
        library.handlers = [logging.NullHandler()]
        library.propagate = False


def loop_failed(logger: FilteringBoundLogger) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler for the event loop: what fails where nobody awaits it is logged, not lost."""

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task = context.get("task") or context.get("future")
        name = task.get_name() if isinstance(task, asyncio.Task) else None
        logger.error("task_failed", task=name, exc_info=context.get("exception"))

    return failed


def request_settled(logger: FilteringBoundLogger, facts: RequestFacts) -> None:
    """The line of one request."""
    logger.info("request_settled", **request_fields(facts))


def changed(logger: FilteringBoundLogger, change: Change) -> None:
    """The line of one change: `regime_changed` and the like."""
    role = change.role.value if change.role is not None else None
    logger.info(change.kind.value, role=role, before=str(change.before), after=str(change.after))


def request_fields(facts: RequestFacts) -> dict[str, Any]:
    """The fields of a request's line, without those that say nothing. Durations in seconds, to the microsecond."""
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "client": facts.client,
        "method": facts.method,
        "route": facts.route,
        "status": facts.status,
        "outcome": facts.outcome.value,
        "failure": facts.failure,
        "weight": facts.traits.weight,
        "stream": facts.traits.stream,
        "body_bytes": facts.traits.prompt_bytes,
        "attempts": facts.attempts,
        **_decision_fields(facts),
        "duration_s": round(facts.duration_s, 6),
        "queue_s": round(facts.queue_s, 6),
        "overhead_s": round(facts.overhead_s, 6),
        "ttft_s": None if facts.ttft_s is None else round(facts.ttft_s, 6),
        "tpot_s": None if facts.tpot_s is None else round(facts.tpot_s, 6),
        "prompt_tokens": facts.usage.prompt_tokens or None,
        "completion_tokens": facts.usage.completion_tokens or None,
        "cached_tokens": facts.usage.cached_tokens or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _decision_fields(facts: RequestFacts) -> dict[str, Any]:
    decision = facts.decision
    if decision is None:
        return {}
    because = decision.because
    return {
        "role": decision.role.value if decision.role is not None else None,
        "reason": decision.reason.value,
        "policy": because.policy.value,
        "regime": because.regime.value,
        "speculative_in_flight": because.speculative_in_flight,
        "baseline_in_flight": because.baseline_in_flight,
        "smoothed": round(because.smoothed, 2),
        "enter_at": because.enter_at,
        "leave_at": because.leave_at,
    }


def name_failure(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """`exc_info` becomes `error`, the exception's type, and `trace`, the lines it came through, innermost last."""
    error = event.pop("exc_info", None)
    if isinstance(error, BaseException):
        event["error"] = type(error).__name__
        event["trace"] = _lines(error.__traceback__)
    return event


def _lines(trace: TracebackType | None) -> list[str]:
    frames = list(traceback.walk_tb(trace))[-MAX_FRAMES:]
    return [f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}:{line}" for frame, line in frames]


def escape_controls(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Control characters in values are written as escapes: one event is one line, in text as well."""
    # Most values need nothing: told here and not in `_escaped`, it costs half.
    return {
        name: value if type(value) in _HARMLESS or (type(value) is str and value.isprintable()) else _escaped(value)
        for name, value in event.items()
    }


def _escaped(value: Any) -> Any:
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _to_json(value: Any, **_: Any) -> bytes:
    return orjson.dumps(value, default=str)
