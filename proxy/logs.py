"""Facts to log lines: JSON for machines, text for people; one line a request with the numbers of its decision.

Nothing of a request's body, headers or query is ever logged; a client's own words appear only as its request id, which
is checked to be visible ASCII. An exception is logged as its type and the lines it came through: its message, or the
values of variables, may be a prompt. Lines may be lost, requests never: a server lets a thread write (`written_aside`),
so that whoever does not read them holds nothing up.
"""

import asyncio
import contextlib
import logging
import os
import select
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, BinaryIO, Literal, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from proxy.model import Change, CircuitState, RequestFacts

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Innermost lines of a failure that are logged: from aiohttp's call of ours down to a library's.
MAX_FRAMES = 12
# Lines that wait for their reader before more are dropped: seconds of a busy proxy, a few megabytes.
MAX_WAITING_LINES = 10_000
# Lines in one write: about what a pipe holds.
MAX_LINES_A_WRITE = 100
# A proxy that ends waits this long for the reader of its last lines.
LAST_LINES_WITHIN_S = 1.0
_HARMLESS = frozenset({int, float, bool})


def configure(style: Literal["json", "text"], level: str) -> FilteringBoundLogger:
    """Set up logging to standard output and return the logger. Called again, it changes every logger that it gave."""
    quiet_libraries()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    common: list[Processor] = [structlog.processors.add_log_level, stamp, name_failure, escape_controls]
    processors: list[Processor] = [*common, *_renderers(style)]
    output: Any = _Direct()
    if _asides:
        output = _asides[-1]
        output.notice = _notice(processors)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(cast(BinaryIO, output)),
        cache_logger_on_first_use=False,
    )
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def _renderers(style: Literal["json", "text"]) -> list[Processor]:
    if style == "json":
        return [structlog.processors.JSONRenderer(_to_json)]
    # A process started with its standard output closed has None there.
    colours = sys.stdout is not None and sys.stdout.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=18), _encoded]


def _encoded(_: WrappedLogger, __: str, line: Any) -> bytes:
    return cast(str, line).encode(errors="backslashreplace")


def _notice(processors: list[Processor]) -> Callable[[int], bytes]:
    """The line that tells how many were dropped. Written at every level: a gap in the log is never silent."""

    def line(dropped: int) -> bytes:
        event: Any = {"event": "log_lines_dropped", "lines": dropped}
        for each in processors:
            event = each(None, "warning", event)
        return cast(bytes, event) + b"\n"

    return line


class _Direct:
    """Standard output, written at once. Its failure (its reader has gone, the disk is full) loses lines."""

    def __init__(self) -> None:
        self._stream = None if sys.stdout is None else sys.stdout.buffer

    def write(self, line: bytes) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.write(line)

    def flush(self) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):
                self._stream.flush()


@contextlib.contextmanager
def written_aside() -> Iterator["LineWriter"]:
    """While it lasts, loggers that `configure` sets up leave their lines to a thread. At the end the last lines get
    LAST_LINES_WITHIN_S to be read."""
    writer = LineWriter(_descriptor())
    _asides.append(writer)
    try:
        yield writer
    finally:
        _asides.remove(writer)
        writer.close(LAST_LINES_WITHIN_S)


def _descriptor() -> int | None:
    # Asked of the stream: number 1 of a process that was started without standard output may be one of its sockets.
    if sys.stdout is None:
        return None
    try:
        sys.stdout.flush()
        return cast(int, sys.stdout.fileno())
    except (OSError, ValueError):
        return None


class LineWriter:
    """Writes lines to a file descriptor from a thread of its own; without a descriptor, nowhere.

    Up to `max_lines` wait, and further ones are dropped until there is room; what `notice` makes of their number is
    then written in their place. Lines whose write fails are lost.
    """

    def __init__(self, descriptor: int | None, *, max_lines: int = MAX_WAITING_LINES) -> None:
        self.notice: Callable[[int], bytes] = b"%d lines dropped\n".__mod__
        self.dropped = 0
        self._descriptor = descriptor
        self._max_lines = max_lines
        self._lines: deque[bytes] = deque()
        self._closed = False
        self._changed = threading.Condition()
        # A daemon, and past the buffers of `sys.stdout`: neither can keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="log lines", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines that wait, without those being written."""
        return len(self._lines)

    def write(self, line: bytes) -> None:
        """Leave a line, its end included, to be written; returns at once. After `close` it is lost."""
        with self._changed:
            if self._closed:
                return
            if len(self._lines) >= self._max_lines:
                self.dropped += 1
                return
            self._lines.append(line)
            self._changed.notify()

    def flush(self) -> None:
        """Nothing: what a logger calls after each line may not wait."""

    def close(self, within_s: float) -> bool:
        """Take no more lines and give those taken up to `within_s` seconds; whether none is left."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        # A person who interrupts this wait wants what comes after it: the end.
        with contextlib.suppress(KeyboardInterrupt):
            self._thread.join(within_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while lines := self._take():
            with contextlib.suppress(OSError):
                self._put(b"".join(lines))

    def _take(self) -> list[bytes]:
        """The next lines to write, waiting for them; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._closed)
            taken = [self._lines.popleft() for _ in range(min(len(self._lines), MAX_LINES_A_WRITE))]
            if self.dropped:
                self._lines.append(self.notice(self.dropped))
                self.dropped = 0
        return taken

    def _put(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest and self._descriptor is not None:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Whoever shares the terminal or pipe may have made it so.
                room = select.poll()
                room.register(self._descriptor, select.POLLOUT)
                room.poll()


# Those in force, the newest last: logging is set up for the whole process, and anew by each reload.
_asides: list[LineWriter] = []


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
    """The line of one change: `regime_changed` and the like; a warning where a backend is lost."""
    role = change.role.value if change.role is not None else None
    say = logger.warning if change.after in ("down", CircuitState.OPEN) else logger.info
    say(change.kind.value, role=role, before=str(change.before), after=str(change.after))


def request_fields(facts: RequestFacts) -> dict[str, Any]:
    """The fields of a request's line, without those that say nothing. Durations in seconds, to the microsecond."""
    fields: dict[str, Any] = {
        "request_id": facts.request_id,
        "client": facts.client,
        "client_name": facts.client_name,
        "method": facts.method,
        "route": facts.route,
        "status": facts.status,
        "outcome": facts.outcome.value,
        "failure": facts.failure,
        "first_failure": facts.first_failure,
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
        "recent_failures": because.recent_failures or None,
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
