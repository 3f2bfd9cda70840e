"""The tests of a run, what is asked of the load client and what it answers; one JSON line each way."""

from dataclasses import dataclass, field

LOAD, PACED, BATCH, PLAIN = "load", "paced", "batch", "plain"
IDLE, STREAMS, STOPPED, BREAKS = "idle", "streams", "stopped", "breaks"
TESTS = (LOAD, PACED, BATCH, PLAIN, IDLE, STREAMS, STOPPED, BREAKS)
# What one unit of work is called; everything that is no request is counted in events.
REQUESTS = "request"
EVENTS = "event"
# These begin on a contender just started: memory that an earlier test took would hide what this one takes.
FRESH = (IDLE, STREAMS, STOPPED, BREAKS)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a test asks for. `streams` are the connections of the plain test; `rate` is of each stream, a second;
    `shape` is a word of messages.SHAPES."""

    streams: int
    rate: float
    shape: str
    streams_per_s: float


# 256 x 40/s loads a core to a third; 64 x 20/s is a busy engine's pace, and with `tick` its decode steps.
SHAPES = {
    LOAD: Shape(256, 40.0, "spread", 256.0),
    PACED: Shape(64, 20.0, "spread", 128.0),
    BATCH: Shape(64, 20.0, "tick", 128.0),
    PLAIN: Shape(64, 0.0, "whole", 0.0),
    IDLE: Shape(1000, 0.0, "idle", 500.0),
    STREAMS: Shape(10_000, 2.0, "spread", 500.0),
    STOPPED: Shape(1, 384.0, "flood", 1.0),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement. `pids` are the processes to measure (none: nothing between client and engine).

    Streams are begun `streams_per_s` a second, and `settle_s` after the last the window of `seconds` opens; when it has
    closed the engine is told at `engine_port` to end them all. In the test `stopped` the reader rests for `seconds`.
    """

    test: str
    port: int
    pids: tuple[int, ...]
    engine_pid: int
    engine_port: int
    streams: int
    rate: float
    shape: str
    seconds: float
    streams_per_s: float
    settle_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it. All but `lost`, `wrong` and `first_byte_s` count the window alone.

    `units` are events or requests; `reads` the reads they came in; `offered` the events that the engine's pace makes
    (None: closed loop); `lost` units that the engine sent and that never arrived; `wrong` streams that did not end well
    or whose payload had another length than that of the events in it; `refused` those that did not begin, where that
    does not end the measurement. Delays are of an event from the engine's send to
    the client's read, or of a request to its whole answer. CPU times are in seconds, `harness_cpu_s` is engine and
    client together, `others_cpu_s` whatever else ran on the machine. Memory is the resident part of the processes:
    before, at the end of the window, and the most seen.
    """

    units: int
    reads: int
    window_s: float
    lost: int
    harness_cpu_s: float
    others_cpu_s: float
    wrong: int = 0
    refused: int = 0
    offered: float | None = None
    first_byte_s: float | None = None
    delay_p50_s: float | None = None
    delay_p99_s: float | None = None
    cpu_s: float | None = None
    user_s: float | None = None
    streams: int | None = None
    before_bytes: int | None = None
    after_bytes: int | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One test on one contender in one round: a load, or for `breaks` what was seen, or the words of a failure."""

    round: int
    test: str
    contender: str
    load: Load | None = None
    seen: dict[str, str] = field(default_factory=dict)
    failure: str | None = None


def unit(test: str) -> str:
    """What one unit of a test's work is called."""
    return REQUESTS if test == PLAIN else EVENTS
