"""What `crossover serve` runs without a configuration: two embedded engines as processes of their own, and settings.

The engines are in embedded.py. They end with this process, however it ends: each watches its standard input.
"""

import asyncio
import subprocess
import sys

from proxy.config import Settings, from_mapping
from proxy.lab.curves import DEFAULT_CURVE, crossing, find
from proxy.model import ROLES, Policy, Role

START_WITHIN_S = 20.0
# A band of half the crossing: wide enough that a steady load does not cross both bounds.
ENTER_SHARE = 0.5


class Demo:
    """Two embedded engines after one published curve. Raises ConfigError for an unknown one, with those known."""

    def __init__(self, curve: str | None, policy: str | None, time_scale: float) -> None:
        self._name = curve or DEFAULT_CURVE
        self.curve = find(self._name)
        self._policy = policy
        self._time_scale = time_scale
        self._engines: dict[Role, asyncio.subprocess.Process] = {}
        self._ports: dict[Role, int] = {}

    async def start(self) -> None:
        """Start both engines and wait until they listen."""
        async with asyncio.timeout(START_WITHIN_S):
            await asyncio.gather(*(self._start(role) for role in ROLES))

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
        routing: dict[str, object] = {"allow_header": True, **self._routing()}
        urls = {role.value: {"url": f"http://127.0.0.1:{self._ports[role]}"} for role in ROLES}
        return from_mapping({"backends": urls, "routing": routing, "log": {"format": "text", "level": "error"}})

    def greet(self, port: int, admin_port: int) -> None:
        """Tell the person at the terminal what runs and what to try."""
        at = crossing(self.curve)
        verdict = f"baseline overtakes near {at:.0f} in flight" if at else "speculation never pays on this curve"
        routing = self._routing()
        print(  # noqa: T201 - the greeting of an interactive command
            f"Crossover on http://127.0.0.1:{port}, its operators' port on http://127.0.0.1:{admin_port}\n"
            f"Engines: two embedded ones after {self.curve.name}: {verdict}.\n"
            f"Policy {routing['policy']}: "
            f"{_thresholds(routing)}\n\n"
            f"  curl -N http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
            '    -d \'{"model":"demo","stream":true,"messages":[{"role":"user","content":"Hello"}]}\'\n'
            "  .venv/bin/crossover load --ramp\n\n"
            "Ctrl-C ends it.",
            flush=True,
        )

    def _routing(self) -> dict[str, object]:
        at = crossing(self.curve)
        if at is None:
            # The curve says never: the baseline serves, speculation is its failover.
            policy = self._policy or Policy.PINNED.value
            return {"policy": policy, "pin": Role.BASELINE.value, "leave_at": 2, "enter_at": 1}
        leave_at = max(2, round(at))
        return {
            "policy": self._policy or Policy.THRESHOLD.value,
            "leave_at": leave_at,
            "enter_at": max(1, int(leave_at * ENTER_SHARE)),
        }

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
            raise ValueError(f"the embedded {role} engine did not start; run it alone: crossover engine --role {role}")
        self._ports[role] = int(line.split()[1])


def _thresholds(routing: dict[str, object]) -> str:
    if routing["policy"] == Policy.PINNED:
        return f"everything to {routing['pin']}, the other only as its failover."
    return f"speculate up to {routing['enter_at']}, stop at {routing['leave_at']} sequences in flight."
