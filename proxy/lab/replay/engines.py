"""The two engines of a replay: how fast they are by the operator's own measurement, and what bounds them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.config import Settings
from proxy.lab import calibrated
from proxy.lab import curves as library
from proxy.lab.curve import DEFAULT_ACCEPT_LENGTH, DEFAULT_PREFILL_TOKENS_PER_S, Curve
from proxy.lab.engine import KV_TOKENS
from proxy.lab.replay.reading import prefill_tok_s
from proxy.lab.replay.traffic import Traffic, peaks
from proxy.lab.simulation.arms import Bench, measured
from proxy.lab.simulation.pace import Pace, paces
from proxy.lab.simulation.sharing import Bounds
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Role
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve

# A log tells what caches held, not how full the engines' memory was: those it came from had room.
_ROOMY_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class Engines:
    """Both engines. `curves` are what routing sees; `source` and `notes` tell where the speeds are from, in words."""

    bench: Bench
    bounds: Mapping[Role, Bounds]
    limits: Mapping[Role, int]
    curves: Curves
    source: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured, before it is known for which traffic: a calibration's file, or a curve of the library."""

    source: str
    curves: Curves | None = None
    curve: Curve | None = None


def speeds_of(said: str) -> Speeds:
    """The speeds of that name: a file of `crossover calibrate` (.yaml), else a shipped curve or a file of that form.

    Raises `ConfigError` with the mend.
    """
    if not calibrated.is_meant(said):
        return Speeds(said, curve=library.find(said))
    return Speeds(said, calibrated.read(Path(said), f"--curves {said}"))


def engines_of(
    speeds: Speeds,
    traffic: Traffic,
    placement: Placement,
    settings: Settings | None,
    *,
    context_tokens: float | None = None,
    max_in_flight: int | None = None,
    max_running: Mapping[Role, int] | None = None,
) -> Engines:
    """The engines as this traffic meets them: speeds at its mean context, or at `context_tokens`.

    The limit of each is `max_in_flight`, else the configured number, else what the engine itself said (`max_running`),
    else the most that it was measured with or had in the log. Raises `ConfigError` where one backend was not measured.
    """
    context = traffic.means.context if context_tokens is None else context_tokens
    told = max_running or {}
    asked = {role: max_in_flight or _limit(settings, role) or told.get(role) for role in ROLES}
    stand = _Stand(traffic, placement, asked, context, speeds.source)
    if speeds.curves is not None:
        return _measured(speeds.curves, stand)
    assert speeds.curve is not None
    return _published(speeds.curve, stand)


@dataclass(frozen=True, slots=True)
class _Stand:
    """For whom the engines are: their traffic and its context, where they run, and the limits that were asked for."""

    traffic: Traffic
    placement: Placement
    asked: Mapping[Role, int | None]
    context: float
    source: str

    def limits(self, measured: Mapping[Role, float]) -> tuple[dict[Role, int], str]:
        """The limit of each engine, which were measured with so many in flight at most, and where that is from."""
        seen = peaks(self.traffic)
        limits = {role: self.asked[role] or max(1, int(measured[role]), seen[role]) for role in ROLES}
        why = (
            "as configured or as the engines said"
            if all(self.asked.values())
            else "as measured, or more where the log had more"
        )
        return limits, f"sequences in flight at most: {', '.join(f'{limits[role]} on {role}' for role in ROLES)}, {why}"


def _published(curve: Curve, stand: _Stand) -> Engines:
    limits, told = stand.limits({role: curve.speeds(role)[-1].concurrency for role in ROLES})
    most = max(limits.values())
    bench = Bench(curve, stand.placement, paces(curve, most, stand.context), most)
    bounds = _bounds(stand.traffic, limits, dict.fromkeys(ROLES, curve.prefill_tokens_per_s))
    at = f"as published at {curve.context_tokens} tokens of context: of a box like yours, not of yours"
    return Engines(bench, bounds, limits, measured(bench), curve.name, (at, told))


def _measured(curves: Curves, stand: _Stand) -> Engines:
    bucket = _bucket(curves, stand.context, stand.source)
    speeds = {role: _speeds(bucket, role) for role in ROLES}
    limits, told = stand.limits({role: speeds[role].points[-1].in_flight for role in ROLES})
    most = max(limits.values())
    both = {role: _pace(speeds[role], role, most) for role in ROLES}
    bench = Bench(calibrated.curve_of(bucket, stand.source), stand.placement, both, most)
    prefill, by = _prefill(bucket, stand.traffic)
    at = f"measured at {bucket.context_tokens} tokens of context, where this traffic has a mean of {stand.context:.0f}"
    return Engines(bench, _bounds(stand.traffic, limits, prefill), limits, curves, stand.source, (at, by, told))


def _bounds(traffic: Traffic, limits: Mapping[Role, int], prefill: Mapping[Role, float]) -> dict[Role, Bounds]:
    held = any(came.blocks for came in traffic.requests)
    return {role: Bounds(limits[role], KV_TOKENS[role] if held else _ROOMY_TOKENS, prefill[role]) for role in ROLES}


def of_baselines(engines: Engines) -> Engines:
    """The same GPUs with two baselines."""
    return _alike(engines, BASELINE)


def of_speculative(engines: Engines) -> Engines:
    """The same GPUs with two speculative ones."""
    return _alike(engines, SPECULATIVE)


def _alike(engines: Engines, role: Role) -> Engines:
    limits = dict.fromkeys(ROLES, engines.limits[role])
    return replace(engines, bounds=dict.fromkeys(ROLES, engines.bounds[role]), limits=limits)


def _bucket(curves: Curves, context: float, source: str) -> ContextCurves:
    return calibrated.whole(curves, source).at_context(context)


def _speeds(bucket: ContextCurves, role: Role) -> SpeedCurve:
    found = bucket.of(role)
    assert found is not None
    return found


def _pace(curve: SpeedCurve, role: Role, most: int) -> Pace:
    """Steps by the measured speeds. How many tokens a step gains was not measured; it matters where steps of two
    engines alternate on shared GPUs, and for how long the first token waits."""
    gained = DEFAULT_ACCEPT_LENGTH if role is SPECULATIVE else 1.0
    step_s = [gained * curve.seconds_per_token(n) for n in range(1, most + 1)]
    return Pace((0.0, *step_s), (0.0, *[gained] * most))


def _limit(settings: Settings | None, role: Role) -> int | None:
    limit = None if settings is None else settings.backends.of(role).max_in_flight
    return None if limit == "auto" else limit


def _prefill(bucket: ContextCurves, traffic: Traffic) -> tuple[dict[Role, float], str]:
    found = dict(zip(ROLES, bucket.prefill_tok_s, strict=True))
    from_log = {role: prefill_tok_s(traffic, role) for role in ROLES if found[role] is None}
    known = {role: speed or from_log.get(role) for role, speed in found.items()}
    # Two engines of one model take in prompts about as fast.
    spare = next((speed for speed in known.values() if speed is not None), None)
    rates = {role: known[role] or spare or DEFAULT_PREFILL_TOKENS_PER_S for role in ROLES}
    told = f"prefill {rates[SPECULATIVE]:.0f} and {rates[BASELINE]:.0f} tok/s"
    if spare is None:
        return rates, f"{told}, assumed: neither the file nor the log tells it"
    return rates, told if not from_log else f"{told}, by the log's first tokens where the file tells none"
