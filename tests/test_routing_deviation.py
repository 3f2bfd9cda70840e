"""A difference is told beyond what is uncertain, stays until it is clearly gone, and is not made of noise."""

from math import exp
from random import Random

import pytest

from proxy.routing.belief import Belief
from proxy.routing.deviation import LEAST, MIN_SEEN, Deviation, pooled
from proxy.routing.evidence import Seen

VARIANCE = 0.02**2


def taught(ln_ratio: float, *, times: int = 40, in_flight: float = 1.0, variance: float = VARIANCE) -> Belief:
    belief = Belief()
    for _ in range(times):
        belief.observe(0, Seen(in_flight, 0.0, 0.02, variance), ln_ratio, 0.0)
    return belief


def test_too_few_looks_or_too_rough_ones_tell_nothing() -> None:
    assert Deviation().look(Belief(), 1000, 0.0) is None
    assert Deviation().look(taught(0.3), MIN_SEEN - 1, 0.0) is None
    assert Deviation().look(taught(0.3, times=1, variance=0.2**2), MIN_SEEN, 0.0) is None


def test_a_difference_beyond_what_is_uncertain_is_told_and_a_smaller_one_agrees() -> None:
    told, agrees = Deviation().look(taught(0.12), MIN_SEEN, 0.0), Deviation().look(taught(0.04), MIN_SEEN, 0.0)
    assert told is not None and agrees is not None
    assert told.ratio == pytest.approx(exp(0.12), rel=0.01)
    assert (agrees.ratio, agrees.within) == (None, LEAST)


def test_what_is_rough_must_differ_by_more() -> None:
    rough = Deviation().look(taught(0.12, times=1, variance=0.08**2), MIN_SEEN, 0.0)
    assert rough is not None
    assert rough.ratio is None and rough.within > 0.12


def test_what_was_told_stays_until_it_is_clearly_gone() -> None:
    deviation, seen = Deviation(), []
    for ln_ratio in (0.049, 0.051, 0.049, 0.03, 0.024, 0.049):
        found = deviation.look(taught(ln_ratio), MIN_SEEN, 0.0)
        assert found is not None
        seen.append(found.ratio is not None)
    assert seen == [False, True, True, True, False, False]


def test_a_number_that_moves_by_little_is_not_told_anew() -> None:
    deviation, told = Deviation(), set()
    for ln_ratio in (0.12, 0.13, 0.11, 0.135, 0.2):
        found = deviation.look(taught(ln_ratio), MIN_SEEN, 0.0)
        assert found is not None and found.ratio is not None
        told.add(round(found.ratio, 2))
    assert told == {round(exp(0.12), 2), round(exp(0.2), 2)}


def test_noise_of_an_engine_that_is_as_measured_is_never_told() -> None:
    """Looks of a few in flight are off by some hundredths each, and the load wanders."""
    chance, belief, deviation, told = Random(7), Belief(), Deviation(), []
    for number in range(600):
        in_flight = chance.choice((1.0, 2.0, 4.0, 8.0))
        belief.observe(0, Seen(in_flight, 0.0, 0.02, 0.05**2), chance.gauss(0.0, 0.05), float(number))
        found = deviation.look(belief, number, float(number))
        told += [] if found is None else [found.ratio]
    assert set(told) == {None} and len(told) > 500


def test_what_differs_from_load_to_load_is_uncertain_as_one_number() -> None:
    belief = taught(0.0)
    for _ in range(40):
        belief.observe(0, Seen(64.0, 0.0, 0.02, VARIANCE), 0.4, 0.0)
    mean, variance = pooled(belief, 0.0)
    assert 0.1 < mean < 0.3
    assert variance > 0.15**2
