"""Measured speeds as routing has them: from tables, from a shipped curve, or any at all."""

from collections.abc import Mapping

from hypothesis import strategies as st

from proxy.lab.curves import find
from proxy.model import BASELINE, SPECULATIVE, Placement
from proxy.routing.curves import ContextCurves, Curves, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Verdict, VerdictKind

Table = Mapping[float, float]
UNKNOWN = Verdict(VerdictKind.UNKNOWN)

# Counts and speeds of engines, and some beyond: a staircase, a cliff, a speed that falls as more run.
TABLES = st.dictionaries(st.integers(1, 300).map(float), st.floats(1.0, 5000.0), min_size=1, max_size=6)
BUCKETS = st.lists(st.integers(0, 100_000), min_size=1, max_size=3, unique=True).map(sorted)


PREFILLS = st.tuples(*[st.none() | st.floats(100.0, 50_000.0)] * 2)


def speed_curve(table: Table) -> SpeedCurve:
    return SpeedCurve(tuple(SpeedPoint(*point) for point in sorted(table.items())))


def bucket(
    speculative: Table | None,
    baseline: Table | None,
    tokens: int = 1024,
    prefill_tok_s: tuple[float | None, float | None] = (None, None),
) -> ContextCurves:
    ours, theirs = (None if table is None else speed_curve(table) for table in (speculative, baseline))
    return ContextCurves(tokens, ours, theirs, UNKNOWN, prefill_tok_s=prefill_tok_s)


def curves(*buckets: ContextCurves) -> Curves:
    return Curves(buckets, "2026-11-30T04:12:00Z", Placement.SEPARATE)


def of_both(speculative: Table, baseline: Table) -> Curves:
    """One bucket of context."""
    return curves(bucket(speculative, baseline))


def shipped(name: str) -> Curves:
    """What a shipped curve says."""
    points = find(name).points
    speculative, baseline = ({each.concurrency: each.of(role) for each in points} for role in (SPECULATIVE, BASELINE))
    return of_both(speculative, baseline)


@st.composite
def any_curves(draw: st.DrawFn) -> Curves:
    return curves(*(bucket(draw(TABLES), draw(TABLES), tokens, draw(PREFILLS)) for tokens in draw(BUCKETS)))
