"""Faults on request: their names, and which one is due. Doing them to a connection is in fault_acts.py."""

from dataclasses import dataclass, replace
from enum import StrEnum


class FaultKind(StrEnum):
    """How an engine can fail one request; ARG is the number after `=`."""

    REFUSE = "refuse"  # the listening socket is closed for ARG seconds, idle connections too
    RESET = "reset"  # the connection is reset before any header
    RESET_STREAM = "reset-stream"  # reset after ARG chunks
    STALL = "stall"  # silence after the head and ARG chunks
    SILENT = "silent"  # the request is read and never answered
    SLOW = "slow"  # the first byte comes ARG seconds late
    ERROR_500 = "500"
    ERROR_503 = "503"  # with Retry-After: 2
    ERROR_429 = "429"
    QUEUE_FULL = "queue-full"  # a stream is refused inside an HTTP 200
    DIE_MID_LINE = "die-mid-line"  # the connection ends in the middle of an event, after ARG whole chunks
    GARBAGE = "garbage"  # bytes that are not HTTP
    TRUNCATE = "truncate"  # the stream ends well, without a finish reason and [DONE], after ARG chunks or at its end


# What ARG is when it is left away.
_DEFAULT_ARGS = {
    FaultKind.REFUSE: 5.0,
    FaultKind.RESET_STREAM: 1.0,
    FaultKind.STALL: 0.0,
    FaultKind.SLOW: 1.0,
    FaultKind.DIE_MID_LINE: 1.0,
    FaultKind.TRUNCATE: float("inf"),
}

STREAM_KINDS = frozenset({FaultKind.RESET_STREAM, FaultKind.STALL, FaultKind.DIE_MID_LINE, FaultKind.TRUNCATE})
"""Kinds that let an answer begin."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail; `arg` counts chunks or seconds by kind, 0 where the kind has none."""

    kind: FaultKind
    arg: float = 0.0


def parse_fault(text: str) -> Fault:
    """Read `KIND` or `KIND=ARG`. Raises ValueError with the known kinds or what ARG must be."""
    name, given, arg = text.strip().partition("=")
    if name not in set(FaultKind):
        raise ValueError(f"unknown fault kind; use one of {', '.join(FaultKind)}, with =ARG where it takes a number")
    kind = FaultKind(name)
    if not given:
        return Fault(kind, _DEFAULT_ARGS.get(kind, 0.0))
    try:
        value = float(arg)
    except ValueError:
        value = -1.0
    if not value >= 0.0:
        raise ValueError(f"the ARG of fault {kind} must be a number of at least 0")
    return Fault(kind, value)


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault for the whole engine: for `left` more requests and until `until_s` (None: without such an end).

    `everywhere` strikes every route but the one that plans faults, not only generation.
    """

    fault: Fault
    left: int | None = None
    until_s: float | None = None
    everywhere: bool = False


class FaultBook:
    """The planned faults of one engine, in the order they were planned; the first that is due strikes."""

    def __init__(self) -> None:
        self._planned: list[Planned] = []

    def plan(self, planned: Planned) -> None:
        """Add one."""
        self._planned.append(planned)

    def clear(self) -> None:
        """Forget all."""
        self._planned.clear()

    def listed(self, now_s: float) -> tuple[Planned, ...]:
        """What is still due at `now_s`."""
        self._planned = [one for one in self._planned if _due(one, now_s)]
        return tuple(self._planned)

    def take(self, now_s: float, *, generation: bool) -> Fault | None:
        """The fault that strikes a request arriving at `now_s`, counted as used; None for none."""
        for place, one in enumerate(self.listed(now_s)):
            if generation or one.everywhere:
                if one.left is not None:
                    self._planned[place] = replace(one, left=one.left - 1)
                return one.fault
        return None


def _due(planned: Planned, now_s: float) -> bool:
    if planned.left is not None and planned.left <= 0:
        return False
    return planned.until_s is None or now_s < planned.until_s
