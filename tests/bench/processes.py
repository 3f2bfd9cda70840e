"""Processes as such: started on the right core, ended with what they started, gone when the measurement is killed."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from bench.clocks import cores, family

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-P")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
DOWN_WITHIN_S = 10.0
# A program of its own that becomes the one that is asked for, and no function for after the fork: one that is called in
# the fork of a process with threads, as those of the tests are, may wait for ever for what a thread held. The first
# number is PR_SET_PDEATHSIG of prctl(2), the second SIGKILL.
_PREPARE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if sys.argv[1]:
    os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
os.execvp(sys.argv[2], sys.argv[2:])
"""


class NotUp(Exception):
    """A process did not come up, or did not recover."""


@contextlib.contextmanager
def started(
    command: Sequence[str],
    *,
    measured: bool,
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    quiet: bool = False,
    folder: Path | None = None,
) -> "Iterator[subprocess.Popen[str]]":
    """One process on its core, in `folder`; ended when the block ends, with all that it has started."""
    chosen = cores()
    process = subprocess.Popen(
        prepared(command, () if chosen is None else chosen[0 if measured else 1]),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL if quiet else None,
        cwd=folder,
        env=environment,
        text=True,
    )
    try:
        yield process
    finally:
        end(process)


def end(process: "subprocess.Popen[str]") -> None:
    """Ask a process to end, make it end when it does not, with all that it has started, and close its pipes."""
    pids = family(process.pid) if process.poll() is None else ()
    signal_all(pids, signal.SIGCONT)
    process.terminate()
    try:
        process.wait(DOWN_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    signal_all(pids[1:], signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def ended(pids: Sequence[int], within_s: float) -> bool:
    """Wait until one of these processes has ended; false when none does within `within_s` seconds."""
    with contextlib.ExitStack() as stack:
        watched = []
        for pid in pids:
            try:
                watched.append(os.pidfd_open(pid))
            except ProcessLookupError:
                return True
            stack.callback(os.close, watched[-1])
        return bool(select.select(watched, [], [], within_s)[0])


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def prepared(command: Sequence[str], on: Collection[int] = ()) -> list[str]:
    """A command that first takes the cores `on`, so that a runtime which counts cores sees no others, and asks the
    kernel to be killed when the one that starts it is gone and can end nothing itself: a frozen process would not hear
    anything less."""
    return [sys.executable, "-I", "-S", "-c", _PREPARE, ",".join(map(str, sorted(on))), *command]


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
