from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.acceptance import Acceptance


@pytest.mark.parametrize(("mean", "alpha"), [(2.2, 0.61), (2.7, 0.74), (3.25, 0.86)])
def test_alpha_is_solved_from_the_mean_of_a_chain_of_four(mean: float, alpha: float) -> None:
    assert Acceptance(mean, 4).alpha == pytest.approx(alpha, abs=0.01)


@given(st.integers(1, 16).flatmap(lambda longest: st.tuples(st.just(longest), st.floats(1.0, float(longest)))))
def test_draws_lie_within_bounds_and_average_to_the_mean(case: tuple[int, float]) -> None:
    longest, mean = case
    drawn = Acceptance(mean, longest).draw(Random(1), 2000)
    assert 1 <= min(drawn) <= max(drawn) <= longest
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.15)


@pytest.mark.parametrize(("mean", "longest"), [(0.5, 4), (4.5, 4)])
def test_an_impossible_mean_is_refused(mean: float, longest: int) -> None:
    with pytest.raises(ValueError, match="must lie between"):
        Acceptance(mean, longest)
