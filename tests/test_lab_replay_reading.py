"""A log's lines as traffic: who counts, what is estimated, and an account of everything else."""

from collections.abc import Iterable
from itertools import cycle
from random import Random

import pytest
from fakes.logged import BEGAN, FACTS, line, sent_to, traffic
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy import logs
from proxy.errors import ConfigError
from proxy.lab.replay.events import Skip
from proxy.lab.replay.reading import MIN_REQUESTS, MIN_TOLD, Account, measured_means, prefill_tok_s, read_log
from proxy.lab.replay.traffic import Came, Traffic, peaks, pieces
from proxy.model import Outcome, Policy, Reason, Role, Traits, Usage

PLAIN = list(traffic(600, 2.0))


def read(*more: bytes) -> tuple[Traffic, Account]:
    return read_log([*PLAIN, *more])


def at(found: Traffic, came_s: float) -> Came:
    """The request that came so many seconds after BEGAN."""
    assert found.began_at_s is not None
    began_s = BEGAN.timestamp() - found.began_at_s
    return min(found.requests, key=lambda came: abs(came.at_s - began_s - came_s))


def odd(came_s: float, **fields: object) -> bytes:
    return line(FACTS._replace(**fields), came_s)  # type: ignore[arg-type]


def test_requests_stand_in_their_order_of_coming_though_a_log_has_that_of_their_ends() -> None:
    found, _ = read_log(sorted(PLAIN, key=hash))
    came_s = [came.at_s for came in found.requests]
    assert came_s == sorted(came_s)
    assert came_s[0] == 0.0
    assert len(came_s) == 600


def test_the_beginning_and_the_end_of_a_log_do_not_count() -> None:
    found, account = read()
    counted = found.counted
    assert account.counted == len(counted) < account.kept == 600
    assert counted == list(range(counted[0], counted[-1] + 1))
    assert counted[0] > 0
    assert counted[-1] < 599


def test_all_lines_are_accounted_for() -> None:
    refused = odd(9.0, status=400)
    gone = odd(9.0, outcome=Outcome.CLIENT_GONE_WAITING, status=499, decision=None)
    failed = odd(9.0, outcome=Outcome.FAILED_BEFORE_COMMIT, status=502)
    dropped = b'{"event":"log_lines_dropped","lines":7}'
    engine = b'{"event":"engine_seen","role":"speculative","max_running_requests":48}'
    _, account = read(
        refused, gone, failed, dropped, engine, b"greeting\n", b'{"event":"started"}\n', b"\n", b"x" * 70_000
    )
    assert account.lines == 609
    assert (account.settled, account.kept, account.dropped) == (603, 600, 7)
    assert sum(account.left_out.values()) == 3
    assert account.skipped == {Skip.NO_JSON: 1, Skip.OTHER_EVENT: 3, Skip.TOO_LONG: 1, Skip.BLANK: 1}
    assert account.kept + account.left_out.total() + account.skipped.total() == account.lines
    assert account.max_running == {Role.SPECULATIVE: 48}


def test_a_cut_request_loads_the_engines_for_as_long_as_it_ran_and_does_not_count() -> None:
    cut = odd(150.0, outcome=Outcome.CLIENT_GONE_IN_STREAM, duration_s=3.0, usage=Usage())
    found, account = read(cut)
    came = at(found, 150.0)
    assert account.cut == 1
    assert not came.counts
    # Answers of this log run at 50 tok/s after 0.2 s for the prompt.
    assert came.tokens == pytest.approx(3.0 * 46, rel=0.1)
    assert came.heard_tokens == 0.0


def test_without_usage_tokens_are_estimated_by_the_time_and_prompts_by_the_bytes() -> None:
    mute = odd(150.0, duration_s=2.0, usage=Usage(), traits=Traits(stream=True, prompt_bytes=3200))
    found, account = read(mute)
    came = at(found, 150.0)
    assert account.estimated == 1
    assert came.counts
    assert came.tokens == pytest.approx(2.0 * 46, rel=0.1)
    assert came.prompt_tokens == pytest.approx(800, rel=0.05)


def test_the_tokens_of_several_answers_are_shared_out_and_cached_ones_are_not_filled() -> None:
    three = odd(150.0, traits=Traits(weight=3, prompt_bytes=9), usage=Usage(500, 300, 450))
    came = at(read(three)[0], 150.0)
    assert (came.tokens, came.prompt_tokens, came.uncached_tokens) == (100, 500, 50)
    assert came.traits.weight == 3


def test_what_has_a_prompt_and_no_answer_is_over_with_its_first_step() -> None:
    came = at(read(odd(150.0, usage=Usage(500)))[0], 150.0)
    assert (came.tokens, came.prompt_tokens) == (1, 500)


