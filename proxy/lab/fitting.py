"""Fits the step time formula to published curves of one target, and says how far it can be trusted.

Least squares on the logarithm of throughput, both roles at once. Needs scipy; what a formula is stands in step_time.py.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, least_squares

from proxy.errors import ConfigError
from proxy.lab.curves import Curve
from proxy.lab.fit_observations import Errors, Observed, errors_of, observations_of, places_to_fit
from proxy.lab.step_time import ModelM
from proxy.model import Role

# The smallest formula has four parameters; three points of both roles are six figures, and leave two to judge it by.
MIN_POINTS = 3

# Places to begin at: sums of exponentials have several valleys, and the second best is often a tenth worse.
STARTS = 6
# Begin at the same places each time, so that a fit can be repeated.
_SEED = 20

# From where to where each parameter may go, in the units of ModelM; all but `a` and `tau` are fitted by logarithm.
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "t0": (0.1, 500.0),
    "c": (1e-5, 10.0),
    "d0": (1e-3, 200.0),
    "d1": (1e-5, 10.0),
    "m": (0.1, 500.0),
    "ne": (1.0, 5e3),
    "k": (1e-9, 1e-2),
    "kc": (1e-9, 1e-1),
    "a": (1.0, 12.0),
}
_ALWAYS = ("t0", "c", "d0")
_EXPERTS, _DRAFTING, _ATTENTION = ("m", "ne"), ("d1",), ("k", "a")

# Beyond this share an error counts by its size, no longer by its square: a kernel cliff, or a full KV pool, must not
# bend the formula everywhere else.
_CLIFF = 0.05

# Measurements repeat within a hundredth; steps that change the fit by less than this share are for nobody.
_ENOUGH = 1e-6
# A descent that needs more goes along a valley where two parameters trade off, and gains nothing that counts.
_MAX_LOOKS = 100
# With fewer figures over than this, small errors are no sign of a good fit.
_SPARE = 3
# A parameter within this factor of a bound has run against it.
_NEAR = 1.01

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted formula. `held_out` are the errors at points that a second fit of the same shape did not see.

    `free` are the parameters that were fitted, `remarks` sentences on those that were not; `held_out` is None where
    the points are too few to keep any back. `observations` counts figures, two for a point with both roles.
    """

    model: ModelM
    curves: tuple[str, ...]
    free: tuple[str, ...]
    observations: int
    errors: Errors
    held_out: Errors | None
    held_out_points: int
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Observations as columns: throughput of a role with so many sequences of so much context."""

    speculative: NDArray[np.bool_]
    batch: Floats
    context: Floats
    tok_s: Floats

    def at(self, places: Sequence[int]) -> "_Seen":
        chosen = list(places)
        return _Seen(self.speculative[chosen], self.batch[chosen], self.context[chosen], self.tok_s[chosen])


class _Shape(NamedTuple):
    """What is fitted, what is fixed, and the least and greatest accepted length."""

    free: tuple[str, ...]
    verify_tokens: float
    tau: float | None
    longest: float


class _Solved(NamedTuple):
    model: ModelM
    rss: float
    shape: _Shape


def fit(curves: Sequence[Curve]) -> Fit:
    """Fit one formula to curves that differ in context alone. Terms that do not earn their keep are left out.

    Raises `ConfigError` with the mend: too few measured points, mere ratios, or curves of different V.
    """
    _refuse_what_cannot_be_fitted(curves)
    rows = list(observations_of(curves))
    seen = _columns(rows)
    best = min(_candidates(curves, seen), key=lambda solved: _criterion(solved, len(rows)))
    kept = places_to_fit(rows)
    apart = [place for place in range(len(rows)) if place not in kept]
    held_out = None
    if apart and len(kept) > _count(best.shape):
        held_out = errors_of(_solve(best.shape, seen.at(kept)).model, [rows[place] for place in apart])
    free = best.shape.free if best.shape.tau is not None else (*best.shape.free, "tau")
    return Fit(
        model=best.model,
        curves=tuple(curve.name for curve in curves),
        free=free,
        observations=len(rows),
        errors=errors_of(best.model, rows),
        held_out=held_out,
        held_out_points=len(apart) if held_out is not None else 0,
        remarks=tuple(_remarks(curves, best, len(rows))),
    )


# ------------------------------------------------------------------ what is fitted


def _refuse_what_cannot_be_fitted(curves: Sequence[Curve]) -> None:
    for curve in curves:
        if curve.assumed_baseline:
            mend = "fit a curve in tok/s"
            raise ConfigError(f"{curve.name} has only ratios, so that a fit would be of an assumption; mend: {mend}")
    points = sum(1 for curve in curves for point in curve.points if point.concurrency not in curve.inferred)
    if points < MIN_POINTS:
        names = ", ".join(curve.name for curve in curves)
        raise ConfigError(
            f"{names}: {points} measured points with both roles, and a fit needs {MIN_POINTS}; mend: name further "
            "curves of the same target (other contexts), or use the table"
        )
    if len({(curve.hardware, curve.model) for curve in curves}) > 1:
        raise ConfigError("curves of different hardware or models; mend: one target at a time, in several contexts")
    shapes = {curve.draft_tokens for curve in curves}
    if len(shapes) > 1:
        told = ", ".join(f"{curve.name} {curve.draft_tokens}" for curve in curves)
        raise ConfigError(f"curves that verify different numbers of tokens ({told}); mend: fit them one by one")


def _columns(rows: Sequence[Observed]) -> _Seen:
    return _Seen(
        np.array([row.role is Role.SPECULATIVE for row in rows]),
        np.array([row.batch for row in rows]),
        np.array([row.context for row in rows]),
        np.array([row.tok_s for row in rows]),
    )


def _candidates(curves: Sequence[Curve], seen: _Seen) -> Iterator[_Solved]:
    """Solutions of every shape that the observations can carry."""
    lengths = [curve.accept_length for curve in curves if curve.accept_length is not None]
    # A published accepted length is better than a fitted one: it trades off against the cost of drafting.
    tau = sum(lengths) / len(lengths) if len(lengths) == len(curves) else None
    verify_tokens = curves[0].draft_tokens
    longest = float(min(verify_tokens, *(curve.num_steps + 1 for curve in curves)))
    contexts = {float(context) for context in seen.context}
    attention: tuple[tuple[str, ...], ...] = ((), _ATTENTION, (*_ATTENTION, "kc")) if contexts != {0.0} else ((),)
    for experts, drafting, reading in product(((), _EXPERTS), ((), _DRAFTING), attention):
        shape = _Shape((*_ALWAYS, *experts, *drafting, *reading), verify_tokens, tau, longest)
        if len(seen.tok_s) >= _count(shape) + 1:
            yield _solve(shape, seen)


def _remarks(curves: Sequence[Curve], best: _Solved, observations: int) -> Iterator[str]:
    free = best.shape.free
    if observations - _count(best.shape) < _SPARE:
        yield f"{_count(best.shape)} parameters from {observations} figures: the errors say little"
    if all(curve.verify_tokens is None for curve in curves):
        yield f"V = {best.model.verify_tokens:g} is assumed: the source does not give it"
    if best.shape.tau is not None:
        yield f"tau = {best.shape.tau:.3g} is published, and was not fitted"
    if "m" not in free:
        yield "m = 0: a term for the loading of experts does not help"
    if "d1" not in free:
        yield "d1 = 0: drafting that grows with the batch does not help"
    if "k" not in free:
        yield "k = kc = 0, a = 1: contexts do not differ enough to tell attention apart"
    elif "kc" not in free:
        yield "kc = 0: a cost of context for each sequence alone does not help"
    for name in free:
        low, high = _BOUNDS[name]
        # Of a value at the end of its range only that is known.
        if not low * _NEAR < getattr(best.model, name) < high / _NEAR and name != "a":
            yield f"{name} is at the end of its range: these points do not tell it"


# ------------------------------------------------------------------ solving


def _count(shape: _Shape) -> int:
    return len(shape.free) + (shape.tau is None)


def _criterion(solved: _Solved, observations: int) -> float:
    """The Bayesian one: a further parameter must lower the error by more than chance does."""
    spread = max(solved.rss / observations, 1e-12)
    return observations * math.log(spread) + _count(solved.shape) * math.log(observations)


def _solve(shape: _Shape, seen: _Seen) -> _Solved:
    """The best of several starts."""
    names = (*shape.free, "tau") if shape.tau is None else shape.free
    bounds = [_inner_bounds(name, shape.longest) for name in names]
    low, high = np.array([pair[0] for pair in bounds]), np.array([pair[1] for pair in bounds])
    target = np.log(seen.tok_s)

    def off(inner: Floats) -> Floats:
        return _log_tok_s(_outer(names, inner, shape), seen, shape.verify_tokens) - target

    starts = _starts(names, low, high, seen)
    found = min((_descended(off, start, low, high) for start in starts), key=lambda one: float(one.cost))
    values = _outer(names, found.x, shape)
    model = ModelM(verify_tokens=shape.verify_tokens, **{"m": 0.0, "ne": 1.0, "d1": 0.0, **values})
    return _Solved(model, 2.0 * float(found.cost), shape)


def _descended(off: Callable[[Floats], Floats], start: Floats, low: Floats, high: Floats) -> OptimizeResult:
    return least_squares(
        off,
        start,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=_CLIFF,
        ftol=_ENOUGH,
        xtol=_ENOUGH,
        max_nfev=_MAX_LOOKS,
    )


def _starts(names: Sequence[str], low: Floats, high: Floats, seen: _Seen) -> Iterator[Floats]:
    """One likely place, scaled by the step time of the smallest batch, and others strewn around it."""
    step_ms = float(np.max(1000.0 * seen.batch[~seen.speculative] / seen.tok_s[~seen.speculative], initial=10.0))
    likely = {"t0": step_ms / 4, "c": step_ms / 200, "d0": step_ms / 10, "d1": 0.02, "m": step_ms / 3, "ne": 15.0}
    rest = {"k": 2e-5, "kc": 1e-5, "a": 2.5, "tau": (low[-1] + high[-1]) / 2}
    middle = np.array([_inner(name, float({**likely, **rest}[name])) for name in names])
    rng = Random(_SEED)
    for place in range(STARTS):
        strewn = np.array([rng.uniform(-1.0, 1.0) if place else 0.0 for _ in names])
        yield np.clip(middle + strewn, low + 1e-9, high - 1e-9)


def _inner_bounds(name: str, longest: float) -> tuple[float, float]:
    if name == "tau":
        return 1.0, longest
    low, high = _BOUNDS[name]
    return _inner(name, low), _inner(name, high)


def _inner(name: str, value: float) -> float:
    return value if name in {"a", "tau"} else math.log(value)


def _outer(names: Sequence[str], inner: Floats, shape: _Shape) -> dict[str, float]:
    values = {n: float(v) if n in {"a", "tau"} else math.exp(float(v)) for n, v in zip(names, inner, strict=True)}
    return values if shape.tau is None else {**values, "tau": shape.tau}


def _log_tok_s(values: Mapping[str, float], seen: _Seen, verify_tokens: float) -> Floats:
    """As ModelM.throughput, for all observations at once."""
    get = values.get
    tokens = np.where(seen.speculative, verify_tokens, 1.0) * seen.batch
    attention = np.where(seen.speculative, get("a", 1.0), 1.0) * seen.context
    step_ms = values["t0"] + get("m", 0.0) * (1.0 - np.exp(-tokens / get("ne", 1.0))) + values["c"] * tokens
    step_ms += attention * (get("k", 0.0) * seen.batch + get("kc", 0.0))
    step_ms += np.where(seen.speculative, values["d0"] + get("d1", 0.0) * seen.batch, 0.0)
    emitted = np.where(seen.speculative, values["tau"], 1.0) * seen.batch
    result: Floats = np.log(1000.0 * emitted / step_ms)
    return result
