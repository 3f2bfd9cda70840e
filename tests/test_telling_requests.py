"""One request's way in sentences: every reason under every policy, and every ending."""

import re
from typing import Any

import pytest
from fakes.told import FACTS, RECORDS
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.model import (
    ROLES,
    Because,
    Costs,
    Decision,
    DecisionRecord,
    Outcome,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Usage,
)
from proxy.telling import sentences

SPECULATIVE, BASELINE = ROLES
# What no person should have to read.
UNSAID = re.compile(
    r"None|\bnan\b|\binf\b|\d\.?\d*e[+-]?\d|[1-9]\d*\.\d{4}|\.\d{5}|\(\)|  |\.\.|,,|:\.| ,|StrEnum|[A-Z]{4}"
)


def record(reason: Reason, role: Role | None = SPECULATIVE, attempt: int = 1, **because: Any) -> DecisionRecord:
    numbers = {"policy": Policy.THRESHOLD, "smoothed": 3.14159, "enter_at": 5, "leave_at": 9, "regime": SPECULATIVE}
    numbers |= {"speculative_in_flight": 3, "baseline_in_flight": 12, **because}
    decision = Decision(role, reason, Regime(), Because(**numbers))
    return DecisionRecord(0.0, "id", "/v1/chat/completions", 1, attempt, decision)


def ended(outcome: Outcome = Outcome.FINISHED, status: int = 200, **more: Any) -> RequestFacts:
    traits = more.pop("traits", Traits(prompt_bytes=420, stream=True))
    return RequestFacts("id", "/v1/chat/completions", "POST", outcome, status, None, traits, duration_s=3.21, **more)


def second(*records: DecisionRecord, settled: RequestFacts | None = None) -> str:
    """The sentence after the one on what was asked."""
    return sentences(records, settled)[1]


@example(records=[], settled=ended(queue_s=0.0078125))
@given(st.lists(RECORDS, max_size=3), st.none() | FACTS)
def test_whatever_happened_is_told_in_whole_sentences_without_raw_values(
    records: list[DecisionRecord], settled: RequestFacts | None
) -> None:
    told = sentences(records, settled)
    assert bool(told) == bool(records or settled)
    for sentence in told:
        assert sentence[0].isupper() and sentence.endswith("."), sentence
        assert not UNSAID.search(sentence), sentence
        assert len(sentence) < 400, sentence
    assert told == sentences(records, settled)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("role", [*ROLES, None])
@pytest.mark.parametrize("costs", [None, Costs(0.5, 1.25)])
def test_every_reason_under_every_policy_is_told(
    reason: Reason, policy: Policy, role: Role | None, costs: Costs | None
) -> None:
    told = second(record(reason, role, policy=policy, costs=costs))
    assert told.endswith(".") and not UNSAID.search(told)
    assert role is None or role.value in told.lower()


def test_no_two_reasons_are_told_alike() -> None:
    told = {reason: second(record(reason)) for reason in Reason}
    assert len(set(told.values())) == len(Reason)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (record(Reason.ROOM), "It went to speculative: speculative had 3 sequences in flight, and gets up to 9"),
        (
            record(Reason.OVERFLOW, BASELINE, recent_failures=7),
            "3 sequences in flight and 7 recent failures, which count",
        ),
        (
            record(Reason.REGIME),
            "policy threshold favoured it, with 3.1 sequences in flight, smoothed; it is left at 9",
        ),
        (record(Reason.REGIME, BASELINE), "speculative is entered again at 5 (enter_at)"),
        (record(Reason.CHEAPER, costs=Costs(0.5, 1.234)), "a delay of 0.5 s on speculative and of 1.2 s on baseline"),
        (record(Reason.CHEAPER, costs=Costs(0.5, 1.2)), "beside 3 in flight on speculative and 12 on baseline"),
        (record(Reason.OTHER_FULL), "baseline was asked first and had no room beside its 12 sequences in flight"),
        (record(Reason.AFFINITY, speculative_cached=8192, baseline_cached=512), "it had 8,192 tokens of the prompt"),
        (record(Reason.AFFINITY, BASELINE, baseline_cached=1024), "it had 1,024 tokens of the prompt cached"),
        (record(Reason.AFFINITY), "its conversation was there last"),
    ],
)
def test_the_numbers_that_counted_are_told(told: DecisionRecord, words: str) -> None:
    assert words in second(told)


