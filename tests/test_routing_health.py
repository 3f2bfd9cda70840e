"""Health from probe answers and flowing tokens."""

from itertools import cycle, islice, product, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.routing.health import Evidence, Health, HealthRules, advance

HIT, MISS, NOT_READY, TOKENS = Evidence.HIT, Evidence.MISS, Evidence.NOT_READY, Evidence.TOKENS
REFUSED, SILENCE = Evidence.REFUSED, Evidence.SILENCE
UP, DOWN = Health(True), Health(False)


def after(health: Health, *signs: Evidence, rules: HealthRules | None = None) -> Health:
    for second, sign in enumerate(signs):
        health = advance(rules or HealthRules(), health, sign, float(second))
    return health


@pytest.mark.parametrize(
    ("sign", "up"), [(HIT, True), (TOKENS, True), (MISS, False), (NOT_READY, False), (REFUSED, False)]
)
def test_the_first_evidence_decides_when_nothing_is_known(sign: Evidence, up: bool) -> None:
    health = advance(HealthRules(), Health(), sign, 3.0)
    assert (health.up, health.since_s) == (up, 3.0)


@pytest.mark.parametrize(
    ("signs", "up"),
    [
        ((MISS, MISS), True),
        ((MISS, MISS, MISS), False),
        ((MISS, MISS, HIT, MISS, MISS), True),
        ((MISS, MISS, TOKENS, MISS, MISS), True),
        ((MISS, MISS, NOT_READY, MISS, MISS), True),
        ((NOT_READY,), True),
        ((NOT_READY, NOT_READY), False),
        ((NOT_READY, TOKENS, NOT_READY), False),
        ((NOT_READY, MISS, NOT_READY), False),
        ((NOT_READY, HIT, NOT_READY), True),
    ],
)
def test_a_healthy_backend_goes_down_only_after_enough_in_a_row(signs: tuple[Evidence, ...], up: bool) -> None:
    assert after(UP, *signs).up is up


@pytest.mark.parametrize(
    ("signs", "up"),
    [
        ((HIT,), False),
        ((HIT, HIT), True),
        ((HIT, MISS, HIT), False),
        ((HIT, NOT_READY, HIT), False),
        ((TOKENS,), True),
        ((MISS, TOKENS), True),
        ((NOT_READY, TOKENS), False),
        ((NOT_READY, HIT, TOKENS), False),
        ((NOT_READY, TOKENS, HIT, HIT), True),
    ],
)
def test_a_backend_that_missed_comes_up_by_hits_or_by_tokens(signs: tuple[Evidence, ...], up: bool) -> None:
    assert after(UP, MISS, MISS, MISS, *signs).up is up


def test_tokens_do_not_overrule_an_engine_that_says_it_is_not_ready() -> None:
    down = after(UP, NOT_READY, NOT_READY)
    assert after(down, *[TOKENS] * 20).up is False
    assert after(down, HIT, HIT).up is True


def test_one_not_ready_before_three_misses_leaves_tokens_their_say() -> None:
    assert after(UP, NOT_READY, MISS, MISS, MISS, TOKENS).up is True


def test_a_probe_that_misses_every_third_time_never_flaps() -> None:
    health = after(Health(), *islice(cycle([HIT, HIT, MISS]), 300))
    assert (health.up, health.since_s) == (True, 0.0)


def test_a_probe_that_misses_every_third_time_comes_up_once_after_an_outage() -> None:
    health = after(UP, *[MISS] * 5, *islice(cycle([MISS, HIT, HIT]), 300))
    assert (health.up, health.since_s) == (True, 7.0)


def test_the_age_of_a_state_starts_only_when_it_changes() -> None:
    assert after(UP, HIT, MISS, TOKENS, HIT).since_s == UP.since_s
    assert after(UP, MISS, MISS, MISS, MISS, MISS).since_s == 2.0


def test_nothing_is_made_when_a_healthy_backend_shows_health() -> None:
    assert advance(HealthRules(), UP, HIT, 1.0) is UP
    assert advance(HealthRules(), UP, TOKENS, 1.0) is UP


signs = st.lists(st.sampled_from(Evidence), max_size=60)
some_rules = st.builds(HealthRules, st.integers(1, 5), st.integers(1, 4))


@given(some_rules, signs)
def test_a_backend_never_comes_down_without_enough_in_a_row_since_the_last_hit(
    rules: HealthRules, run: list[Evidence]
) -> None:
    health = UP
    since_hit: list[Evidence] = []
    for sign in run:
        was = health.up
        health = advance(rules, health, sign, 0.0)
        since_hit = [] if sign is HIT else [*since_hit, sign]
        if was and not health.up:
            in_a_row = list(takewhile(lambda each: each in (MISS, REFUSED, SILENCE), reversed(since_hit)))
            weight = in_a_row.count(MISS) + rules.refused_weighs * in_a_row.count(REFUSED)
            assert since_hit.count(NOT_READY) >= 2 or weight >= rules.max_misses or SILENCE in since_hit
            since_hit = []


@given(some_rules, signs)
def test_hits_alone_always_bring_a_backend_up(rules: HealthRules, run: list[Evidence]) -> None:
    assert after(after(Health(), *run, rules=rules), *[HIT] * rules.min_hits, rules=rules).up is True


@given(some_rules, signs)
def test_misses_alone_always_take_a_backend_down(rules: HealthRules, run: list[Evidence]) -> None:
    assert after(after(Health(), *run, rules=rules), *[MISS] * rules.max_misses, rules=rules).up is False


def test_every_state_takes_every_evidence_and_is_known_from_then_on() -> None:
    known = (Health(*state) for state in product((True, False), range(4), range(3), range(3)))
    for health, sign in product((Health(), *known), set(Evidence) - {SILENCE}):
        assert advance(HealthRules(), health, sign, 1.0).up is not None


@pytest.mark.parametrize(("max_misses", "needed"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (100, 2)])
def test_two_refused_probes_take_a_backend_down(max_misses: int, needed: int) -> None:
    rules = HealthRules(max_misses=max_misses)
    assert after(UP, *[REFUSED] * needed, rules=rules).up is False
    assert after(UP, *[REFUSED] * (needed - 1), rules=rules).up is True


def test_a_hit_between_two_refused_probes_keeps_a_backend_up() -> None:
    assert after(UP, REFUSED, HIT, REFUSED).up is True


def test_tokens_bring_a_backend_up_that_only_refused_probes() -> None:
    assert after(UP, REFUSED, REFUSED, TOKENS).up is True


@pytest.mark.parametrize("sign", [MISS, NOT_READY, REFUSED])
def test_one_failed_look_takes_a_backend_down_after_a_silent_generation(sign: Evidence) -> None:
    assert after(UP, SILENCE, sign).up is False


@pytest.mark.parametrize("cleared_by", [HIT, TOKENS])
def test_silence_is_forgotten_when_the_backend_generates(cleared_by: Evidence) -> None:
    assert after(UP, SILENCE, cleared_by) == UP
    assert after(UP, SILENCE, cleared_by, MISS).up is True


def test_silence_alone_takes_no_backend_down() -> None:
    """The request itself may be what never gets an answer."""
    assert after(UP, *[SILENCE] * 20).up is True


def test_silence_says_nothing_of_a_backend_that_nobody_has_seen() -> None:
    assert after(Health(), SILENCE).up is None


def test_backend_that_came_down_in_doubt_is_believed_again_after_its_first_hit() -> None:
    down = after(UP, SILENCE, MISS)
    assert (down.doubtful, after(down, HIT).doubtful, after(down, HIT, HIT).up) == (True, False, True)
