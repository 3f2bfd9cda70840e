"""What life is compared with the simulation in: a pair of engines, a policy, and requests that come at known instants.

All of it is made from a seed, so that both get the same. Playing it on sockets is in life_play.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

import orjson

from proxy import config
from proxy.lab.curves import find, slowed
from proxy.lab.engine import KV_TOKENS
from proxy.lab.simulation.arms import Arm, Bench, measured, settings_of
from proxy.lab.simulation.arrivals import Offer, open_source
from proxy.lab.simulation.pace import Work, capacity, paces
from proxy.lab.simulation.sharing import Bounds, Task
from proxy.lab.simulation.trial import Trial
from proxy.lab.speeds_file import text as curves_text
from proxy.model import ROLES, Placement, Policy, Role, Traits

# On each backend and engine: more than ever run in a scene, so that nobody waits outside the engines.
MAX_IN_FLIGHT = 64
# Answers short enough that some hundred fit into minutes, prompts long enough that prefill is seen.
PROMPT_TOKENS, OUTPUT_TOKENS = 200, 64.0
# What an engine's chat template puts around one message, and bytes of a token, as the embedded engine counts them.
TEMPLATE_BYTES, TOKEN_BYTES = 24, 4
# Shorter answers would be nothing but prefill.
LEAST_OUTPUT = 4
# A file of speeds says when they were measured; these were not.
WHEN = "2000-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Scene:
    """`policy` as `crossover simulate` names it. Both engines are `slower` times slower than the curve. Loads, shares
    of capacity and follow each other in phases of `phase_s` seconds, for `length_s` in all."""

    curve: str
    placement: Placement
    policy: str
    loads: tuple[float, ...]
    slower: float
    length_s: float
    phase_s: float = 60.0

    @property
    def name(self) -> str:
        """In one line."""
        loads = "/".join(f"{load:g}" for load in self.loads)
        return f"{self.curve} x{self.slower:g} {self.placement} {self.policy} {loads}"

    def bench(self) -> Bench:
        """The engines as the simulation has them."""
        curve = slowed(find(self.curve), self.slower)
        return Bench(curve, self.placement, paces(curve, MAX_IN_FLIGHT), MAX_IN_FLIGHT)

    def offers(self, seed: int) -> list[Offer]:
        """Poisson arrivals; every answer has the length that its request asks for."""
        return list(self._offers(self._rate_per_s(), Random(seed)))

    def _rate_per_s(self) -> float:
        bench = self.bench()
        work = Work(OUTPUT_TOKENS, PROMPT_TOKENS / bench.curve.prefill_tokens_per_s)
        return capacity(bench.paces, self.placement, dict.fromkeys(ROLES, work))

    def _offers(self, most_per_s: float, rng: Random) -> Iterator[Offer]:
        at_s = 0.0
        while True:
            load = self.loads[int(at_s / self.phase_s) % len(self.loads)]
            at_s += rng.expovariate(load * most_per_s)
            if at_s >= self.length_s:
                return
            tokens = max(LEAST_OUTPUT, round(rng.expovariate(1.0 / OUTPUT_TOKENS)))
            yield Offer(at_s, PROMPT_TOKENS, tokens)

    def write(self, folder: Path, urls: Mapping[Role, str], ports: tuple[int, int]) -> Path:
        """The proxy's configuration and the file of speeds that it names; the path of the former."""
        bench = self.bench()
        speeds = folder / "curves.yaml"
        known = replace(measured(bench), measured_at=WHEN)
        speeds.write_text(curves_text(known, ["The very speeds of the engines behind."]))
        name, _, value = self.policy.partition(":")
        routing = settings_of(bench, name, value).routing
        path = folder / "crossover.yaml"
        backends = [f"  {role}: {{url: '{urls[role]}', max_in_flight: {MAX_IN_FLIGHT}}}" for role in ROLES]
        lines = [
            f"listen: {{host: 127.0.0.1, port: {ports[0]}}}",
            f"admin: {{port: {ports[1]}}}",
            f"placement: {self.placement}",
            "backends:",
            *backends,
            f"routing: {{policy: {name}, leave_at: {routing.leave_at}, enter_at: {routing.enter_at},",
            # The simulated desk learns nothing either: what is compared is how curves are acted on.
            f"  pin: {routing.pin}, learn: false, curves_file: {speeds if Policy(name) in BY_CURVES else 'null'}}}",
            "timeouts: {settle_s: 0}",
            "log: {level: error}",
        ]
        path.write_text("\n".join(lines) + "\n")
        return path


# Others would be warned of: their thresholds are not the curve's.
BY_CURVES = frozenset((Policy.MARGINAL, Policy.CONSOLIDATE, Policy.AUTO))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a scene's requests: the share that speculative had, and mean seconds."""

    share: float
    e2e_s: float
    ttft_s: float


def body(number: int, prompt_tokens: int, tokens: int) -> bytes:
    """A request for just so many tokens, with a prompt of just so many; no two begin alike, as no cache is to hold
    them."""
    text = f"{number:06d} ".ljust(prompt_tokens * TOKEN_BYTES - TEMPLATE_BYTES, "x")
    asked = {"model": "life", "messages": [{"role": "user", "content": text}], "max_tokens": tokens}
    return orjson.dumps(asked | {"ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}})


def looks(task: Task) -> Traits:
    """What a desk sees of such a request."""
    size = len(body(0, task.prompt_tokens, task.length))
    return Traits(stream=True, prompt_bytes=size, max_tokens=task.length)


def simulated(scene: Scene, path: Path, offers: list[Offer], seed: int) -> Outcome:
    """The same requests by the same configuration file on a virtual clock. What no arrival tells is by chance: how much
    is left of a step when a request comes."""
    bench, rng = scene.bench(), Random(seed)
    arm = Arm(scene.policy, config.load(path, {}), bench.paces)
    prefill = bench.curve.prefill_tokens_per_s
    bounds = {role: Bounds(MAX_IN_FLIGHT, KV_TOKENS[role], prefill) for role in ROLES}
    source = open_source(iter([offer._replace(step_share=rng.random()) for offer in offers]))
    times = Trial(arm, bounds, source, looks=looks).run(0, len(offers))
    return Outcome(times.speculative / len(offers), fmean(times.e2e_s), fmean(times.ttft_s))
