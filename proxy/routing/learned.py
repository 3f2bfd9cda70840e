"""What was learned as plain values: to show it, and to keep it over a restart. Files are in wire/learned_file.py."""

from collections.abc import Mapping
from hashlib import sha256
from math import exp, isfinite, log
from typing import Any

from proxy.model import ROLES, Role
from proxy.routing.belief import MOST_LN, Bin, Place, bin_of
from proxy.routing.curves import LEAST, MOST, Curves, SpeedCurve
from proxy.routing.evidence import MOST_IN_FLIGHT
from proxy.routing.learner import Learner

VERSION = 1

# What a restart leaves of the weight of what was learned before: an engine may have been started anew with it.
KEPT = 0.5

# Bins that are taken back for one backend: twenty doublings in each of some buckets. More is another file.
MOST_BINS = 500


def digest(curves: Curves) -> str:
    """What tells these curves from any others."""
    measured = [
        (each.context_tokens, [None if curve is None else curve.points for curve in (each.speculative, each.baseline)])
        for each in curves.contexts
    ]
    return sha256(repr((curves.measured_at, measured)).encode()).hexdigest()


def written(learner: Learner, versions: Mapping[Role, str | None], now_s: float) -> dict[str, Any]:
    """Everything that a restart should know; `versions` are those of the engines, where they tell one."""
    return {
        "version": VERSION,
        "curves": digest(learner.curves),
        "engines": {role.value: versions.get(role) for role in ROLES},
        "backends": {
            role.value: [
                [*place, each.weight, each.ln_n, each.ln_ratio, max(0.0, now_s - each.at_s)]
                for place, each in learner.sides[role].belief.bins.items()
            ]
            for role in ROLES
        },
    }


def taken_back(
    learner: Learner, state: object, versions: Mapping[Role, str | None], *, now_s: float, elapsed_s: float
) -> str | None:
    """Take up what was written `elapsed_s` ago; why it is not taken, where it is not: then nothing changes."""
    if not isinstance(state, dict) or state.get("version") != VERSION:
        return "it is no file of this version"
    if state.get("curves") != digest(learner.curves):
        return "it was learned beside other curves"
    engines, backends = state.get("engines"), state.get("backends")
    if not isinstance(engines, dict) or not isinstance(backends, dict):
        return "it is broken"
    for role in ROLES:
        before, now = engines.get(role.value), versions.get(role)
        if before is not None and now is not None and before != now:
            return f"the {role} engine was another version"
    found = {role: _bins(backends.get(role.value), len(learner.curves.contexts), now_s - elapsed_s) for role in ROLES}
    for role, bins in found.items():
        if bins is None:
            return "it is broken"
        learner.sides[role].belief.bins = bins
        learner.sides[role].trust.earned = bool(bins)  # the time before
    return None


def _bins(rows: object, buckets: int, at_s: float) -> dict[Place, Bin] | None:
    if not isinstance(rows, list) or len(rows) > MOST_BINS:
        return None
    bins: dict[Place, Bin] = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 6 or not all(_is_number(value) for value in row):
            return None
        bucket, number, weight, ln_n, ln_ratio, age_s = row
        whole = isinstance(bucket, int) and isinstance(number, int) and 0 <= bucket < buckets
        whole = whole and bin_of(0.5) <= number <= bin_of(MOST_IN_FLIGHT)
        if not whole or abs(ln_n) > log(MOST) or abs(ln_ratio) > MOST_LN or not 0.0 < weight <= MOST or age_s < 0.0:
            return None
        bins[Place(bucket, number)] = Bin(max(LEAST, KEPT * weight), ln_n, ln_ratio, at_s - age_s)
    return bins


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def shown(learner: Learner, now_s: float) -> dict[str, Any]:
    """The evidence and the corrected speeds, for people."""
    return {
        "backends": {role.value: _evidence(learner, role, now_s) for role in ROLES},
        "contexts": [
            {"context_tokens": each.context_tokens, **{role.value: _points(each.of(role)) for role in ROLES}}
            for each in learner.corrected.contexts
        ],
    }


def _evidence(learner: Learner, role: Role, now_s: float) -> list[dict[str, float]]:
    contexts = learner.curves.contexts
    return [
        {
            "context_tokens": contexts[place.bucket].context_tokens,
            "in_flight": round(exp(each.ln_n), 2),
            "ratio": round(exp(each.ln_ratio), 4),
            "age_s": round(max(0.0, now_s - each.at_s), 1),
        }
        for place, each in sorted(learner.sides[role].belief.bins.items())
    ]


def _points(curve: SpeedCurve | None) -> list[dict[str, float]]:
    points = () if curve is None else curve.points
    return [{"in_flight": round(point.in_flight, 2), "tok_s": round(point.tok_s, 2)} for point in points]
