"""CPU time of another process, and cores to run on. Linux alone."""

import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Linux numbers the CPU clock of process P as ~P << 3 with this in the low bits (clock_getcpuclockid does just that).
_SCHEDULED_TIME = 2


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, of all threads of a process so far, to the microsecond. OSError when it is gone.

    /proc/PID/stat has the same sum in ticks of 10 ms, too coarse for windows of seconds.
    """
    return time.clock_gettime(~pid << 3 | _SCHEDULED_TIME)


def user_s(pid: int) -> float:
    """The part of it that was the program's own and not the kernel's, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS_PER_S


def machine_s() -> float:
    """CPU seconds of everything on this machine so far, in steps of 10 ms; idle, waiting and stolen time left out."""
    user, nice, system, _, _, interrupts, soft_interrupts = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:8]
    )
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_S


def cores() -> tuple[set[int], set[int]] | None:
    """One core for the proxy and the others for engine and client; None where there is but one."""
    ours = sorted(os.sched_getaffinity(0))
    return ({ours[-1]}, set(ours[:-1])) if len(ours) > 1 else None
