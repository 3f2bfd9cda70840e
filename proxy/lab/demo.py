"""What `crossover serve` runs without a configuration: two embedded engines as processes of their own, and settings.

The engines are in embedded.py. They end with this process, however it ends: each watches its standard input.
"""

import asyncio
import subprocess
import sys

from proxy.config import Settings, from_mapping
from proxy.errors import ConfigError
from proxy.lab.curves import DEFAULT_CURVE, crossing, find
from proxy.model import ROLES, Policy, Role

START_WITHIN_S = 20.0
# A band of half the crossing: wide enough that a steady load does not cross both bounds.
ENTER_SHARE = 0.5


class Demo:
    """Two embedded engines after one published curve. Raises ConfigError for an unknown one, naming those there are,
    and from `start` when an engine does not start."""

    def __init__(self, curve: str | None, policy: str | None, time_scale: float) -> None:
        self._name = curve or DEFAULT_CURVE
        self.curve = find(self._name)
        self._read_curve(policy)
        self._time_scale = time_scale
        self._engines: dict[Role, asyncio.subprocess.Process] = {}
        self._ports: dict[Role, int] = {}

    async def start(self) -> None:
        """Start both engines and wait until they listen."""
        try:
            async with asyncio.timeout(START_WITHIN_S):
                await asyncio.gather(*(self._start(role) for role in ROLES))
        except TimeoutError as error:
            message = f"the embedded engines did not start within {START_WITHIN_S:g} s; is this machine very busy?"
            raise ConfigError(message) from error

    async def stop(self) -> None:
        """End both engines."""
        for engine in self._engines.values():
            if engine.returncode is None:
                engine.terminate()
        for engine in self._engines.values():
            try:
                async with asyncio.timeout(3):
                    await engine.wait()
            except TimeoutError:
                engine.kill()
                await engine.wait()

    def settings(self) -> Settings:
        """Settings in front of the two engines, with thresholds from the curve."""
        routing = {"policy": self._policy, "pin": self._pin, "leave_at": self._leave_at, "enter_at": self._enter_at}
        urls = {role.value: {"url": f"http://127.0.0.1:{self._ports[role]}"} for role in ROLES}
        log = {"format": "text", "level": "error"}
        return from_mapping({"backends": urls, "routing": {"allow_header": True, **routing}, "log": log})

    def greet(self, port: int, admin_port: int) -> None:
        """Tell the person at the terminal what runs and what to try."""
        url = f"http://127.0.0.1:{port}"
        print(  # noqa: T201 - the greeting of an interactive command
            f"Crossover on {url}, its operators' port on http://127.0.0.1:{admin_port}\n"
            f"Engines: two embedded ones after {self.curve.name}: {self._verdict}.\n"
            f"Policy {self._policy}: {self._rule()}.\n\n"
            f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
            '    -d \'{"model":"demo","stream":true,"messages":[{"role":"user","content":"Hello"}]}\'\n'
            f"  .venv/bin/crossover load {url} --ramp\n\n"
            "Ctrl-C ends it when the running answers are complete; a second Ctrl-C at once.",
            flush=True,
        )

    def _read_curve(self, policy: str | None) -> None:
        """Policy and thresholds after the curve, where nothing was asked for."""
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
        self._policy = policy or (Policy.PINNED if at is None else Policy.THRESHOLD).value
        self._leave_at = 2 if at is None else max(2, round(at))
        self._enter_at = max(1, int(self._leave_at * ENTER_SHARE))

    def _rule(self) -> str:
        if self._policy == Policy.PINNED:
            return f"everything to {self._pin}, the other only as its failover"
        if self._policy == Policy.OVERFLOW:
            return f"up to {self._leave_at} sequences on speculative, the rest on baseline"
        return f"stop speculating at {self._leave_at} sequences in flight, begin again at {self._enter_at}"

    async def _start(self, role: Role) -> None:
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "engine", "--curve", self._name, "--role", role.value),
            *("--port", "0", "--time-scale", str(self._time_scale), "--die-with-parent"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Its own group: Ctrl-C reaches the proxy alone, which drains before it ends the engines.
            start_new_session=True,
        )
        self._engines[role] = engine
        if engine.stdout is None:
            raise RuntimeError("the engine was started without a pipe")
        line = (await engine.stdout.readline()).decode()
        if not line.startswith("ready "):
            raise ConfigError(f"the embedded {role} engine did not start; run it alone: crossover engine --role {role}")
        self._ports[role] = int(line.split()[1])
