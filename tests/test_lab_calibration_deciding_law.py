"""The law that predicts a speculative curve: exact where it holds, close on published curves, sane everywhere."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab import curves
from proxy.lab.calibration.deciding.law import Law, Probe, fit
from proxy.lab.step_time import ModelM
from proxy.model import Role
from proxy.routing.curves import SpeedCurve, SpeedPoint

MODEL = ModelM(t0=8.5, m=24.4, ne=10.6, c=0.2, d0=2.3, d1=0.0, tau=2.2, verify_tokens=4)
PLACES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def baseline(model: ModelM = MODEL) -> SpeedCurve:
    return SpeedCurve(tuple(SpeedPoint(n, model.throughput(Role.BASELINE, n)) for n in PLACES))


def probes(model: ModelM = MODEL) -> list[Probe]:
    return [Probe(n, model.throughput(Role.SPECULATIVE, n)) for n in (1, 2)]


def test_the_law_finds_the_curve_it_was_made_from() -> None:
    law = fit(baseline(), probes(), 2.2, 4)
    assert law.width == 4
    assert law.draft_s == pytest.approx(0.0023, abs=0.0006)
    for n in (4, 8, 16, 32, 64):
        assert law.tok_s(n) == pytest.approx(MODEL.throughput(Role.SPECULATIVE, n), rel=0.05)


def test_a_tree_whose_verification_is_cheaper_than_its_width_gets_a_smaller_one() -> None:
    seed = curves.find("seed")
    base = SpeedCurve(tuple(SpeedPoint(p.concurrency, p.baseline) for p in seed.points if p.baseline))
    law = fit(base, [Probe(1, 80.9), Probe(2, 123.4)], 2.5, 16)
    assert 1.0 <= law.width < 16.0
    truth = {p.concurrency: p.speculative for p in seed.points if p.speculative}
    assert all(law.tok_s(n) == pytest.approx(truth[n], rel=0.25) for n in (4, 8, 16, 32, 48))


def test_published_curves_are_predicted_within_a_tenth_in_the_median() -> None:
    errors = []
    right = []
    for name in curves.shipped():
        curve = curves.find(name)
        points = [p for p in curve.points if p.speculative and p.baseline]
        first = [p for p in points if p.concurrency <= 2]
        if curve.verify_tokens is None or len(points) < 5 or len(first) < 2:
            continue
        base = SpeedCurve(tuple(SpeedPoint(p.concurrency, p.baseline) for p in points))
        law = fit(base, [Probe(p.concurrency, p.speculative) for p in first], curve.accept_length, curve.verify_tokens)
        for point in points[2:]:
            errors.append(abs(math.log(law.tok_s(point.concurrency) / point.speculative)))
            if abs(math.log(point.speculative / point.baseline)) > 0.05:
                right.append((law.tok_s(point.concurrency) > point.baseline) == (point.speculative > point.baseline))
    assert len(errors) > 100
    assert median(errors) < 0.12
    assert sum(right) / len(right) > 0.8


@given(
    tau=st.floats(1.0, 8.0) | st.none(),
    width=st.integers(1, 64) | st.none(),
    speeds=st.lists(st.floats(1.0, 1e5), min_size=1, max_size=3),
)
def test_whatever_the_probes_say_predictions_are_finite_and_above_zero(
    tau: float | None, width: int | None, speeds: list[float]
) -> None:
    law = fit(baseline(), [Probe(n + 1, speed) for n, speed in enumerate(speeds)], tau, width)
    assert isinstance(law, Law)
    assert law.draft_s >= 0.0
    assert 1.0 <= law.width <= max(width or 4, 1)
    assert all(0.0 < law.tok_s(n) < math.inf for n in (1, 7, 300, 5000))
