"""What `crossover serve` runs without a configuration: two embedded engines in processes of their own, and settings.

The engines are in embedded.py. They end with this process, however it ends: each watches its standard input.
"""

import asyncio
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from proxy.config import Settings, load
from proxy.errors import ConfigError
from proxy.lab.curves import DEFAULT_CURVE, crossing, find, slowed
from proxy.lab.simulation.arms import Bench, measured
from proxy.lab.simulation.pace import paces
from proxy.lab.speeds_file import text
from proxy.model import ROLES, Placement, Policy, Role
from proxy.tasks import end, spawn

CONFIG, CURVES = "crossover.yaml", "curves.yaml"
# Who tries it out has asked nobody else in.
HOST = "127.0.0.1"
START_WITHIN_S = 20.0
# A band of half the crossing: wide enough that a steady load does not cross both bounds.
ENTER_SHARE = 0.5


# Up to so many in flight the file of speeds says how fast the engines are: as far as most curves were measured.
MAX_IN_FLIGHT = 128
# Each engine runs so many at once, as README.md advises for real ones: equal limits, so that speed alone decides.
MAX_RUNNING = 256


class Demo:
    """Two embedded engines after one published curve, with a configuration and a file of its speeds in a folder of
    their own. Raises ConfigError for an unknown curve, naming those there are, and from `start` when an engine does not
    start."""

    def __init__(
        self, curve: str | None, policy: str | None, time_scale: float, placement: Placement = Placement.SEPARATE
    ) -> None:
        self._name = curve or DEFAULT_CURVE
        self.curve = find(self._name)
        self.policy = Policy(policy or Policy.AUTO)
        self.placement = placement
        self._read_curve()
        self._time_scale = time_scale
        self._engines: list[asyncio.subprocess.Process] = []
        self._watches: list[asyncio.Task[None]] = []
        self._ports: dict[Role, int] = {}
        self._folder: Path | None = None

    async def start(self) -> None:
        """Start both engines and wait until they listen."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                if self.placement is Placement.SHARED:
                    ports = await self._started("--shared")
                else:
                    each = await asyncio.gather(*(self._started("--role", role.value) for role in ROLES))
                    ports = [port for found in each for port in found]
        except TimeoutError as error:
            message = f"the embedded engines did not start within {START_WITHIN_S:g} s; is this machine very busy?"
            raise ConfigError(message) from error
        self._ports = dict(zip(ROLES, ports, strict=True))

    async def stop(self) -> None:
        """End both engines, and remove the folder."""
        await end(*self._watches)
        for engine in self._engines:
            if engine.returncode is None:
                engine.terminate()
        for engine in self._engines:
            try:
                async with asyncio.timeout(3):
                    await engine.wait()
            except TimeoutError:
                engine.kill()
                await engine.wait()
        self.remove()

    def remove(self) -> None:
        """Remove the folder, if there is one."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def settings(self) -> Settings:
        """Settings in front of the two engines, by the curve's own speeds, as the files say. Raises `InvalidConfig`
        once somebody has written nonsense into them."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="crossover-demo-"))
            (self._folder / CURVES).write_text(self._speeds(), encoding="utf-8")
            (self._folder / CONFIG).write_text(self._configuration(), encoding="utf-8")
        return load(self._folder / CONFIG, {})

    def greet(self, host: str, port: int, admin_port: int, stream: TextIO) -> None:
        """Tell the person at the terminal what runs, who may ask it and what to try: on standard error where standard
        output is a log that programs read."""
        url = f"http://{_asked_at(host)}:{port}"
        print(
            f"Crossover on {url}; to see what it does, open http://127.0.0.1:{admin_port}/\n"
            f"{_who_may_ask(host)}\n"
            f"Engines: two embedded ones after {self.curve.name}: {self._verdict}.\n"
            f"Policy {self.policy}: {self._rule()}.{self._files()}\n\n"
            f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
            '    -d \'{"model":"demo","stream":true,"messages":[{"role":"user","content":"Hello"}]}\'\n'
            f"  .venv/bin/crossover load {url} --ramp\n\n"
            "Ctrl-C ends it when the running answers are complete; a second Ctrl-C at once.",
            file=stream,
            flush=True,
        )

    def _read_curve(self) -> None:
        """What the curve says, and thresholds by it for policies that have some."""
        at, first = crossing(self.curve), self.curve.points[0]
        wins = first.speculative > first.baseline
        self._pin = (Role.SPECULATIVE if wins else Role.BASELINE).value
        if at is not None:
            self._verdict = f"baseline overtakes near {at:.0f} in flight"
        elif wins:
            self._verdict = "speculation pays at every concurrency of this curve"
        else:
            self._verdict = "speculation never pays on this curve"
            if any(point.speculative > point.baseline for point in self.curve.points):
                self._verdict = "speculation does not pay at low load on this curve"
        self._leave_at = 2 if at is None else max(2, round(at))
        self._enter_at = max(1, int(self._leave_at * ENTER_SHARE))

    def _rule(self) -> str:
        if self.policy is Policy.PINNED:
            return f"everything to {self._pin}, the other only as its failover"
        if self.policy is Policy.OVERFLOW:
            return f"up to {self._leave_at} sequences on speculative, the rest on baseline"
        if self.policy is Policy.THRESHOLD:
            return f"stop speculating at {self._leave_at} sequences in flight, begin again at {self._enter_at}"
        if self.policy is Policy.MARGINAL or (self.policy is Policy.AUTO and self.placement is Placement.SEPARATE):
            return "each request goes where it delays all of them least, by the speeds of the curve"
        return "one engine at a time, the one that serves the demand of the last minutes sooner"

    def _files(self) -> str:
        return "" if self._folder is None else f"\nConfiguration and speeds: {self._folder}"

    def _speeds(self) -> str:
        curve = slowed(self.curve, self._time_scale)
        known = measured(Bench(curve, self.placement, paces(curve, MAX_IN_FLIGHT), MAX_IN_FLIGHT))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        comments = [f"The speeds of the embedded engines, which act out {self.curve.name}."]
        return text(replace(known, measured_at=now), comments)

    def _configuration(self) -> str:
        return f"""\
