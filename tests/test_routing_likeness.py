"""Where measured curves say nothing of which backend is the better one."""

from math import log

import pytest
from fakes.speeds import TABLES, Table, bucket, curves, of_both
from hypothesis import given
from test_routing_learner import CURVES, Engine, by, taught

from proxy.model import BASELINE, SPECULATIVE
from proxy.routing.curves import Curves
from proxy.routing.learner import Learner
from proxy.routing.likeness import ALIKE, alike, all_alike

FLAT: Table = {1: 40.0, 8: 310.0, 64: 900.0}
FAST: Table = {1: 400.0, 8: 3100.0, 64: 9000.0}


@given(TABLES)
def test_equal_curves_tell_nothing(table: Table) -> None:
    assert alike(bucket(table, table))


def test_curves_that_differ_anywhere_tell_something() -> None:
    assert alike(bucket({**FLAT, 64: 900.0 * (1.0 + 0.9 * ALIKE)}, FLAT))
    assert not alike(bucket({**FLAT, 64: 900.0 * (1.0 + 1.3 * ALIKE)}, FLAT))
    assert not alike(bucket(None, FLAT))


def test_curves_of_one_context_alone_are_compared() -> None:
    both = curves(bucket(FLAT, FLAT, 1024), bucket({1: 80.0}, {1: 40.0}, 32768))
    assert [alike(each) for each in both.contexts] == [True, False]
    assert not all_alike(both)
    assert log(80.0 / 40.0) > ALIKE


@pytest.mark.parametrize(
    ("measured", "shared", "follows"),
    [(of_both(FAST, FAST), True, True), (of_both(FAST, FAST), False, False), (CURVES, True, False)],
)
def test_alike_on_shared_gpus_what_was_not_seen_of_speculation_is_like_the_baseline_as_that_was_seen(
    measured: Curves, shared: bool, follows: bool
) -> None:
    learner = Learner(measured, shared=shared)
    at_s = taught(learner, Engine(learner, SPECULATIVE), 2, 10)
    at_s = taught(learner, Engine(learner, BASELINE, 2.0), 32, 10, at_s)
    for second in range(4):  # two curves a turn
        learner.turn(at_s + second)
    assert by(learner, BASELINE, 32.0) == pytest.approx(2.0, rel=0.05)
    assert by(learner, SPECULATIVE, 2.0) == pytest.approx(1.0, rel=0.05)
    assert (by(learner, SPECULATIVE, 32.0) > 1.5) is follows
