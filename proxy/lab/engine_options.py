"""What an embedded engine is started with, and its command line. Serving is in embedded.py."""

import argparse
import math
from dataclasses import dataclass
from random import Random

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.acceptance import Acceptance
from proxy.lab.adaptive import ADAPTIVE_TAX, Pause
from proxy.lab.curves import Curve
from proxy.lab.engine import KV_TOKENS, MAX_RUNNING_REQUESTS, Engine, EngineLimits
from proxy.model import Role
from proxy.ports import port_number

# The version whose wire behaviour is followed.
ENGINE_VERSION = "0.5.23"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """One embedded engine.

    `curve` is a shipped curve's name or a path; `fitted` takes step times from its fit instead of its table.
    `time_scale` multiplies every duration: 0.25 is four times faster than life. None means what the role or the curve
    says. `health_latency_s` is how long `/health` takes at least. `record_bodies` keeps SHA-256 of request bodies.
    `speculative_adaptive` goes without speculation at every step where that is faster, though each such step takes
    `adaptive_tax` (a share) longer than one of the baseline; drafting is then a chain, whatever the curve's was.
    """

    curve: str = curves.DEFAULT_CURVE
    role: Role = Role.BASELINE
    seed: int = 0
    time_scale: float = 1.0
    fitted: bool = False
    max_running_requests: int | None = None
    max_queued_requests: int | None = None
    kv_tokens: int | None = None
    prefill_tokens_per_s: float | None = None
    context_length: int = 131_072
    jitter: float = 0.03
    health_latency_s: float = 1.0
    served_model_name: str | None = None
    version: str = ENGINE_VERSION
    record_bodies: bool = False
    speculative_adaptive: bool = False
    adaptive_tax: float = ADAPTIVE_TAX

    @property
    def speculative(self) -> bool:
        """Whether this engine speculates."""
        return self.role is Role.SPECULATIVE

    def model_name(self, curve: Curve) -> str:
        """The name it serves: it says that no model is behind it. Both roles of a pair have the same."""
        return self.served_model_name or f"crossover-embedded-{curve.name}"

    def limits(self, curve: Curve) -> EngineLimits:
        """The engine's limits with every default resolved."""
        return EngineLimits(
            max_running_requests=self.max_running_requests or MAX_RUNNING_REQUESTS[self.role],
            kv_tokens=self.kv_tokens or KV_TOKENS[self.role],
            max_queued_requests=self.max_queued_requests,
            prefill_tokens_per_s=self.prefill_tokens_per_s or curve.prefill_tokens_per_s,
            time_scale=self.time_scale,
            jitter=self.jitter,
        )

    def engine(self, curve: Curve) -> Engine:
        """The engine itself. Raises `ConfigError` for `fitted` without a fit, and for an adaptive baseline."""
        if self.speculative_adaptive and not self.speculative:
            raise ConfigError("a baseline engine has no speculation to adapt; mend: --role speculative")
        acceptance = Acceptance(curve.tokens_per_step, curve.num_steps + 1) if self.speculative else None
        step_time = curve.step_time(self.role, fitted=self.fitted)
        return Engine(step_time, self.limits(curve), Random(self.seed), acceptance, self._pause(curve))

    def _pause(self, curve: Curve) -> Pause | None:
        if not self.speculative_adaptive:
            return None
        plain = curve.step_time(Role.BASELINE, fitted=self.fitted)
        return Pause(plain, curve.tokens_per_step, self.adaptive_tax)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of one engine, `--host`, `--port` and `--die-with-parent` to a command."""
    parser.add_argument("--curve", default=curves.DEFAULT_CURVE, metavar="NAME", help="published curve, or a file")
    parser.add_argument("--role", choices=[str(role) for role in Role], default=str(Role.BASELINE))
    parser.add_argument(
        "--shared", action="store_true", help="both roles here, on the same GPUs: two ports, speculative first"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=port_number, default=0, help="0 takes a free one; with --shared the next one too"
    )
    parser.add_argument("--time-scale", type=_positive, default=1.0, help="0.25 runs four times faster than life")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fitted", action="store_true", help="step times from the curve's fit, which knows context")
    parser.add_argument("--speculative-adaptive", action="store_true", help="go without speculation where faster")
    parser.add_argument(
        "--adaptive-tax", type=_share, default=ADAPTIVE_TAX, help="what such a step costs more (default %(default)s)"
    )
    parser.add_argument("--max-running-requests", type=int, help="default 48 when speculative, else 2048")
    parser.add_argument("--max-queued-requests", type=int, help="default: no limit")
    parser.add_argument("--kv-tokens", type=_whole, help="room of the KV pool; default: less when speculative")
    parser.add_argument("--prefill-tokens-per-s", type=_positive, help="default: as the curve says")
    parser.add_argument("--jitter", type=_share, default=0.03, help="sigma of the noise on step times (%(default)s)")
    parser.add_argument("--context-length", type=int, default=131_072)
    parser.add_argument("--health-latency-s", type=float, default=1.0, help="least time that /health takes")
    parser.add_argument("--die-with-parent", action="store_true", help="end when standard input ends")


def options_of(arguments: argparse.Namespace) -> EngineOptions:
    """The options that a parsed command line asks for."""
    return EngineOptions(
        curve=arguments.curve,
        role=Role(arguments.role),
        seed=arguments.seed,
        time_scale=arguments.time_scale,
        fitted=arguments.fitted,
        max_running_requests=arguments.max_running_requests,
        max_queued_requests=arguments.max_queued_requests,
        context_length=arguments.context_length,
        health_latency_s=arguments.health_latency_s,
        kv_tokens=arguments.kv_tokens,
        prefill_tokens_per_s=arguments.prefill_tokens_per_s,
        jitter=arguments.jitter,
        speculative_adaptive=arguments.speculative_adaptive,
        adaptive_tax=arguments.adaptive_tax,
    )


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be above zero, for example 1 or 0.25")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError("must be a share between 0 and 1, for example 0.03")
    return value


def _whole(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be a whole number above zero")
    return value
