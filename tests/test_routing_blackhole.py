"""Recent failures as load."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.blackhole import HALF_LIFE_S, FailureWeight, add, weigh


def failed(*at_s: float) -> FailureWeight:
    failures = FailureWeight()
    for now_s in at_s:
        failures = add(failures, now_s)
    return failures


def test_a_backend_without_failures_weighs_nothing() -> None:
    assert weigh(FailureWeight(), 0.0) == 0


def test_failures_weigh_one_each_when_they_are_fresh() -> None:
    assert weigh(failed(10.0, 10.0, 10.0), 10.0) == 3


def test_a_failure_weighs_for_one_half_life_and_then_is_forgotten() -> None:
    assert weigh(failed(10.0), 10.0 + HALF_LIFE_S) == 1
    assert weigh(failed(10.0), 10.1 + HALF_LIFE_S) == 0


def test_many_failures_lose_half_their_weight_every_half_life() -> None:
    failures = failed(*[0.0] * 40)
    assert [weigh(failures, lives * HALF_LIFE_S) for lives in range(4)] == [40, 20, 10, 5]


def test_time_that_goes_backwards_neither_adds_nor_forgets() -> None:
    assert weigh(failed(10.0, 10.0), 5.0) == 2
    assert add(failed(10.0), 5.0) == FailureWeight(2.0, 10.0)


@given(st.lists(st.floats(0, 600), max_size=60), st.floats(0, 600), st.floats(0, 600))
def test_the_weight_is_never_negative_never_above_the_failures_and_never_grows_by_itself(
    instants: list[float], first_s: float, second_s: float
) -> None:
    failures = failed(*sorted(instants))
    earlier, later = sorted((first_s, second_s))
    assert 0 <= weigh(failures, 600 + later) <= weigh(failures, 600 + earlier) <= len(instants)
