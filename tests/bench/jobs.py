"""What is asked of the load client and what it answers; one JSON line each way."""

from dataclasses import dataclass

STREAMS, PLAIN = "streams", "plain"
TESTS = (STREAMS, PLAIN)
# What one unit of work is called in each test.
UNITS = {STREAMS: "event", PLAIN: "request"}


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement. `pid` is the process to measure (None: nothing between client and engine).

    `streams` is also the number of connections of the plain test. Streams are begun one after another in `ramp_s`, and
    `settle_s` later the window of `seconds` opens; `events` is how many events the engine gives each stream.
    """

    test: str
    port: int
    pid: int | None
    engine_pid: int
    streams: int
    rate: float
    seconds: float
    ramp_s: float
    settle_s: float
    events: int


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it. All but `lost` and `first_byte_s` count the window alone, after every stream had begun.

    `units` are events or requests; `reads` the reads they came in; `offered` the events that the engine's pace makes
    (None: closed loop); `lost` units that never arrived, of the whole; `first_byte_s` the median from a request sent to
    the first byte of its answer, while streams were begun one after another; CPU times are in seconds, `harness_cpu_s`
    is engine and client together, `others_cpu_s` whatever else ran on the machine.
    """

    units: int
    reads: int
    window_s: float
    lost: int
    harness_cpu_s: float
    others_cpu_s: float
    offered: float | None = None
    first_byte_s: float | None = None
    cpu_s: float | None = None
    user_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One load on one contender in one round."""

    round: int
    test: str
    contender: str
    load: Load