def test_what_was_in_force_is_what_decided_most() -> None:
    others = [odd(9.0, decision=sent_to(Role.BASELINE, Policy.PINNED)) for _ in range(200)]
    found, _ = read(*others)
    assert found.in_force is not None
    assert found.in_force.policy is Policy.OVERFLOW
    assert found.share_in_force == pytest.approx(0.75)
    assert found.sent_to is Role.SPECULATIVE


def test_requests_that_an_event_sent_elsewhere_are_told() -> None:
    _, account = read(odd(9.0, decision=sent_to(Role.BASELINE, reason=Reason.ONLY_ELIGIBLE)))
    assert account.by_events == 1


def test_a_log_that_leaves_requests_out_is_refused_with_its_mend() -> None:
    lines = [*traffic(400, 2.0), logs.request_line(FACTS, BEGAN, 0.5)]
    with pytest.raises(ConfigError, match=r"mend: set log\.sample: 1"):
        read_log(lines)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([b"nothing\n"] * 9, "none of 9 lines is an event of a settled request; mend: "),
        ([], "none of 0 lines"),
        (
            PLAIN[: MIN_REQUESTS - 1],
            f"has {MIN_REQUESTS - 1} requests that ran, and at least {MIN_REQUESTS} are needed",
        ),
        (
            [odd(n, usage=Usage()) for n in range(300)],
            f"only 0 of 300 .* at least {MIN_TOLD} must; mend: .*include_usage",
        ),
        (
            [odd(n, outcome=Outcome.FAILED_AFTER_COMMIT) for n in range(200)] + PLAIN[:60],
            "requests that can be compared, and at least 100",
        ),
    ],
)
def test_a_log_with_too_little_in_it_is_refused_with_its_mend(lines: list[bytes], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        read_log(lines)
    assert "mend: " in str(caught.value)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=80) | st.sampled_from(PLAIN), max_size=60))
def test_any_lines_among_a_log_are_counted_and_raise_nothing(lines: list[bytes]) -> None:
    _, account = read(*lines)
    assert account.lines == 600 + len(lines)
    told = account.settled + sum(account.skipped.values())
    assert told == account.lines
    assert account.settled == 600 + sum(each in PLAIN for each in lines)


def _prompts(lengths: Iterable[int], count: int = 300) -> Traffic:
    """Prompts of these lengths in turn, taken in at 8000 tok/s after a wait that is any."""
    rng, each = Random(3), cycle(lengths)
    rows = []
    for n in range(count):
        prompt = next(each)
        rows.append(odd(n, usage=Usage(prompt, 100), ttft_s=prompt / 8000 + rng.uniform(0.05, 0.1), duration_s=3.0))
    return read_log(rows)[0]


def test_prefill_is_told_by_how_much_longer_long_prompts_take() -> None:
    found = _prompts(range(100, 4100, 100))
    assert prefill_tok_s(found, Role.SPECULATIVE) == pytest.approx(8000.0, rel=0.1)
    assert prefill_tok_s(found, Role.BASELINE) is None


def test_prompts_of_one_length_tell_no_prefill() -> None:
    assert prefill_tok_s(_prompts([1000, 1050]), Role.SPECULATIVE) is None


def test_what_was_measured_is_of_those_that_count() -> None:
    found, _ = read(*[odd(n / 9, duration_s=900.0, outcome=Outcome.SHUT_DOWN) for n in range(100)])
    measured = measured_means(found)
    assert measured["mean_e2e_s"] == pytest.approx(2.2, rel=0.15)
    assert measured["share_speculative"] == 1.0


def test_peaks_are_of_sequences_that_ran_at_once() -> None:
    long = [odd(100.0, duration_s=50.0, traits=Traits(weight=4), decision=sent_to(Role.BASELINE)) for _ in range(3)]
    assert peaks(read(*long)[0])[Role.BASELINE] == 12


def test_a_sample_is_of_stretches_that_keep_their_gaps_and_begin_with_requests_that_do_not_count() -> None:
    whole, _ = read()
    sample = pieces(whole, 200, 4, gap_s=1000.0)
    assert len(sample.requests) == 200
    gaps = [later.at_s - one.at_s for one, later in zip(sample.requests, sample.requests[1:], strict=False)]
    assert sum(gap == pytest.approx(1000.0) for gap in gaps) == 3
    assert all(gap >= 0 for gap in gaps)
    assert not any(sample.requests[part * 50 + place].counts for part in range(4) for place in range(5))
    assert pieces(whole, 600, 4, 1.0) is whole
