"""What each policy says of new requests: what the latest did and where the next goes do not contradict each other."""

from typing import Any

import pytest
from fakes.told import PRESENTS
from hypothesis import given

from proxy.model import ROLES, Costs, Policy, Reason
from proxy.telling import FORCED, Lately, Present, Side, now

SPECULATIVE, BASELINE = ROLES


def weighed(lately: Lately | None, held: int = 1, **more: Any) -> Present:
    """Under policy marginal, where one more would go to the baseline."""
    numbers = {"next": BASELINE, "reason": Reason.CHEAPER, "costs": Costs(7.0, 5.0), "tokens": 256.0, **more}
    return Present(Policy.MARGINAL, Side(SPECULATIVE, held), Side(BASELINE, 0), lately=lately, **numbers)


def test_the_length_of_answer_that_the_delays_are_of_is_told() -> None:
    assert now(weighed(None)) == (
        "New requests go to baseline: by the measured speeds one more delays all requests least there (by 5 s for an "
        "answer of the expected 260 tokens, on speculative by 7 s)."
    )
    assert "5 s for an answer of the expected 260 tokens, hardly less than on spec" in now(
        weighed(None, costs=Costs(5.04, 5.0))
    )


def test_where_the_latest_went_comes_first_while_one_more_beside_them_would_go_elsewhere() -> None:
    assert now(weighed(Lately(4, 4), spare=True)) == (
        "New requests go to speculative while it is idle, as all of the latest did; one more beside those would go to "
        "baseline, where by the measured speeds it delays all requests less (by 5 s for an answer of the expected 260 "
        "tokens, on speculative by 7 s)."
    )
    assert "to speculative while few are in flight there, as nearly all of the latest did" in now(
        weighed(Lately(40, 38), 3, spare=True)
    )


def test_where_the_next_goes_comes_first_when_the_load_has_turned() -> None:
    told = now(weighed(Lately(40, 40), 3))
    assert told.startswith("New requests would go to baseline now: by the measured speeds one more delays all requests")
    assert told.endswith("; all of the latest went to speculative.")


@pytest.mark.parametrize(
    ("lately", "split"),
    [
        (Lately(4, 3), "are split, lately 3 of 4 to speculative: each goes where"),
        (Lately(53, 28), "are split, lately about 50 % to speculative: each goes where"),
    ],
)
def test_a_split_is_told_in_numbers_that_a_few_more_requests_do_not_change(lately: Lately, split: str) -> None:
    assert split in now(weighed(lately)) and "the next to baseline (by 5 s" in now(weighed(lately))


def test_a_full_backend_is_not_said_to_be_the_slower_one() -> None:
    full = weighed(None, reason=Reason.OTHER_FULL)
    assert now(full) == "New requests go to baseline, since speculative cannot take them."


@pytest.mark.parametrize("policy", Policy)
def test_requests_that_named_their_backend_are_told_before_the_policy_under_each(policy: Policy) -> None:
    sides = Side(SPECULATIVE), Side(BASELINE)
    told = now(Present(policy, *sides, lately=Lately(40, 39, Reason.HEADER, 38, 38)))
    start = "Of the latest 40 requests 38 named their backend (x-crossover-backend) and went to speculative; others go "
    assert told.startswith(start), told


def test_what_most_of_them_were_forced_by_is_told_with_where_they_went() -> None:
    def told(*lately: Any) -> str:
        return now(weighed(Lately(*lately)))

    assert told(9, 0, Reason.RULE, 9, 0).startswith(
        "Of the latest 9 requests all were sent by a rule of routing.rules and went to baseline; others go to baseline:"
    )
    assert "and were split, 4 of 9 to speculative; others go to" in told(9, 4, Reason.HEADER, 9, 4)
    assert told(1, 1, Reason.HEADER, 1, 1).startswith("New requests")


@pytest.mark.parametrize(
    ("reason", "speculative", "words"),
    [
        (Reason.OPERATOR_PIN, 0, "38 went to baseline by the pin that an operator has taken back."),
        (Reason.PINNED, 38, "38 went to speculative by the pin of the configuration as it was then."),
        (Reason.OTHER_FULL, 18, "38 went to both (about 50 % to speculative) since the other backend took none then."),
    ],
)
def test_what_sent_most_of_them_and_is_over_is_told_after_where_all_go_now(
    reason: Reason, speculative: int, words: str
) -> None:
    told = now(weighed(Lately(40, speculative, reason, 38, speculative), spare=True))
    assert told.startswith(
        "New requests go to baseline: by the measured speeds one more delays all requests least there"
    )
    assert told.endswith(f"; of the latest 40, {words}")


def test_an_operators_pin_is_louder_than_what_was_before_it() -> None:
    pinned = weighed(Lately(9, 9, Reason.HEADER, 9, 9), pinned=BASELINE)
    assert now(pinned) == "All requests go to baseline: an operator pinned them there."


def test_no_reason_of_the_policies_own_is_one_that_forces() -> None:
    own = {Reason.REGIME, Reason.CHEAPER, Reason.ROOM, Reason.OVERFLOW, Reason.PROBE, Reason.FULL}
    assert set(Reason) - own == FORCED


@given(PRESENTS)
def test_counts_of_the_moment_are_left_to_what_stands_beside_the_sentence(state: Present) -> None:
    weighs = state.policy in (Policy.MARGINAL, Policy.CONSOLIDATE, Policy.OVERFLOW)
    assert not weighs or "in flight on" not in now(state)
