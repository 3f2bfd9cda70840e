"""From counts at both ends of a window to speeds, and what is believed of them."""

import pytest

from proxy.lab.calibration.stand import counting
from proxy.lab.calibration.stand.counting import Count, Decoding, Mark
from proxy.lab.calibration.stand.engine_word import Counters, Reading
from proxy.lab.calibration.stand.tally import Seen, Tally
from proxy.lab.calibration.values import Source
from proxy.lab.loadreport import Sample

QUIET = Seen(0, 0, 0)


def mark(
    at_s: float = 0.0,
    moments: tuple[float, ...] | None = None,
    ranks: int = 1,
    seen: Seen = QUIET,
    **counters: float,
) -> Mark:
    return Mark(at_s, Reading(4, 0, moments=moments, ranks=ranks), Counters(**counters), seen)


def moments(steps: float, batch: float, step_ms: float, per_step: float) -> tuple[float, ...]:
    us = step_ms * 1000
    return (steps, steps * batch, steps * us, steps * batch**2, steps * batch * us, steps * batch * per_step)


START = moments(100, 7, 11, 1.5)


def later(more: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(a + b for a, b in zip(START, more, strict=True))


def test_moments_give_speed_batch_and_tokens_a_step_of_the_window_alone() -> None:
    got = counting.decoding(mark(moments=START), mark(moments=later(moments(200, 4, 20, 2.5))), 4)
    assert got == pytest.approx(Decoding(tok_s=500.0, batch=4.0, tokens_per_step=2.5, generated=2000.0))


def test_ranks_step_side_by_side_so_their_speeds_add_up() -> None:
    end = mark(moments=later(moments(200, 4, 20, 2.5)), ranks=8)
    got = counting.decoding(mark(moments=START, ranks=8), end, 32)
    assert got is not None
    assert (got.tok_s, got.batch, got.tokens_per_step) == pytest.approx((4000.0, 32.0, 2.5))


def test_no_more_ranks_work_than_there_are_sequences() -> None:
    got = counting.decoding(mark(moments=START), mark(moments=later(moments(200, 1, 20, 2.5)), ranks=8), 2)
    assert got is not None
    assert (got.tok_s, got.batch) == pytest.approx((250.0, 2.0))


def test_an_engine_that_has_not_decoded_before_began_at_zero() -> None:
    got = counting.decoding(mark(), mark(moments=moments(200, 4, 20, 2.5)), 4)
    assert got is not None
    assert got.tok_s == pytest.approx(500.0)


@pytest.mark.parametrize(
    "end", [mark(), mark(moments=START), mark(moments=moments(50, 4, 20, 1)), Mark(1.0, None, Counters(), QUIET)]
)
def test_without_steps_in_the_window_there_is_no_speed(end: Mark) -> None:
    assert counting.decoding(mark(moments=START), end, 4) is None


def test_a_step_or_two_make_no_speed() -> None:
    few, enough = (mark(moments=later(moments(counting.LEAST_STEPS - short, 4, 20, 2.5))) for short in (1, 0))
    assert counting.decoding(mark(moments=START), few, 4) is None
    assert counting.decoding(mark(moments=START), enough, 4) is not None


def answer(tokens: int | None, first_at_s: float, last_at_s: float) -> Sample:
    return Sample(first_at_s - 1, last_at_s, first_at_s, last_at_s, completion_tokens=tokens)


HALF_IN = [answer(100, 5.0, 15.0)]


def test_counts_in_chunks_go_before_all_others() -> None:
    end = mark(10.0, seen=Seen(130, 60, 0), generated=500.0)
    assert counting.count(mark(seen=Seen(30, 10, 0), generated=0.0), end, HALF_IN) == Count(100, Source.USAGE)


def test_a_chunk_without_a_count_now_and_then_is_made_good_for_by_the_next() -> None:
    end = mark(10.0, seen=Seen(100, 100, 5))
    assert counting.count(mark(), end, []) == Count(100, Source.USAGE)
    assert counting.count(mark(), mark(10.0, seen=Seen(100, 100, 6)), []) is None


def test_a_counter_of_every_token_goes_before_a_spread_and_one_of_ended_requests_after_it() -> None:
    untold = Seen(0, 50, 50)
    exact = mark(10.0, seen=untold, generated=70.0)
    assert counting.count(mark(generated=10.0), exact, HALF_IN) == Count(60.0, Source.COUNTER)
    late = mark(10.0, seen=untold, finished=70.0, generated=30.0)
    start = mark(finished=10.0, generated=10.0)
    assert counting.count(start, late, HALF_IN) == Count(pytest.approx(50.0), Source.SPREAD)
    assert counting.count(start, late, [answer(None, 1.0, 2.0)]) == Count(20.0, Source.COUNTER)


def test_a_counter_that_fell_was_begun_anew() -> None:
    assert counting.count(mark(generated=80.0), mark(10.0, generated=70.0), []) is None


def test_pauses_between_chunks_are_kept_only_while_the_window_is_open() -> None:
    tally = Tally()
    for counts, gap_s in ((False, 1.0), (True, 2.0), (True, None), (False, 3.0)):
        tally.counts = counts
        tally.event(visible=True, told=False, new_tokens=2, gap_s=gap_s)
    assert list(tally.gaps) == [2.0]
    assert tally.seen() == Seen(8, 4, 4)


def looks(*pairs: tuple[int, int], limit: int | None = None) -> list[Reading]:
    return [Reading(running, waiting, limit) for running, waiting in pairs]


@pytest.mark.parametrize(
    ("seen", "batch", "size", "queued"),
    [
        (looks((3, 0)), 3.5, 4, True),
        (looks((4, 0), (4, 0)), 3.0, 4, False),
        (looks((4, 0)), 3.8, 4, False),
        (looks((4, 1), (4, 1)), 3.8, 4, False),
        (looks((48, 1), (48, 1), limit=48), 48.0, 49, True),
        (looks((48, 2), (48, 2), limit=48), 48.0, 50, True),
        (looks((48, 2), (50, 0), (50, 0), limit=48), 49.0, 50, False),
        (looks((46, 4), (46, 4)), 46.0, 50, True),
        (looks((249, 1), (248, 2), (249, 1)), 249.0, 250, False),
        (looks((30, 20), (31, 19)), None, 50, True),
        (looks((50, 0), (49, 0)), None, 50, False),
        ([], None, 50, False),
    ],
)
def test_a_queue_is_told_from_answers_that_change_over(
    seen: list[Reading], batch: float | None, size: int, *, queued: bool
) -> None:
    decoded = None if batch is None else Decoding(1.0, batch, 1.0, 1.0)
    assert counting.is_queued(seen, decoded, size) is queued


@pytest.mark.parametrize(
    ("seen", "size", "disturbed"),
    [
        (looks((5, 0), (5, 0)), 4, False),
        (looks((6, 0), (6, 0)), 4, True),
        (looks((6, 0), (5, 0)), 4, False),
        (looks((4, 2), (4, 2), (4, 0)), 4, True),
        (looks((103, 0)), 100, False),
        (looks((104, 0)), 100, True),
        ([], 4, False),
    ],
)
def test_strangers_are_more_sequences_than_a_late_count_explains(
    seen: list[Reading], size: int, *, disturbed: bool
) -> None:
    assert counting.is_disturbed(seen, size) is disturbed


@pytest.mark.parametrize(("made", "exceeds"), [(1000.0, False), (1057.0, False), (1090.0, True)])
def test_tokens_that_no_client_of_ours_got_are_somebody_elses(made: float, *, exceeds: bool) -> None:
    decoded, ours = Decoding(1.0, 4.0, 2.0, made), Count(1000.0, Source.USAGE)
    assert counting.exceeds(mark(), mark(), decoded, ours, 2) is exceeds
    assert counting.exceeds(mark(generated=0.0), mark(generated=made - 4), None, ours, 2) is exceeds


def test_a_late_counter_and_a_guess_show_no_strangers() -> None:
    ours = Count(1000.0, Source.USAGE)
    assert not counting.exceeds(mark(generated=0.0, finished=0.0), mark(generated=9e9, finished=9e9), None, ours, 2)
    assert not counting.exceeds(mark(), mark(), Decoding(1, 1, 1, 9e9), Count(10.0, Source.SPREAD), 2)
    assert not counting.exceeds(mark(), mark(), None, ours, 2)


def test_the_cache_hit_rate_is_that_of_our_own_prompts_where_they_tell() -> None:
    told = [Sample(0, 1, prompt_tokens=100, cached_tokens=80), Sample(0, 1, prompt_tokens=100, cached_tokens=0)]
    end = mark(looked_up=100.0, found=25.0)
    assert counting.cache_hit_rate(mark(looked_up=0.0, found=0.0), end, told) == pytest.approx(0.4)
    untold = [Sample(0, 1, prompt_tokens=100)]
    assert counting.cache_hit_rate(mark(looked_up=0.0, found=0.0), end, untold) == pytest.approx(0.25)
    assert counting.cache_hit_rate(mark(), mark(), untold) is None


def test_the_accepted_length_counts_the_bonus_token() -> None:
    begin, end = mark(drafts=10.0, accepted=10.0), mark(drafts=110.0, accepted=160.0)
    assert counting.accept_length(begin, end) == pytest.approx(2.5)
    assert counting.accept_length(mark(), mark()) is None
