"""CPU time and memory of other processes, and cores to run on. Linux alone."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Linux numbers the CPU clock of process P as ~P << 3 with this in the low bits (clock_getcpuclockid does just that).
_SCHEDULED_TIME = 2


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds, user and system, of all threads of some processes so far, to the microsecond. OSError when one is
    gone.

    /proc/PID/stat has the same sum in ticks of 10 ms, too coarse for windows of seconds.
    """
    return sum(time.clock_gettime(~pid << 3 | _SCHEDULED_TIME) for pid in pids)


def user_s(pids: Iterable[int]) -> float:
    """The part of it that was the programs' own and not the kernel's, in steps of 10 ms."""
    return sum(int(_stat(pid)[11]) for pid in pids) / _TICKS_PER_S


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that some processes have in RAM; what several of them share counts in each."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * _PAGE_BYTES


def family(pid: int) -> tuple[int, ...]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for each, parent in _parents():
        children.setdefault(parent, []).append(each)
    found = [pid]
    for each in found:
        found.extend(children.get(each, ()))
    return tuple(found)


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


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), int(_stat(int(entry.name))[1])
            except OSError:
                continue  # ended while we looked


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
