"""Processes as such: started on the right core, ended with what they started, gone when the measurement is killed."""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.clocks import cores, family

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-P")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
DOWN_WITHIN_S = 10.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


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
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL if quiet else None,
        cwd=folder,
        env=environment,
        text=True,
        preexec_fn=_prepared(measured),  # noqa: PLW1509 - this process has no threads
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


def _prepared(measured: bool) -> Callable[[], None]:
    """What a new process does before it becomes its program: it takes its core, so that a runtime which counts cores
    sees one, and asks the kernel to be killed when the measurement is killed and can end nothing itself: a frozen
    process would not hear anything less."""

    def prepare() -> None:
        die_with_parent()
        chosen = cores()
        if chosen is not None:
            os.sched_setaffinity(0, chosen[0] if measured else chosen[1])

    return prepare


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it is gone."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def free_port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