@pytest.mark.parametrize("reason", [Reason.ROOM, Reason.PINNED, Reason.HEADER, Reason.OPERATOR_PIN, Reason.CHEAPER])
def test_numbers_of_other_policies_are_not_told(reason: Reason) -> None:
    told = " ".join(sentences([record(reason, costs=Costs(1, 2))], None))
    assert "smoothed" not in told and "enter_at" not in told


def test_what_the_other_choice_would_have_cost_is_told_once() -> None:
    for reason in Reason:
        told = " ".join(sentences([record(reason, costs=Costs(0.5, 1.25, extrapolated=True))], None))
        assert told.count("1.2 s") == 1, told
        assert told.count("outside what was measured") == 1, told


def test_a_demand_beyond_what_was_measured_is_told_in_words() -> None:
    told = " ".join(sentences([record(Reason.REGIME, policy=Policy.CONSOLIDATE, costs=Costs(float("inf"), 2.0))], None))
    assert "without end" in told and "2 s on baseline" in told


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("draining", "an operator drains it"),
        ("down", "it does not answer its probes"),
        ("circuit open", "its circuit is open after too many failures"),
        ("silent", "its probe was unanswered, and nothing else had come from it since"),
        ("full", "it is at max_in_flight"),
        ("ramping", "it has just come back and gets its share bit by bit"),
    ],
)
def test_why_the_other_backend_was_out_is_told(word: str, told: str) -> None:
    out = record(Reason.ONLY_ELIGIBLE, BASELINE, speculative_out=word)
    assert second(out) == f"It went to baseline: speculative took nothing new: {told}."
    beside = record(Reason.CHEAPER, costs=Costs(1, 2), baseline_out=word)
    assert f"Baseline took nothing new then: {told}." in sentences([beside], None)
    both = record(Reason.ALL_DOWN, speculative_out=word, baseline_out="down")
    assert f"(speculative: {told}; baseline: it does not answer its probes)" in second(both)


def test_that_a_request_avoided_a_silent_backend_or_went_to_one_is_told() -> None:
    why = "its probe was unanswered, and nothing else had come from it since"
    avoided = record(Reason.SILENT, BASELINE, speculative_out="silent")
    assert second(avoided) == f"It went to baseline: speculative was asked first, and was silent: {why}."
    named = record(Reason.HEADER, BASELINE, baseline_out="silent")
    assert f"Baseline was silent then: {why}." in sentences([named], None)


def test_of_two_that_were_drained_neither_is_said_to_be_down() -> None:
    told = second(record(Reason.ALL_DOWN, speculative_out="draining", baseline_out="draining"))
    assert "no backend took requests, since an operator drains both" in told
    assert "eligible" not in told and "down" not in told


def test_corrected_speeds_are_called_so() -> None:
    assert "live traffic has corrected" in second(record(Reason.CHEAPER, costs=Costs(1, 2), learned=True))


def test_the_kind_of_request_that_a_rule_matched_is_told_where_it_is_known() -> None:
    told = second(record(Reason.RULE), settled=ended(traits=Traits(constrained=True, prompt_bytes=77)))
    assert "its output was constrained" in told and "77 bytes" in told


def test_a_failover_names_both_backends_and_the_failure() -> None:
    both = (record(Reason.ROOM), record(Reason.FAILOVER, BASELINE, attempt=2))
    told = sentences(both, ended(attempts=2, first_failure="connect_timeout", queue_s=1.5))
    assert told[1].startswith("It went to speculative")
    assert told[2] == "Speculative failed it before the answer began (connect_timeout), so it was sent to baseline."
    assert "It waited 1.5 s for room." in told


def test_of_several_requests_with_one_id_the_last_is_told() -> None:
    told = sentences([record(Reason.ROOM), record(Reason.PINNED, BASELINE)], None)
    assert len(told) == 3 and "policy pinned" in told[1]


def test_a_replay_over_a_new_connection_is_told_and_a_second_attempt_is_not_taken_for_one() -> None:
    stale = "A kept connection had gone stale"
    assert any(stale in each for each in sentences([record(Reason.ROOM)], ended(attempts=2)))
    both = (record(Reason.ROOM), record(Reason.FAILOVER, BASELINE, attempt=2))
    moved = ended(attempts=2, first_failure="connect_timeout")
    assert not any(stale in each for each in sentences(both, moved))
    assert not any(stale in each for each in sentences(both[1:], moved))


