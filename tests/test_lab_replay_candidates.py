"""Which ways are tried, and what each is in the configuration."""

import pickle
from dataclasses import replace

import pytest
from fakes.speeds import of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigError
from proxy.lab.replay.candidates import (
    AS_IT_IS,
    AS_IT_WAS,
    Ground,
    closer,
    default_names,
    in_words,
    numbers,
    same,
)
from proxy.lab.replay.engines import Speeds
from proxy.lab.replay.events import InForce
from proxy.lab.replay.grounds import Asked, ground_of, placement_of
from proxy.lab.replay.traffic import Came, Traffic
from proxy.lab.simulation.arms import names
from proxy.model import BASELINE, SPECULATIVE, Placement, Policy, Role, Traits

CURVES = of_both({1: 90, 4: 250, 16: 400}, {1: 60, 4: 220, 16: 800})
SPEEDS = Speeds("curves.yaml", CURVES)
ROWS = tuple(Came(float(n), 100, 100, 50, 50.0, "/v1/chat/completions", Traits()) for n in range(9))


def ground(
    told: InForce | None = None, sent_to: Role | None = None, placement: Placement = Placement.SEPARATE
) -> Ground:
    return ground_of(Traffic(ROWS, 0.0, told, 1.0, sent_to), None, SPEEDS, Asked(placement), "curves.yaml")


@pytest.mark.parametrize("placement", Placement)
def test_every_usual_way_is_there_and_can_go_to_another_process(placement: Placement) -> None:
    stand = pickle.loads(pickle.dumps(ground(placement=placement)))
    for name in default_names(placement):
        found = stand.candidate(f"{name}:3" if name in (Policy.OVERFLOW, Policy.THRESHOLD) else name)
        assert (found.routing is None) == (name in {"first", "adaptive", "two_baselines"})


@pytest.mark.parametrize(
    ("told", "sent_to", "words"),
    [
        (InForce(Policy.OVERFLOW, 3, 6), None, "overflow:6"),
        (InForce(Policy.THRESHOLD, 3, 7), None, "threshold:7/3"),
        (InForce(Policy.PINNED, 3, 7), SPECULATIVE, "pinned:speculative"),
        (InForce(Policy.MARGINAL, 5, 9), None, "marginal"),
        (InForce(Policy.MARGINAL, None, None), None, "marginal"),
        (InForce(Policy.OVERFLOW, None, 6), None, "overflow:6"),
        (InForce(Policy.OVERFLOW, 9, 0), None, "overflow:1"),
        (None, None, "auto (marginal)"),
    ],
)
def test_without_a_configuration_the_present_is_what_the_log_says(
    told: InForce | None, sent_to: Role | None, words: str
) -> None:
    assert in_words(ground(told, sent_to).settings) == words


def test_with_a_configuration_what_was_in_force_is_another_way_unless_it_decides_the_same() -> None:
    base = ground(InForce(Policy.OVERFLOW, 3, 6)).settings
    for told, another in ((InForce(Policy.OVERFLOW, 3, 6), False), (InForce(Policy.OVERFLOW, 3, 7), True)):
        stand = ground_of(Traffic(ROWS, 0.0, told), base, SPEEDS, Asked(Placement.SEPARATE), None)
        assert (stand.was is not None) is another
        assert stand.candidate(AS_IT_IS).name == "as it is: overflow:6"
        assert stand.candidate(AS_IT_WAS).name == f"as it was: overflow:{told.leave_at}"


def test_a_configuration_without_curves_does_not_get_any_by_being_replayed() -> None:
    base = ground().settings
    bare = base.read_from(replace(base.sources, curves=None))
    stand = ground_of(Traffic(ROWS), bare, SPEEDS, Asked(Placement.SEPARATE), "curves.yaml")
    assert in_words(stand.candidate(AS_IT_IS).arm.settings) == "auto (overflow:9)"
    auto = stand.candidate("auto")
    assert auto.name == "auto (marginal)"
    assert auto.routing == {"policy": Policy.AUTO, "curves_file": "curves.yaml"}


def test_limits_are_as_asked_else_as_the_engines_said_else_as_measured() -> None:
    def limits(asked: Asked) -> dict[Role, int]:
        return dict(ground_of(Traffic(ROWS), None, SPEEDS, asked, None).engines.limits)

    assert limits(Asked(Placement.SEPARATE)) == {SPECULATIVE: 16, BASELINE: 16}
    assert limits(Asked(Placement.SEPARATE, max_running={BASELINE: 48})) == {SPECULATIVE: 16, BASELINE: 48}
    assert limits(Asked(Placement.SEPARATE, None, 7, {BASELINE: 48})) == {SPECULATIVE: 7, BASELINE: 7}


def test_the_placement_is_as_asked_as_configured_or_as_calibrated() -> None:
    shared = Speeds("curves.yaml", replace(CURVES, placement=Placement.SHARED))
    assert placement_of(None, None, shared) is Placement.SHARED
    assert placement_of(None, ground().settings, shared) is Placement.SEPARATE
    assert placement_of("separate", None, shared) is Placement.SEPARATE


@pytest.mark.parametrize("said", ["overflow:none", "threshold:3/9", "threshold:0", "pinned:third", "auto:3", "tides"])
def test_what_means_nothing_is_refused_with_its_mend(said: str) -> None:
    with pytest.raises(ConfigError, match="mend: "):
        ground().candidate(said)


@pytest.mark.parametrize("name", [name for name in names() if name not in set(Policy)])
def test_controls_are_no_configuration_and_keep_to_the_limits(name: str) -> None:
    found = ground().candidate(name)
    assert found.routing is None
    assert {found.arm.settings.backends.of(role).max_in_flight for role in Role} == {16}


def test_two_rules_with_different_numbers_are_not_the_same() -> None:
    one, other = (ground(InForce(Policy.OVERFLOW, 3, n)).settings for n in (6, 7))
    assert same(one, one)
    assert not same(one, other)


@given(st.integers(1, 600), st.integers(1, 600))
def test_the_search_comes_near_any_best_number(most: int, best: int) -> None:
    best = min(best, most)
    means: dict[int, float] = {}
    for tried in (numbers, closer):
        means |= {number: abs(number - best) + 1.0 for number in tried(most, means)}
    assert max(means) <= most
    found = min(means, key=means.__getitem__)
    assert abs(found - best) <= max(1, 0.35 * best) or most < 8
    assert len(means) <= 26
