"""What follows from a replay for the person who must decide."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest
import yaml

from proxy import config
from proxy.lab.replay.advice import Advice, Found, Kind, advise
from proxy.lab.replay.noise import Difference
from proxy.model import Policy, Role

NOW = Found("as it is: overflow:9", 4.0, Difference(0.0, 0.0, 0.0), {})
AUTO: dict[str, Any] = {"policy": Policy.AUTO, "curves_file": "a b/curves.yaml"}


def way(mean_s: float, half: float, name: str = "overflow:12", **routing: object) -> Found:
    share = mean_s / NOW.mean_e2e_s - 1
    return Found(name, mean_s, Difference(share, share - half, share + half), routing or None)


def overflow(mean_s: float, half: float) -> Found:
    return way(mean_s, half, policy=Policy.OVERFLOW, leave_at=12)


def told(*found: Found, ratio: float | None = 1.0, needed_s: float | None = None) -> Advice:
    return advise([NOW, *found], needed_s, ratio)


def test_a_sure_gain_is_told_with_its_numbers_and_the_keys_to_set() -> None:
    advice = told(overflow(3.12, 0.03))
    assert advice.kind is Kind.CHANGE
    assert advice.chosen == 1
    assert advice.sentences == (
        "Overflow with leave_at 12 would have served the mean request in 3.12 s instead of 4.00 s (-22.0 %, 95 % "
        "interval -25.0 % to -19.0 %).",
    )
    assert advice.yaml() == "routing:\n  policy: overflow\n  leave_at: 12\n"


def test_a_gain_in_traffic_of_a_moment_is_told_to_be_of_that() -> None:
    moment = advise([NOW, overflow(3.12, 0.03)], None, 1.0, 50.0)
    assert moment.kind is Kind.CHANGE
    assert moment.sentences[-1].startswith("That is of 50 s of traffic: the interval is what chance does within it")
    assert advise([NOW, overflow(3.12, 0.03)], None, 1.0, 1800.0) == told(overflow(3.12, 0.03))


def test_a_difference_within_the_noise_leaves_it_as_it_is_and_says_how_much_that_is() -> None:
    advice = told(overflow(3.95, 0.021), overflow(5.0, 0.01))
    assert advice.kind is Kind.LEAVE
    assert advice.yaml() == ""
    assert "no policy is faster than the present one by more than the noise of this log (±2.1 %)" in advice.sentences[0]


@pytest.mark.parametrize(("mean_s", "half"), [(3.97, 0.001), (4.0, 0.001), (4.4, 0.01)])
def test_what_gains_little_or_nothing_leaves_it_as_it_is_however_sure(mean_s: float, half: float) -> None:
    assert told(overflow(mean_s, half)).kind is Kind.LEAVE


def test_of_two_as_good_the_one_without_a_number_is_taken() -> None:
    advice = told(overflow(3.0, 0.03), way(3.02, 0.03, "auto (marginal)", **AUTO))
    assert advice.routing == AUTO
    assert "no more than 1% better" in advice.sentences[1]


def test_one_that_is_as_good_by_luck_alone_is_not_taken() -> None:
    assert told(overflow(3.0, 0.03), way(3.02, 0.5, "auto", **AUTO)).chosen == 1


def test_auto_by_a_curve_of_the_library_asks_for_a_calibration() -> None:
    advice = told(way(3.0, 0.03, "auto", policy=Policy.AUTO))
    assert "needs the curves.yaml of `crossover calibrate`" in advice.sentences[-1]


@pytest.mark.parametrize("ratio", [0.7, 1.3])
def test_a_simulation_that_is_not_like_life_is_not_to_decide_by(ratio: float) -> None:
    advice = told(overflow(3.0, 0.03), ratio=ratio)
    assert advice.kind is Kind.UNKNOWN
    assert advice.sentences[0].startswith("Do not decide by this")
    assert advice.yaml() == ""


@pytest.mark.parametrize("ratio", [0.81, 1.24, None])
def test_one_that_is_like_life_is(ratio: float | None) -> None:
    assert told(overflow(3.0, 0.03), ratio=ratio).kind is Kind.CHANGE


def test_a_log_too_short_for_intervals_tells_how_long_it_must_be() -> None:
    short = Found("overflow:12", 3.0, Difference(-0.25), {"policy": Policy.OVERFLOW, "leave_at": 12})
    advice = told(short, needed_s=600.0)
    assert advice.kind is Kind.UNKNOWN
    assert "10 blocks of time, here 10 min that count" in advice.sentences[0]


@pytest.mark.parametrize(("share", "low"), [(0.0, None), (-0.0001, None), (0.2, None), (0.0, 0.0)])
def test_where_the_policy_in_force_is_the_best_one_found_that_is_said_and_nothing_held_against_itself(
    share: float, low: float | None
) -> None:
    same = Found("auto (marginal)", 4.0 * (1 + share), Difference(share, low, low), AUTO)
    advice = told(same, needed_s=None if low is not None else 600.0)
    said = advice.sentences[0].lower()
    assert "the policy in force is the best one found" in said
    assert "instead of" not in said and "comes nearest" not in said


def test_no_control_is_ever_advised_and_one_that_is_far_better_is_told() -> None:
    advice = told(way(2.0, 0.02, "two_baselines"), overflow(3.0, 0.03))
    assert advice.chosen == 2
    assert "Two baselines on the same GPUs would have come to 2.00 s (-33.3 %)" in advice.sentences[-1]


def test_without_another_policy_there_is_nothing_to_advise() -> None:
    assert told(way(2.0, 0.02, "first:6")).kind is Kind.LEAVE


@pytest.mark.parametrize(
    "routing",
    [
        AUTO | {"curves_file": 'odd: "name"#.yaml'},
        {"policy": Policy.THRESHOLD, "leave_at": 9, "enter_at": "auto"},
        {"policy": Policy.PINNED, "pin": Role.SPECULATIVE},
        {"policy": Policy.OVERFLOW, "leave_at": 1},
    ],
)
def test_the_keys_are_yaml_that_the_configuration_takes(routing: dict[str, Any]) -> None:
    text = Advice(Kind.CHANGE, (), 1, routing).yaml()
    read = yaml.safe_load(text)["routing"]
    assert read == {key: value if type(value) is int else str(value) for key, value in routing.items()}
    read.pop("curves_file", None)
    urls = {role.value: {"url": f"http://127.0.0.1:{at}"} for at, role in enumerate(Role, 1)}
    config.from_mapping({"backends": urls, "routing": read})


STUCK = replace(NOW, carries=False)


def test_where_the_present_way_does_not_carry_what_came_one_that_does_is_proposed() -> None:
    slow, fast = overflow(3.0, nan), way(2.0, nan, "auto", **AUTO)
    advice = advise([STUCK, replace(way(0.5, nan, "auto", **AUTO), carries=False), slow, fast], None, None)
    assert (advice.kind, advice.chosen, advice.routing) == (Kind.CHANGE, 3, AUTO)
    assert "more comes than the engines carry" in advice.sentences[0]
    assert "carries it: 2.00 s for the mean request" in advice.sentences[1]


def test_where_no_way_carries_what_came_nothing_is_proposed_but_what_helps() -> None:
    advice = advise([STUCK, replace(overflow(3.0, nan), carries=False)], 100.0, None)
    assert (advice.kind, advice.chosen, advice.yaml()) == (Kind.UNKNOWN, None, "")
    assert "lower max_in_flight where speed falls" in advice.sentences[1]


def test_an_overload_in_a_simulation_that_is_not_life_is_no_reason_to_change() -> None:
    assert advise([STUCK, overflow(3.0, nan)], None, 0.01).kind is Kind.UNKNOWN


def test_a_way_that_does_not_carry_what_came_is_never_proposed() -> None:
    advice = told(replace(overflow(1.0, 0.01), carries=False))
    assert advice.sentences == ("Leave it as it is: no other policy that was tried carries what came.",)
    assert told(replace(overflow(1.0, 0.01), carries=False), overflow(3.0, 0.01)).chosen == 2
