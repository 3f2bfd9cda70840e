"""Arms compare only where all of them get the same requests."""

from pair.arrivals import LONGEST, SHORTEST, Step, arrivals

from proxy.lab.loadreport import spread


def test_arrivals_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    steps = [Step(5.0, 20.0), Step(50.0, 20.0)]

    assert arrivals(steps, 200, 1) == arrivals(steps, 200, 1)
    assert arrivals(steps, 200, 1) != arrivals(steps, 200, 2)


def test_a_step_has_the_same_gaps_and_answers_whatever_came_before_it() -> None:
    one, other = (arrivals([first, Step(8.0, 30.0)], 100, 1) for first in (Step(2.0, 30.0), Step(40.0, 30.0)))

    later = [[(each.at_s, each.tokens) for each in found if each.step == 1] for found in (one, other)]
    assert later[0] == later[1] != []


def test_arrivals_come_in_order_within_their_step_and_as_often_as_asked_for() -> None:
    found = arrivals([Step(10.0, 400.0), Step(1.0, 400.0)], 200, 3)

    assert [each.index for each in found] == list(range(len(found)))
    assert all(400.0 * each.step <= each.at_s < 400.0 * (each.step + 1) for each in found)
    assert found == sorted(found, key=lambda each: each.at_s)
    counts = [sum(each.step == place for each in found) for place in (0, 1)]
    # Five standard deviations of a Poisson count.
    assert abs(counts[0] - 4000) < 5 * 4000**0.5
    assert abs(counts[1] - 400) < 5 * 400**0.5


def test_answers_differ_about_their_mean_and_none_is_out_of_all_proportion() -> None:
    lengths = spread(each.tokens for each in arrivals([Step(10.0, 400.0)], 200, 3))

    assert lengths is not None
    assert abs(lengths.mean - 200) < 10
    assert 200 * SHORTEST <= lengths.p10 < 150
    assert 250 < lengths.p90 <= 200 * LONGEST
