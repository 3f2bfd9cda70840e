from random import Random
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.lab import curves
from proxy.lab.acceptance import Acceptance
from proxy.lab.engine import MAX_RUNNING_REQUESTS, Engine, EngineLimits, Sequence
from proxy.lab.engine_options import EngineOptions
from proxy.lab.step_time import Point, TableTime
from proxy.model import Role

FLAT = TableTime((Point(1, 100.0, 100.0), Point(2, 200.0, 200.0)), Role.BASELINE, tokens_per_step=1.0)
"""Ten milliseconds a step, whatever the batch."""


def _limits(**changes: float) -> EngineLimits:
    plain = {"max_running_requests": 4, "kv_tokens": 100_000, "prefill_tokens_per_s": 1e12, "jitter": 0.0}
    return EngineLimits(**{**plain, **changes})  # type: ignore[arg-type]


def _engine(acceptance: Acceptance | None = None, **changes: float) -> Engine:
    return Engine(FLAT, _limits(**changes), Random(3), acceptance)


def _sequence(number: int, length: int = 10, prompt: int = 8, blocks: tuple[int, ...] = ()) -> Sequence:
    return Sequence(number, prompt, length, length, blocks)


def _run(engine: Engine) -> tuple[float, dict[int, int]]:
    """Step until nothing is left; the seconds it took and the tokens of each sequence."""
    now_s, tokens = 0.0, dict[int, int]()
    while engine.busy:
        step = engine.step()
        now_s += step.duration_s
        for sequence_id, count, _ in step.emitted:
            tokens[sequence_id] = tokens.get(sequence_id, 0) + count
    return now_s, tokens


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("concurrency", [1, 8, 16])
def test_throughput_follows_the_curve_under_a_constant_load(role: Role, concurrency: int) -> None:
    curve = curves.find("h200_llama8b_sglang_tree_2_4_16")
    options = EngineOptions(curve=curve.name, role=role, prefill_tokens_per_s=1e12)
    engine = options.engine(curve)
    now_s, number = 0.0, 0
    while now_s < 4.0:
        while number - engine.books().finished < concurrency:
            number += 1
            engine.submit(_sequence(number, length=150))
        now_s += engine.step().duration_s
    measured = next(point.of(role) for point in curve.points if point.concurrency == concurrency)
    assert engine.books().generated_tokens / now_s == pytest.approx(measured, rel=0.05)


def test_baseline_emits_exactly_one_token_a_step() -> None:
    engine = _engine()
    engine.submit(_sequence(1, length=5))
    steps = [engine.step().emitted for _ in range(5)]
    assert steps == [[(1, 1, False)]] * 4 + [[(1, 1, True)]]


def test_speculative_emits_the_accepted_tokens_and_never_more_than_are_left() -> None:
    engine = _engine(Acceptance(2.2, 3))
    engine.submit(_sequence(1, length=400))
    taken_s, tokens = _run(engine)
    assert tokens == {1: 400}
    assert taken_s == pytest.approx(400 / 2.2 * 0.010, rel=0.1)
    assert engine.books().accept_length == pytest.approx(2.2, rel=0.1)


def test_moments_of_two_polls_give_step_time_and_tokens_per_step() -> None:
    engine = _engine(Acceptance(2.2, 3), jitter=0.03)
    for number in range(4):
        engine.submit(_sequence(number, length=3000))
    before = engine.books().moments
    for _ in range(500):
        engine.step()
    steps, batch, us, _, batch_us, tokens = (b - a for a, b in zip(before, engine.books().moments, strict=True))
    assert us / steps == pytest.approx(10_000, rel=0.02)
    assert tokens / batch == pytest.approx(2.2, rel=0.05)
    assert batch_us == pytest.approx(4 * us)


def test_a_step_with_a_prefill_before_it_is_in_no_moment_and_in_all_other_books() -> None:
    engine = _engine(prefill_tokens_per_s=1000.0)
    engine.submit(_sequence(1, length=9))
    for number in range(3):
        engine.step()
        steps, _, us, *_, tokens = engine.books().moments
        assert (steps, us, tokens) == (number, pytest.approx(number * 10_000), number)
    engine.submit(_sequence(2, length=9))
    engine.step()
    assert engine.books().moments[:2] == (2.0, 2.0)
    engine.step()
    assert engine.books().moments[:2] == (3.0, 4.0)
    assert engine.books().generated_tokens == 3 + 2 + 2


def test_a_speculative_engine_runs_48_sequences_and_lets_the_others_wait() -> None:
    options = EngineOptions(role=Role.SPECULATIVE)
    engine = options.engine(curves.find(options.curve))
    for number in range(60):
        engine.submit(_sequence(number, length=1000))
    engine.step()
    books = engine.books()
    assert (books.running, books.waiting) == (48, 12)
    assert MAX_RUNNING_REQUESTS[Role.BASELINE] > 1000


def test_waiting_sequences_are_taken_in_order_of_arrival() -> None:
    engine = _engine(max_running_requests=1)
    for number in (5, 3, 9):
        engine.submit(_sequence(number, length=1))
    assert [engine.step().emitted[0][0] for _ in range(3)] == [5, 3, 9]


def test_a_full_queue_refuses_and_an_idle_engine_does_not() -> None:
    engine = _engine(max_running_requests=1, max_queued_requests=0)
    assert engine.submit(_sequence(1))
    engine.step()
    assert not engine.submit(_sequence(2))
    assert engine.books().rejected == 1


