import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.loadreport import (
    LevelSpec,
    Loop,
    Sample,
    Window,
    compare,
    percentile,
    spread,
    summarize,
    switches,
    tokens_within,
)
from proxy.model import Role

SPEC = LevelSpec(Loop.CLOSED, 4)
WINDOW = Window(0.0, 1.0, 11.0)
INSTANTS = st.floats(0, 100, allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    sent, first, last, ended = sorted(draw(st.tuples(INSTANTS, INSTANTS, INSTANTS, INSTANTS)))
    streamed = draw(st.booleans())
    return Sample(
        sent_at_s=sent,
        first_at_s=first if streamed else None,
        last_at_s=last if streamed else None,
        ended_at_s=ended,
        completion_tokens=draw(st.integers(0, 1000)),
        backend=draw(st.sampled_from([None, "speculative", "baseline"])),
        reason=draw(st.sampled_from([None, "regime", "room"])),
        error=draw(st.sampled_from([None, None, None, "cut", "timeout"])),
    )


@given(samples(), st.lists(INSTANTS, min_size=1, max_size=6))
def test_adjoining_windows_add_up_to_every_token(sample: Sample, cuts: list[float]) -> None:
    edges = [-1.0, *sorted(cuts), 101.0]
    parts = [tokens_within(sample, Window(low, low, high)) for low, high in pairwise(edges)]
    assert math.fsum(parts) == pytest.approx(sample.completion_tokens)
    assert all(0 <= part <= (sample.completion_tokens or 0) + 1e-9 for part in parts)


def test_a_request_across_the_edge_counts_by_its_part() -> None:
    sample = Sample(0.0, 21.0, first_at_s=1.0, last_at_s=21.0, completion_tokens=100)
    assert tokens_within(sample, WINDOW) == pytest.approx(50)


def test_an_answer_without_stream_spreads_its_tokens_over_its_whole_life() -> None:
    assert tokens_within(Sample(6.0, 16.0, completion_tokens=10), WINDOW) == pytest.approx(5)


def test_tokens_are_unknown_and_not_nought_when_an_answer_told_no_usage() -> None:
    level = summarize(SPEC, [Sample(1.0, 5.0, completion_tokens=9), Sample(2.0, 5.0)], WINDOW)
    assert (level.output_tokens, level.tokens_per_s, level.without_usage, level.requests) == (None, None, 1, 2)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_occurred_and_enough_lie_at_or_below(values: list[float], share: float) -> None:
    found = percentile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_spread_is_ordered_and_its_mean_lies_within(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert found.count == len(values)
    assert min(values) <= found.p10 <= found.p50 <= found.p90 <= found.p99 <= max(values)
    assert min(values) - 1e-6 <= found.mean <= max(values) + 1e-6


def test_spread_is_none_when_nothing_is_known() -> None:
    assert spread([None, None]) is None
    assert spread([None, 2.0]) == spread([2.0])


@pytest.mark.parametrize(
    ("backends", "changes"),
    [([], 0), (["a"], 0), (["a", "a", "b", "b", "a"], 2), (["a", None, "a"], 0), (["a", None, "b"], 1)],
)
def test_switches_count_changes_and_pass_over_unknown_backends(backends: list[str | None], changes: int) -> None:
    assert switches(backends) == changes


def test_switches_go_by_the_order_sent_and_include_the_warm_up() -> None:
    sent = [(0.5, 9.0, "speculative"), (2.0, 3.0, "baseline"), (4.0, 5.0, "baseline")]
    level = summarize(SPEC, [favoured(at, ended, backend) for at, ended, backend in reversed(sent)], WINDOW)
    assert level.switches == 1


def favoured(sent_at_s: float, ended_at_s: float, backend: str, reason: str = "regime") -> Sample:
    return Sample(sent_at_s, ended_at_s, backend=backend, reason=reason)


def test_what_another_reason_sends_elsewhere_in_between_is_no_switch() -> None:
    sent = [favoured(at, 9.0, "speculative") for at in (1.0, 3.0, 5.0)]
    sent += [favoured(at, 9.0, "baseline", reason) for at, reason in ((2.0, "overflow"), (4.0, "failover"))]
    assert summarize(SPEC, sent, WINDOW).switches == 0


def test_a_change_in_the_midst_of_requests_that_are_sent_together_is_one() -> None:
    roles = ("speculative", "baseline", "speculative", "baseline")
    sent = [favoured(2.0 + number / 1000, 9.0, role) for number, role in enumerate(roles)]
    assert summarize(SPEC, sent, WINDOW).switches == 1


def test_a_change_from_the_level_before_counts_in_the_level_in_which_it_came() -> None:
    sent = [favoured(1.0, 9.0, "speculative"), favoured(5.0, 9.0, "baseline")]
    first, second = Window(0.0, 0.5, 3.0), Window(3.0, 3.5, 10.0)
    assert [summarize(SPEC, sent, window).switches for window in (first, second)] == [0, 1]


def test_where_each_request_is_decided_by_itself_no_switch_is_counted() -> None:
    sent = [favoured(1.0, 9.0, "speculative", "cheaper"), favoured(2.0, 9.0, "baseline", "cheaper")]
    assert summarize(SPEC, sent, WINDOW).switches is None


def test_tpot_needs_usage_two_tokens_and_two_instants() -> None:
    sample = Sample(0.0, 3.0, first_at_s=1.0, last_at_s=2.0, completion_tokens=11)
    assert sample.tpot_s == pytest.approx(0.1)
    assert replace(sample, completion_tokens=22, sequences=2).tpot_s == pytest.approx(0.1)
    for lacking in ({"completion_tokens": None}, {"completion_tokens": 1}, {"last_at_s": 1.0}):
        assert replace(sample, **lacking).tpot_s is None


@given(st.lists(samples(), max_size=20))
def test_a_level_counts_every_request_that_ended_in_its_window_once(walked: list[Sample]) -> None:
    level = summarize(SPEC, walked, WINDOW)
    ended = [sample for sample in walked if WINDOW.holds(sample.ended_at_s)]
    assert level.requests + level.failed == len(ended)
    assert sum(level.reasons.values()) <= level.requests
    assert not level.shares or math.fsum(level.shares.values()) == pytest.approx(1)
    assert 0 <= level.in_flight <= len(walked) + 1e-9


@given(st.lists(samples(), max_size=20))
def test_levels_do_not_depend_on_the_order_of_samples(walked: list[Sample]) -> None:
    forth, back = (summarize(SPEC, order, WINDOW, Role.BASELINE) for order in (walked, walked[::-1]))
    assert (forth.requests, forth.errors, forth.ttft_s, forth.honoured) == (
        back.requests,
        back.errors,
        back.ttft_s,
        back.honoured,
    )


def test_errors_are_counted_by_name_and_kept_out_of_the_latencies() -> None:
    walked = [
        Sample(1.0, 2.0, error="cut"),
        Sample(1.0, 3.0, first_at_s=2.0, last_at_s=2.5, error="cut", completion_tokens=4),
        Sample(1.0, 4.0, error="status 503"),
        Sample(1.0, 6.0, first_at_s=2.0, last_at_s=5.0, completion_tokens=4, backend="baseline"),
    ]
    level = summarize(SPEC, walked, WINDOW)
    assert level.errors == {"cut": 2, "status 503": 1}
    assert (level.requests, level.failed) == (1, 3)
    assert level.ttft_s == spread([1.0])
    assert level.shares == {"baseline": 1.0}


def test_mean_in_flight_is_the_time_average() -> None:
    level = summarize(SPEC, [Sample(1.0, 11.0), Sample(6.0, 20.0), Sample(0.0, 0.5)], WINDOW)
    assert level.in_flight == pytest.approx(1.5)


def arm(asked: Role | None, tokens: int, served: str) -> list[Sample]:
    return [Sample(1.0, 11.0, completion_tokens=tokens, backend=served)]


def test_the_gain_is_over_the_better_arm() -> None:
    own = [summarize(SPEC, arm(None, 110, "baseline"), WINDOW)]
    only = [
        summarize(SPEC, arm(role, tokens, role), WINDOW, role) for role, tokens in zip(Role, (100, 50), strict=True)
    ]
    (row,) = compare(own, only)
    assert (row.own, row.only_speculative, row.only_baseline) == (11.0, 10.0, 5.0)
    assert row.gain == pytest.approx(0.1)


def test_an_arm_that_was_not_honoured_is_not_compared() -> None:
    own = [summarize(SPEC, arm(None, 110, "baseline"), WINDOW)]
    only = [summarize(SPEC, arm(role, 100, "baseline"), WINDOW, role) for role in Role]
    (row,) = compare(own, only)
    assert (row.only_speculative, row.only_baseline, row.gain) == (None, 10.0, None)


def test_a_repeated_level_is_compared_with_the_one_arm_at_its_strength() -> None:
    own = [summarize(SPEC, arm(None, tokens, "baseline"), WINDOW) for tokens in (100, 200)]
    only = [summarize(SPEC, arm(role, 100, role), WINDOW, role) for role in Role]
    assert [row.gain for row in compare(own, only)] == [pytest.approx(0.0), pytest.approx(1.0)]


def paced(asked: Role | None, *tokens: int) -> list[Sample]:
    """Requests one after the other, each of which fills an eighth of the window."""
    seconds = WINDOW.length_s / 8
    return [
        Sample(1.0 + n * seconds, 1.0 + (n + 1) * seconds, completion_tokens=count, backend=asked or Role.BASELINE)
        for n, count in enumerate(tokens)
    ]


def test_the_noise_of_a_gain_is_how_far_both_wander_within_their_levels() -> None:
    steady, restless = (100,) * 8, (60, 140) * 4
    only = [summarize(SPEC, paced(role, *steady), WINDOW, role) for role in Role]
    own = [summarize(SPEC, paced(None, *tokens), WINDOW) for tokens in (steady, restless)]
    calm, rough = compare(own, only)
    assert (calm.gain, calm.noise) == (pytest.approx(0.0), pytest.approx(0.0))
    assert rough.gain == pytest.approx(0.0)
    # 40 of 100 tokens either way: 42.8 with eight parts, by the root of eight, times 2.36.
    assert rough.noise == pytest.approx(0.357, abs=0.001)
