"""How lines are made: the processors of JSON and of text, the level, and what failures may tell.

The line of a request is in requests.py; where lines go is in output.py.
"""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Literal, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from proxy.logs import requests
from proxy.logs.controls import escape_controls
from proxy.logs.keep import keep
from proxy.logs.output import Direct, Output, aside
from proxy.model import Change, ChangeKind, CircuitState

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
# Innermost lines of a failure that are logged: from aiohttp's call of ours down to a library's.
MAX_FRAMES = 12


def configure(
    style: Literal["json", "text"], level: str, sample: float = 1.0, redact: Collection[str] = ()
) -> FilteringBoundLogger:
    """Set up logging to standard output and return the logger. Called again, it changes every logger that it gave.

    Of requests that went well the share `sample` is told; the fields in `redact` are left out of requests' lines."""
    quiet_libraries()
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    kept = keep(sample, redact)
    first = [] if kept is None else [kept]
    common: list[Processor] = [*first, structlog.processors.add_log_level, stamp, name_failure, escape_controls]
    processors: list[Processor] = [*common, *_renderers(style)]
    writer = aside()
    if writer is not None:
        writer.notice = _notice(processors)
    output: Output = writer or Direct()
    lines = _Lines(output)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    requests.way.keep = kept
    requests.way.silent = LEVELS[level] > LEVELS["info"]
    requests.way.write = output.write if style == "json" else None
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


class _Lines:
    """What structlog hands finished lines to, by their level: those that warn are written at once."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def info(self, line: bytes) -> None:
        self._output.write(line + b"\n")

    def warning(self, line: bytes) -> None:
        self._output.warn(line + b"\n")

    debug = info
    error = critical = warning


def _notice(processors: list[Processor]) -> Callable[[int], bytes]:
    """The line that tells how many were dropped. Written at every level: a gap in the log is never silent."""

    def line(dropped: int) -> bytes:
        event: Any = {"event": "log_lines_dropped", "lines": dropped}
        for each in processors:
            event = each(None, "warning", event)
        return cast(bytes, event) + b"\n"

    return line


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


def changed(logger: FilteringBoundLogger, change: Change) -> None:
    """The line of one change: `regime_changed` and the like; a warning where a backend is lost."""
    role = change.role.value if change.role is not None else None
    lost = change.after in ("down", CircuitState.OPEN) or change.kind is ChangeKind.LEARNING
    lost = lost or (change.kind is ChangeKind.SILENCE and change.after == "true")
    say = logger.warning if lost else logger.info
    say(change.kind.value, role=role, before=str(change.before), after=str(change.after), **change.numbers)


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


def _to_json(value: Any, **_: Any) -> bytes:
    return orjson.dumps(value, default=str)
