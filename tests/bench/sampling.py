"""What the load client reads off the machine while it measures: counters, CPU clocks and memory at an instant."""

import time
from dataclasses import dataclass, field

from bench.clocks import cpu_s, machine_s, resident_bytes, user_s
from bench.jobs import Job, Load


@dataclass(slots=True)
class Tally:
    """What all connections have received so far: units and the reads that they came in; and how many answers have
    begun, are over, and failed before they had begun.

    Delays are kept while `counting`: of events the instants of their reads with the engine's stamps, of requests
    nanoseconds.
    """

    units: int = 0
    reads: int = 0
    begun: int = 0
    over: int = 0
    failed: int = 0
    counting: bool = False
    stamps: list[tuple[int, bytes]] = field(default_factory=list)
    delays_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters and clocks at one instant."""

    at_s: float
    units: int
    reads: int
    harness_s: float
    machine_s: float
    cpu_s: float
    user_s: float


def read(job: Job, tally: Tally) -> Reading:
    """Look at everything now."""
    return Reading(
        at_s=time.perf_counter(),
        units=tally.units,
        reads=tally.reads,
        harness_s=time.process_time() + cpu_s((job.engine_pid,)),
        machine_s=machine_s(),
        cpu_s=cpu_s(job.pids),
        user_s=user_s(job.pids),
    )


def load_between(job: Job, before: Reading, after: Reading, tally: Tally) -> Load:
    """What was done between two readings."""
    measured = bool(job.pids)
    delays_ns = tally.delays_ns + [at_ns - int(stamp, 16) for at_ns, stamp in tally.stamps]
    harness_cpu_s, cpu_time_s = after.harness_s - before.harness_s, after.cpu_s - before.cpu_s
    delays_ns.sort()
    return Load(
        units=after.units - before.units,
        reads=after.reads - before.reads,
        window_s=after.at_s - before.at_s,
        lost=0,
        harness_cpu_s=harness_cpu_s,
        others_cpu_s=max(0.0, after.machine_s - before.machine_s - harness_cpu_s - cpu_time_s),
        delay_p50_s=quantile_s(delays_ns, 0.5),
        delay_p99_s=quantile_s(delays_ns, 0.99),
        cpu_s=cpu_time_s if measured else None,
        user_s=after.user_s - before.user_s if measured else None,
    )


def quantile_s(ordered_ns: list[int], share: float) -> float | None:
    """The value below which a share of them lies, in seconds; None of nothing."""
    return ordered_ns[min(len(ordered_ns) - 1, int(len(ordered_ns) * share))] / 1e9 if ordered_ns else None


def memory_bytes(job: Job) -> int | None:
    """Memory of the measured processes now; None where none are measured."""
    return resident_bytes(job.pids) if job.pids else None
