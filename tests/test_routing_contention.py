"""What a backend shows of itself while the other one works on the same GPUs."""

import pytest

from proxy.routing.contention import Alone, parted, steps


def test_the_mean_step_is_told_by_two_looks() -> None:
    found = steps((0.0,) * 6, (100.0, 400.0, 2e6, 1600.0, 8e6, 1000.0), 2)
    assert found is not None
    assert found.in_flight == 8.0
    assert (found.step_s, found.tokens) == pytest.approx((0.020, 2.5))


def test_the_other_s_steps_are_taken_away() -> None:
    # The other one took 30 ms with 10 alone, and takes 33 ms with the 12 that it holds now.
    now, other = Alone(1.0, 0.045, 2.0), Alone(10.0, 0.030, 1.0)
    seen = parted(now, other, 12.0, lambda n: n * (0.015 + 0.0015 * n))
    assert seen is not None
    assert seen.seconds_per_token == pytest.approx((0.045 - 0.033) / 2.0)
    assert seen.in_flight == 1.0


def test_where_hardly_anything_is_left_steps_do_not_alternate_and_nothing_is_shown() -> None:
    assert parted(Alone(1.0, 0.031, 2.0), Alone(10.0, 0.030, 1.0), 10.0, lambda n: n * 0.03) is None


def test_a_guess_is_the_better_the_less_is_taken_away() -> None:
    def total(n: float) -> float:
        return n * 0.03

    much, little = (parted(Alone(4.0, step_s, 2.0), Alone(10.0, 0.030, 1.0), 10.0, total) for step_s in (0.045, 0.120))
    assert much is not None and little is not None
    assert little.variance < 0.2 * much.variance
