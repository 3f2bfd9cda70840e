"""The proxy in a process of its own, started as an operator does, for what can only be seen from outside."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from fakes.until import until

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Process:
    """Where it listens, and how much memory it has had (bytes)."""

    port: int
    pid: int

    def forget_peak(self) -> None:
        """Let the peak begin anew at what is resident now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    @property
    def peak_bytes(self) -> int:
        """The most that was resident since `forget_peak`."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


@contextlib.asynccontextmanager
async def own_process(folder: Path, speculative: str, baseline: str, **sections: Any) -> AsyncIterator[Process]:
    """A started proxy; ended by SIGTERM, which must end it well."""
    values = {
        "backends": {"speculative": {"url": speculative}, "baseline": {"url": baseline}},
        "listen": {"host": "127.0.0.1", "port": 0},
        "admin": {"port": 0},
        "timeouts": {"settle_s": 0.0, "drain_s": 5.0},
        **sections,
    }
    path, out = folder / "crossover.yaml", folder / "out"
    path.write_text(yaml.safe_dump(values))
    with out.open("wb") as to_out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "serve", str(path)), cwd=ROOT, stdout=to_out, stderr=to_out
        )
    try:
        started = re.compile(r'"started".*"port": ?(\d+)|"port": ?(\d+).*"started"')
        await until(lambda: started.search(out.read_text()) or process.returncode is not None, 100, what="its start")
        found = started.search(out.read_text())
        assert found is not None, out.read_text()
        yield Process(int(found[1] or found[2]), process.pid)
        process.terminate()
        async with asyncio.timeout(60):
            assert await process.wait() == 0, out.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