def test_the_kv_pool_bounds_admission_by_prompt_and_asked_output() -> None:
    engine = _engine(kv_tokens=250)
    for number in range(3):
        engine.submit(_sequence(number, length=20, prompt=80))
    engine.step()
    assert (engine.books().running, engine.books().waiting) == (2, 1)


def test_a_prompt_that_many_sequences_share_fills_the_kv_pool_once() -> None:
    shared = tuple(range(4))
    engine = _engine(kv_tokens=2048 + 4 * 40)
    for number, blocks in enumerate((shared, *[shared] * 3, tuple(range(10, 14)))):
        engine.submit(_sequence(number, length=20, prompt=2048, blocks=blocks))
        engine.step()
    books = engine.books()
    assert (books.running, books.waiting) == (4, 1), "another prompt has no room before they end"
    assert books.cached_room_tokens == 2048
    assert _run(engine)[1][4] == 20


def test_a_sequence_larger_than_the_pool_runs_alone_and_blocks_nobody_for_ever() -> None:
    engine = _engine(kv_tokens=50)
    for number in range(2):
        engine.submit(_sequence(number, length=5, prompt=80))
    assert _run(engine)[1] == {0: 5, 1: 5}


def test_an_uncached_prompt_delays_the_first_token_by_its_prefill() -> None:
    engine = _engine(prefill_tokens_per_s=1000.0)
    engine.submit(_sequence(1, prompt=500))
    assert engine.step().duration_s == pytest.approx(0.5 + 0.010)


def test_a_long_prompt_is_filled_in_chunks_while_others_decode() -> None:
    engine = _engine(prefill_tokens_per_s=10_000.0, chunk_tokens=1000)
    engine.submit(_sequence(1, prompt=8, length=50))
    engine.step()
    engine.submit(_sequence(2, prompt=2500))
    steps = [engine.step() for _ in range(3)]
    assert [[row[0] for row in step.emitted] for step in steps] == [[1], [1], [1, 2]]
    assert [step.duration_s for step in steps] == pytest.approx([0.11, 0.11, 0.06])
    assert steps[2].joined == [(2, 0)]


def test_a_prefix_that_was_seen_before_is_not_filled_again() -> None:
    engine = _engine(prefill_tokens_per_s=1000.0)
    blocks = (11, 12)
    engine.submit(_sequence(1, length=1, prompt=1100, blocks=blocks))
    engine.step()
    engine.submit(_sequence(2, length=1, prompt=1100, blocks=(*blocks, 13)))
    step = engine.step()
    assert step.joined == [(2, 1024)]
    assert step.duration_s == pytest.approx(0.076 + 0.010)
    assert engine.books().cached_tokens == 1024


def test_a_prompt_that_is_cached_whole_still_computes_one_token() -> None:
    engine = _engine()
    for number in (1, 2):
        engine.submit(_sequence(number, length=1, prompt=512, blocks=(7,)))
        engine.step()
    assert engine.books().prefill_tokens == 513


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_an_aborted_sequence_frees_its_room_wherever_it_was(steps: int) -> None:
    engine = _engine(chunk_tokens=4)
    engine.submit(_sequence(1))
    for _ in range(steps):
        engine.step()
    assert engine.abort(1)
    assert not engine.busy
    assert (engine.books().used_tokens, engine.books().aborted) == (0, 1)
    assert not engine.abort(1)


def test_time_scale_stretches_every_duration() -> None:
    slow, plain = _engine(time_scale=4.0, prefill_tokens_per_s=1000.0), _engine(prefill_tokens_per_s=1000.0)
    for engine in (slow, plain):
        engine.submit(_sequence(1))
    assert slow.step().duration_s == pytest.approx(4.0 * plain.step().duration_s)


def test_a_step_with_nothing_to_do_takes_no_time() -> None:
    assert _engine().step().duration_s == 0.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 2000), st.booleans()),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
def test_every_sequence_ends_with_its_length_and_nothing_stays_behind(
    asked: list[tuple[int, int, bool]], limit: int, seed: int
) -> None:
    limits = _limits(max_running_requests=limit, kv_tokens=3000, chunk_tokens=700)
    engine = Engine(FLAT, limits, Random(seed), Acceptance(2.2, 4))
    for number, (length, prompt, _) in enumerate(asked):
        engine.submit(_sequence(number, length, prompt, tuple(range(prompt // 512))))
    gone = {number for number, (_, _, leaves) in enumerate(asked) if leaves}
    for number in gone:
        engine.abort(number)
    tokens = _run(engine)[1]
    books = engine.books()
    assert tokens == {number: row[0] for number, row in enumerate(asked) if number not in gone}
    assert (books.running, books.waiting, books.used_tokens, books.context_tokens) == (0, 0, 0, 0)
    assert books.finished + books.aborted == len(asked)
    assert (engine._reserved, engine._cache.in_use(())) == (0, 0)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for _ in range(2):
        engine = _engine(Acceptance(2.2, 3), jitter=0.03)
        for number in range(9):
            engine.submit(_sequence(number, length=50))
        runs.append(_run(engine))
    assert runs[0] == runs[1]


def test_the_model_is_far_faster_than_life() -> None:
    engine = _engine(Acceptance(2.2, 3), max_running_requests=32, jitter=0.03)
    for number in range(32):
        engine.submit(_sequence(number, length=3000))
    began_s = process_time()
    life_s, _ = _run(engine)
    assert process_time() - began_s < life_s / 10
