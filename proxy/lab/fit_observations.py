"""What a fit is made from and judged by: single figures of a role's throughput, and errors at them. No solving here."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.lab.curves import Curve
from proxy.lab.step_time import ModelM
from proxy.model import ROLES, Role


class Errors(NamedTuple):
    """Relative errors as shares: means of the magnitude over each role's points, and the greatest of all."""

    baseline: float
    speculative: float
    greatest: float


class Observed(NamedTuple):
    """One figure: a role's throughput, output tok/s, with `batch` sequences of `context` tokens."""

    role: Role
    batch: float
    context: float
    tok_s: float


def errors_of(model: ModelM, rows: Sequence[Observed]) -> Errors:
    """How far a formula is from what was observed; nan for a role without observations."""
    off: dict[Role, list[float]] = {role: [] for role in ROLES}
    for row in rows:
        off[row.role].append(abs(model.throughput(row.role, row.batch, row.context) / row.tok_s - 1.0))
    means = [sum(off[role]) / len(off[role]) if off[role] else math.nan for role in ROLES]
    return Errors(means[1], means[0], max(max(values, default=0.0) for values in off.values()))


def observations_of(curves: Sequence[Curve]) -> Iterator[Observed]:
    """All measured figures of the curves; what was interpolated is not among them."""
    for curve in curves:
        for role in ROLES:
            for speed in curve.speeds(role):
                if speed.concurrency not in curve.inferred:
                    yield Observed(role, speed.concurrency, float(curve.context_tokens), speed.tok_s)


def places_to_fit(rows: Sequence[Observed]) -> list[int]:
    """Places of every other concurrency of each context, the first and the last included: about 60 % of the points."""
    kept = []
    for context in sorted({row.context for row in rows}):
        batches = sorted({row.batch for row in rows if row.context == context})
        chosen = {*batches[::2], batches[-1]}
        kept += [place for place, row in enumerate(rows) if row.context == context and row.batch in chosen]
    return sorted(kept)
