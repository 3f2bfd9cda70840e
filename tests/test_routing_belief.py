"""What is believed of a backend beside its curve: smooth, soon, and no more than evidence tells."""

from math import exp, inf, isfinite, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.belief import MOST_LN, Belief
from proxy.routing.evidence import LEAST_VARIANCE, Seen


def fed(belief: Belief, n: float, ln_ratio: float, times: int, at_s: float = 0.0) -> int:
    """Observe the same again and again, one a second, turning each time; how many changes were seen."""
    changes = 0
    for second in range(times):
        now_s = at_s + second
        changes += belief.observe(0, seen(n), ln_ratio, now_s)
    return changes


def seen(n: float) -> Seen:
    return Seen(n, 0.0, 0.02, 2.0 * LEAST_VARIANCE)


def test_without_evidence_the_curve_holds() -> None:
    assert Belief().line(0.0).at(0, 7.0) == 0.0


def test_evidence_is_believed_within_some_looks() -> None:
    belief = Belief()
    fed(belief, 4.0, 0.4, 5)
    assert belief.line(5.0).at(0, 4.0) == pytest.approx(0.4, abs=0.02)


def test_a_line_goes_on_as_the_one_under_it_where_nothing_is_known_and_says_there_what_it_knows() -> None:
    under, belief = Belief(), Belief()
    fed(under, 40.0, 0.7, 5)
    fed(belief, 2.0, 0.4, 5)
    line = belief.line(5.0, under.line(5.0))
    assert line.at(0, 2.0) == pytest.approx(0.4, abs=0.03)
    assert line.at(0, 40.0) > belief.line(5.0).at(0, 40.0) + 0.5


def test_neighbours_follow_most_and_distant_ones_little() -> None:
    belief = Belief()
    fed(belief, 4.0, 0.4, 5)
    line = belief.line(5.0)
    assert line.at(0, 4.0) > line.at(0, 8.0) > line.at(0, 64.0) > 0.0
    assert line.at(0, 64.0) < 0.25 * line.at(0, 4.0)


def test_another_context_follows_in_part() -> None:
    belief = Belief()
    fed(belief, 4.0, 0.4, 5)
    line = belief.line(5.0)
    assert 0.3 * line.at(0, 4.0) < line.at(1, 4.0) < 0.9 * line.at(0, 4.0)


def test_a_shape_that_is_wrong_both_ways_is_learned() -> None:
    belief = Belief()
    fed(belief, 2.0, -0.5, 10)
    fed(belief, 48.0, 0.6, 10, at_s=10.0)
    line = belief.line(20.0)
    assert line.at(0, 2.0) == pytest.approx(-0.5, abs=0.03)
    assert line.at(0, 48.0) == pytest.approx(0.6, abs=0.03)
    assert belief.changes == 0  # a place that was not known before is no change


def test_a_drop_of_acceptance_is_seen_at_once_and_believed_everywhere() -> None:
    belief = Belief()
    for n in (1.0, 4.0, 16.0):
        fed(belief, n, 0.0, 20)
    assert fed(belief, 4.0, log(1 / 0.55), 4, at_s=20.0) >= 1
    line = belief.line(24.0)
    for n in (1.0, 4.0, 16.0):
        assert line.at(0, n) == pytest.approx(log(1 / 0.55), abs=0.12)


def test_scatter_is_no_change() -> None:
    belief = Belief()
    for second in range(2000):
        belief.observe(0, seen(4.0), 0.03 * (-1) ** (second // 3), float(second))
    assert belief.changes == 0


def test_one_wild_observation_is_no_change() -> None:
    belief = Belief()
    fed(belief, 4.0, 0.0, 20)
    assert fed(belief, 4.0, 2.0, 1, at_s=20.0) == 0


def test_what_is_old_gives_way_to_what_is_new() -> None:
    line = []
    for later_s in (10.0, 36_000.0):
        belief = Belief()
        fed(belief, 4.0, 0.3, 20)
        line.append(belief.line(20.0 + later_s).at(0, 4.0))
    assert line[0] > line[1] > 0.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.floats(0.5, 1e6), st.floats(-1e6, 1e6), st.floats(1e-4, 1e3), st.floats(-1e6, 1e6)
        ),
        max_size=40,
    ),
    st.floats(1.0, 1e6),
    st.floats(-1e6, 1e6),
)
def test_whatever_is_observed_corrections_are_bounded(
    observed: list[tuple[int, float, float, float, float]], n: float, now_s: float
) -> None:
    belief = Belief()
    for bucket, in_flight, ln_ratio, variance, at_s in observed:
        belief.observe(bucket, Seen(in_flight, 0.0, 0.01, variance), ln_ratio, at_s)
    found = belief.line(now_s).at(0, n)
    assert isfinite(found) and abs(found) <= MOST_LN
    assert exp(-MOST_LN) == pytest.approx(1 / 8)


def test_how_well_a_load_is_known_is_told_by_it_and_by_more() -> None:
    belief = Belief()
    assert belief.variance(0, 1.0, 0.0) == inf
    belief.observe(0, Seen(8.0, 0.0, 0.01, 0.01), 0.2, 0.0)
    assert belief.variance(0, 4.0, 0.0) == belief.variance(0, 8.0, 0.0) < 0.02
    assert belief.variance(0, 16.0, 0.0) == belief.variance(1, 8.0, 0.0) == inf
