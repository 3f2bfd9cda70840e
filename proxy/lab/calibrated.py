"""What a calibration wrote (curves.yaml), as the laboratory takes it: at one context, in the form of a published curve.

Reading the file is config's, writing it speeds_file.py's.
"""

from dataclasses import replace
from pathlib import Path

from proxy.config.curves_file import read_curves
from proxy.errors import ConfigError
from proxy.lab.curve import DEFAULT_PREFILL_TOKENS_PER_S, Curve
from proxy.lab.step_time import Point
from proxy.model import BASELINE, ROLES, SPECULATIVE
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve


def is_meant(said: str) -> bool:
    """Whether a file of that name is one of a calibration; published curves are JSON."""
    return Path(said).suffix in {".yaml", ".yml"}


def read(path: Path, named: str) -> Curves:
    """The speeds in a file, which messages call `named`. Raises `ConfigError` with every problem."""
    try:
        curves, problems = read_curves(path)
    except ValueError as error:
        raise ConfigError(f"{named}: {error}") from error
    if curves is None:
        raise ConfigError("\n".join(str(problem) for problem in problems))
    return curves


def whole(curves: Curves, source: str) -> Curves:
    """Without the contexts in which one backend was not measured. Raises `ConfigError` where no other is left."""
    both = tuple(each for each in curves.contexts if each.speculative is not None and each.baseline is not None)
    if not both:
        raise ConfigError(
            f"{source}: no context has the speeds of both backends; mend: calibrate again with both of them"
        )
    return replace(curves, contexts=both)


def curve_of(bucket: ContextCurves, source: str) -> Curve:
    """The speeds at one context, which has those of both backends."""
    both = {role: _speeds(bucket.of(role)) for role in ROLES}
    at = sorted({point.in_flight for curve in both.values() for point in curve.points})
    points = tuple(Point(n, both[SPECULATIVE].tok_s(n), both[BASELINE].tok_s(n)) for n in at)
    return Curve(
        name=source,
        hardware="",
        model="",
        engine="",
        spec_config="",
        verify_tokens=None,
        accept_length=None,
        points=points,
        fit=None,
        source=source,
        verified=True,
        context_tokens=bucket.context_tokens,
    )


def smallest(path: Path) -> tuple[Curve, str]:
    """The curve at the smallest context in a file, named as the file is without its ending, and a sentence on what was
    taken. Raises `ConfigError` with the mend."""
    curves = whole(read(path, str(path)), str(path))
    first, *others = curves.contexts
    # One speed for both engines, as published curves have it: two of one model take in prompts about as fast.
    prefill = next((speed for speed in first.prefill_tok_s if speed is not None), DEFAULT_PREFILL_TOKENS_PER_S)
    told = f"{path}: measured at {first.context_tokens} tokens of context, placement {curves.placement}"
    if others:
        told += f"; left out: {', '.join(str(each.context_tokens) for each in others)} tokens"
    return replace(curve_of(first, path.stem), prefill_tokens_per_s=prefill), told


def _speeds(found: SpeedCurve | None) -> SpeedCurve:
    assert found is not None
    return found