def test_a_decision_that_the_ring_has_forgotten_is_told_from_what_the_request_kept() -> None:
    settled = ended()._replace(decision=record(Reason.PINNED, BASELINE).decision)
    assert "It went to baseline: policy pinned" in sentences([], settled)[1]


@pytest.mark.parametrize(
    ("settled", "words"),
    [
        (
            ended(ttft_s=0.21, tpot_s=0.0183),
            "It ended well after 3.2 s, with status 200, the first token after 0.21 s, each further one after 0.018 s.",
        ),
        (ended(usage=Usage(512, 300, 256)), "read 512 tokens (256 of them cached) and generated 300 tokens."),
        (ended(status=400), "The engine refused it with status 400 after 3.2 s"),
        (ended(Outcome.FAILED_BEFORE_COMMIT, 429, failure="queue_full"), "queue.max_waiting requests waited already"),
        (
            ended(Outcome.FAILED_BEFORE_COMMIT, 429, failure="queue_full", attempts=0),
            "The proxy turned it away after 3",
        ),
        (ended(Outcome.FAILED_AFTER_COMMIT, failure="stream_cut"), "Its answer broke after 3.2 s: the backend ended"),
        (ended(Outcome.CLIENT_GONE_WAITING, 499), "The client left after 3.2 s, before its answer had begun."),
        (ended(Outcome.CLIENT_GONE_IN_STREAM, ttft_s=1.0), "in the midst of its answer, the first token after 1 s."),
        (ended(Outcome.SHUT_DOWN), "The proxy shut down after 3.2 s"),
    ],
)
def test_every_ending_is_told_with_its_numbers(settled: RequestFacts, words: str) -> None:
    assert words in " ".join(sentences([record(Reason.ROOM)], settled))


SILENT, DOWN = "speculative had given no sign of life for 19 s", "speculative counted as down"


@pytest.mark.parametrize(
    ("out", "silent_s", "words"),
    [
        (None, None, "before its answer had begun."),
        ("silent", 19.2, f"before its answer had begun; {SILENT}."),
        ("down", 19.2, f"before its answer had begun; {SILENT} and counted as down."),
        ("down", None, f"before its answer had begun; {DOWN}."),
    ],
)
def test_what_the_backend_was_is_told_of_a_client_that_left(
    out: str | None, silent_s: float | None, words: str
) -> None:
    decided = record(Reason.ROOM)
    left = ended(Outcome.CLIENT_GONE_WAITING, 499, backend_out=out, silent_s=silent_s)
    told = sentences([decided], left._replace(decision=decided.decision))
    assert told[-1] == f"The client left after 3.2 s, {words}"


def test_no_backend_is_told_of_one_that_never_had_one() -> None:
    left = ended(Outcome.CLIENT_GONE_WAITING, 499, backend_out="down", silent_s=19.2)
    assert sentences([], left)[-1] == "The client left after 3.2 s, before its answer had begun."


def test_one_that_left_a_backend_which_stood_still_is_told_as_that() -> None:
    both = (record(Reason.ROOM), record(Reason.FAILOVER, BASELINE, attempt=2, speculative_out="down"))
    moved = ended(attempts=2, first_failure="backend_silent")
    told = " ".join(sentences(both, moved))
    assert "Speculative gave no sign of life any more, until it counted as down (backend_silent), so it" in told
    assert "Speculative took nothing new then: it does not answer its probes." in told


def test_one_that_runs_is_said_to_run() -> None:
    assert sentences([record(Reason.ROOM)], None)[-1] == "What it ended with is no longer remembered."


def test_of_nothing_nothing_is_told() -> None:
    assert sentences([], None) == ()


def test_nothing_is_said_of_a_body_that_was_never_read() -> None:
    """Of one that was refused for what its Content-Length says no byte was read, and it had more than none."""
    refused = ended(Outcome.FAILED_BEFORE_COMMIT, 413, failure="body_too_large", traits=Traits())
    asked, how = sentences([], refused)
    assert asked == "The request asked /v1/chat/completions for 1 sequence."
    assert "its body is over listen.max_body_bytes" in how