# A demo's: it is removed when the demo ends, and taken over when it is changed.
listen: {{host: {HOST}}}
placement: {self.placement}
backends:
  speculative: {{url: "http://127.0.0.1:{self._ports[Role.SPECULATIVE]}"}}
  baseline: {{url: "http://127.0.0.1:{self._ports[Role.BASELINE]}"}}
routing:
  policy: {self.policy}
  curves_file: {CURVES}
  leave_at: {self._leave_at}
  enter_at: {self._enter_at}
{self._pinned()}  allow_header: true
log: {{format: text, level: error}}
"""

    def _pinned(self) -> str:
        """Where nothing is pinned the file says nothing of it."""
        return f"  pin: {self._pin}\n" if self.policy is Policy.PINNED else ""

    def _asked(self, *which: str) -> tuple[str, ...]:
        """What an engine is asked for, whoever starts it: one that is started anew is to be no other."""
        limits = ("--time-scale", str(self._time_scale), "--max-running-requests", str(MAX_RUNNING))
        return (*which, "--curve", self._name, *limits)

    async def _started(self, *which: str) -> list[int]:
        """Start a process of one engine or two; their ports."""
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "engine", *self._asked(*which), "--port", "0", "--die-with-parent"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Its own group: Ctrl-C reaches the proxy alone, which drains before it ends the engines.
            start_new_session=True,
        )
        self._engines.append(engine)
        if engine.stdout is None:
            raise RuntimeError("the engine was started without a pipe")
        line = (await engine.stdout.readline()).decode()
        if not line.startswith("ready "):
            asked = " ".join(which)
            raise ConfigError(f"the embedded engine did not start; run it alone: crossover engine {asked}")
        ports = [int(word) for word in line.split()[1:]]
        self._watches.append(spawn(self._ended(engine, which, ports), name=f"demo engine {engine.pid}"))
        return ports

    async def _ended(self, engine: asyncio.subprocess.Process, which: Sequence[str], ports: Sequence[int]) -> None:
        """Tell of an engine's end, which nobody but the proxy's page would show."""
        await engine.wait()
        whose, mend = "process of both engines", "restart the demo to have them back"
        if len(ports) == 1:
            again = shlex.join(["crossover", "engine", *self._asked(*which), "--port", str(ports[0])])
            whose, mend = f"{which[-1]} engine", f"restart the demo to have it back, or run .venv/bin/{again}"
        sys.stderr.write(f"the {whose} (pid {engine.pid}) has ended; {mend}\n")
        sys.stderr.flush()


def _asked_at(host: str) -> str:
    """How a url of this machine names who listens there: whoever listens everywhere is asked on loopback."""
    host = {"0.0.0.0": HOST, "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _who_may_ask(host: str) -> str:
    if host in {HOST, "::1", "localhost"}:
        return "It answers this machine alone; --host 0.0.0.0 lets others ask it too, without a key."
    return f"Whoever reaches this machine may ask it (--host {host}), without a key."
