"""What the proxy asks of the kernel for a request and for an event, counted by strace where there is one.

strace makes every call many times dearer: the figures are counts, and nothing here is a time.
"""

import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.jobs import Load

from proxy import config

SHOWN = 12
# A proxy that is traced answers slowly, also its operators.
ASK_WITHIN_S = 30.0
_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
_REQUESTS = re.compile(r"^crossover_requests_total\{.*\} ([\d.e+]+)$", re.MULTILINE)


def can_count() -> bool:
    """Whether strace is on this machine."""
    return shutil.which("strace") is not None


def top(pid: int, test: str, work: Callable[[], Load], *, by_request: bool) -> str:
    """Have `work` done by the proxy `pid`; its system calls a unit: a request, or one of those that the load counts."""
    with tempfile.TemporaryDirectory(prefix="crossover-bench-") as folder:
        file = Path(folder) / "calls"
        before = requests(pid)
        command = ["strace", "-c", "-f", "-p", str(pid), "-o", str(file)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
            try:
                _wait_for(tracer)
                units = work().units
            finally:
                tracer.send_signal(signal.SIGINT)
                tracer.communicate()
        done = requests(pid) - before
        return table(file.read_text(), test, done, max(1, done if by_request else units))


def table(said: str, test: str, done: int, units: int) -> str:
    """strace's summary as counts a unit, the most frequent first."""
    calls = sorted(((int(count), name) for count, name in _ROW.findall(said) if name != "total"), reverse=True)
    whole = sum(count for count, _ in calls)
    rows = [f"{count / units:9.3f}   {name}" for count, name in [(whole, "all"), *calls[:SHOWN]]]
    return "\n".join((f"== {test}: system calls of {done} requests, {units} units", *rows))


def requests(pid: int) -> int:
    """How many requests the proxy has had, by its own metrics."""
    *_, file = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    admin = config.load(Path(file), {}).admin
    with urllib.request.urlopen(f"http://{admin.host}:{admin.port}/metrics", timeout=ASK_WITHIN_S) as answer:
        return int(sum(float(count) for count in _REQUESTS.findall(answer.read().decode())))


def _wait_for(tracer: "subprocess.Popen[str]") -> None:
    """Return when the process is traced, which is what strace says first. Raises RuntimeError when it may not be."""
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        raise RuntimeError(f"strace may not trace the proxy here: {said.strip() or 'it said nothing'}")
