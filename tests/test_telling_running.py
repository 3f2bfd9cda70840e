"""Where a request stands that still runs: on whom it waits, since when, and what comes next."""

from typing import Any

import pytest
from fakes.told import RECORDS, RUNNINGS
from hypothesis import given
from hypothesis import strategies as st
from test_telling_requests import BASELINE, SPECULATIVE, UNSAID, record

from proxy.model import DecisionRecord, Reason, Traits
from proxy.telling import Running, sentences
from proxy.telling.running import standing


def running(**more: Any) -> Running:
    told = {"role": SPECULATIVE, "read_s": 23.0, "here_s": 23.0, "in_flight": 3, **more}
    return Running("/v1/chat/completions", Traits(stream=True), **told)


def streaming(**more: Any) -> Running:
    return running(begun=True, limit="timeouts.stall_s", limit_s=300.0, **more)


@given(st.lists(RECORDS, max_size=3), RUNNINGS)
def test_whatever_it_does_is_told_in_whole_sentences_without_raw_values(
    records: list[DecisionRecord], now: Running
) -> None:
    told = sentences(records, None, now)
    assert len(told) >= 2
    for sentence in told:
        assert sentence[0].isupper() and sentence.endswith("."), sentence
        assert not UNSAID.search(sentence), sentence
        assert len(sentence) < 400, sentence


@given(RUNNINGS)
def test_one_that_has_a_place_is_told_with_its_backend(now: Running) -> None:
    told = " ".join(standing(now))
    assert now.role is None or now.read_s is None or now.role.value in told


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (
            running(out="silent", silent_s=22.0),
            [
                "It waits for its answer from speculative, for 23 s now: nothing of it has come.",
                "Speculative has given no sign of life for 22 s: its probe is unanswered too.",
                "If speculative stays so until it counts as down, the request goes to baseline, once, as far as the "
                "retry budget lets it; without a byte it is given up there in 10 min (timeouts.first_byte_s).",
            ],
        ),
        (
            running(out="down", silent_s=22.0, beside="down"),
            [
                "It waits for its answer from speculative, for 23 s now: nothing of it has come.",
                "Speculative has given no sign of life for 22 s and counts as down.",
                "Baseline is no better, it does not answer its probes, so it waits where it is; without a byte it is "
                "given up there in 10 min (timeouts.first_byte_s).",
            ],
        ),
        (
            streaming(heard_s=20.0, out="silent", silent_s=19.0),
            [
                "Its answer has begun and stands still: nothing has come from speculative for 20 s.",
                "Speculative has given no sign of life for 19 s: its probe is unanswered too.",
                "An answer that has begun is never moved: it goes on when speculative does; if nothing comes, it is "
                "ended with an error in 5 min (timeouts.stall_s).",
            ],
        ),
        (
            streaming(heard_s=0.4, pace_s=0.08, in_flight=12),
            [
                "Its answer comes from speculative, where it was sent 23 s ago; the latest came just now.",
                "Speculative answers its probes and has 12 sequences in flight now, with which by the measured speeds "
                "a token takes 0.08 s.",
            ],
        ),
        (
            running(role=None, here_s=0.0),
            [
                "It waits for room, for 23 s now: no backend that it may use has any; in 37 s (queue.max_wait_s) it is "
                "refused with status 503.",
            ],
        ),
        (
            running(here_s=8.0, limit_s=600.0),
            [
                "It waits for its answer from speculative, for 8 s now: nothing of it has come.",
                "Speculative answers its probes and has 3 sequences in flight now.",
                "Without a byte it is given up there in 10 min (timeouts.first_byte_s).",
            ],
        ),
        (running(read_s=None), ["It still comes in: its client has not sent all of its body."]),
    ],
)
def test_it_is_told_on_whom_it_waits_since_when_and_what_comes_next(now: Running, told: list[str]) -> None:
    assert standing(now) == told


def test_what_keeps_it_from_the_other_backend_is_told() -> None:
    stuck = running(out="down", silent_s=22.0)
    assert "goes to baseline with its next unanswered probe" in standing(stuck)[-1]
    assert "It was moved once" in standing(stuck._replace(moved=True))[-1]
    assert "Only speculative has the state" in standing(stuck._replace(tied=True))[-1]


def test_a_client_that_is_slower_than_the_answer_is_told() -> None:
    assert any("more slowly" in each for each in standing(streaming(heard_s=9.0, held_up=True)))


def test_an_answer_that_its_client_holds_back_is_told_no_end_that_would_be_the_engines() -> None:
    said = standing(streaming(heard_s=9.0, held_up=True, full=True))
    assert said[0] == "Its answer from speculative has begun and is held back, for 9 s now: its client is slower."
    assert said[-1] == "It goes on as its client reads."
    assert not any("stall_s" in each or "stands still" in each for each in said)


def test_one_that_waits_for_room_is_not_told_the_way_of_an_earlier_one_of_its_id() -> None:
    told = sentences([record(Reason.ROOM, BASELINE)], None, running(role=None))
    assert told[0] == "The request asked /v1/chat/completions for 1 sequence as a stream."
    assert len(told) == 2
