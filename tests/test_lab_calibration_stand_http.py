"""Cells measured over real sockets on embedded engines, on a clock that leaps: what is found is what the curve says."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from fakes.leaping import leaping
from fakes.until import until

from proxy.lab.calibration.stand.cell_run import Patience
from proxy.lab.calibration.stand.engine_word import ArmTarget
from proxy.lab.calibration.stand.http import HttpStand, open_stand
from proxy.lab.calibration.values import Arm, Cell, Condition, Ending, Measurement, Prefix, Source, Span
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.faults import Planned, parse_fault
from proxy.lab.loadcall import Shape, Target, call, open_session
from proxy.model import Role
from proxy.protocol.allowlist import EngineKind
from proxy.tasks import end, running, spawn

# No noise on steps: what is found may then differ from the curve by the share of steps that are not full, and no more.
STEADY = EngineOptions(jitter=0.0, health_latency_s=0.0, max_running_requests=64)
SHORT = Condition(context_tokens=64, max_tokens=64)
SPAN = Span(settle_s=1.0, window_s=6.0)


@dataclass
class Bench:
    """An engine, and a stand that has it as its one arm."""

    engine: EmbeddedEngine
    stand: HttpStand
    arm: Arm

    async def measure(self, concurrency: int, condition: Condition = SHORT, span: Span = SPAN) -> Measurement:
        return await self.stand.measure(Cell(condition, concurrency, self.arm, 0), span)

    def truth(self, concurrency: int) -> float:
        """What the curve says, output tok/s."""
        speculative = self.engine.options.speculative
        per_step = self.engine.curve.tokens_per_step if speculative else 1.0
        step_ms = self.engine.curve.step_time(self.engine.options.role).step_ms(concurrency, 0.0)
        return 1000.0 * per_step * concurrency / step_ms


@asynccontextmanager
async def bench(options: EngineOptions = STEADY, patience: Patience | None = None) -> AsyncIterator[Bench]:
    engine = EmbeddedEngine(options)
    await engine.start()
    arm = Arm(options.role)
    clock = asyncio.get_running_loop().time
    target = ArmTarget(engine.url, EngineKind.SGLANG, model=engine.model_name)
    try:
        async with open_stand({arm: target}, patience=patience, clock=clock) as stand:
            yield Bench(engine, stand, arm)
    finally:
        await engine.stop()


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("concurrency", [1, 6])
@leaping
async def test_the_speed_found_is_the_curves(role: Role, concurrency: int) -> None:
    async with bench(replace(STEADY, role=role)) as one:
        got = await one.measure(concurrency, span=Span(1.0, 20.0))
        assert got.usable
        assert not got.queued
        assert (got.source, got.errors) == (Source.MOMENTS, {})
        assert got.decode_tok_s == pytest.approx(
            one.truth(concurrency), rel=0.05 if one.engine.options.speculative else 0.01
        )
        assert got.tokens_per_step == pytest.approx(
            one.engine.curve.tokens_per_step if role is Role.SPECULATIVE else 1.0, rel=0.05
        )
        assert got.batch == pytest.approx(concurrency, rel=0.05)
        assert got.gross_tok_s < got.decode_tok_s, "the clients cannot get more than the engine decodes"
        assert got.gross_tok_s == pytest.approx(got.decode_tok_s, rel=0.2)
        assert got.window_s == pytest.approx(20.0, rel=0.02)


@leaping
async def test_the_figures_of_requests_are_those_of_one_engine() -> None:
    async with bench() as one:
        got = await one.measure(4)
    assert got.requests >= 4
    assert got.tpot_s is not None
    assert got.request_tok_s is not None
    assert got.ttft_s is not None
    assert got.chunk_gap_p99_s is not None
    step_s = 4 / one.truth(4)
    assert step_s * 0.99 < got.tpot_s.p50 < step_s * 1.5
    assert got.chunk_gap_p99_s >= got.tpot_s.p50
    assert got.request_tok_s.mean < 1 / got.tpot_s.p50
    assert 0 < got.ttft_s.p50 < 1
    assert got.spent_s > got.window_s


@leaping
async def test_nothing_is_left_on_the_engine_after_a_cell() -> None:
    async with bench() as one:
        await one.measure(4, answers_of(2000), span=Span(0.5, 1.0))
        assert one.engine.open_sequences == 0
        assert one.engine.books().aborted >= 4
        await one.stand.rest()
    assert running() == 0


@leaping
async def test_nothing_is_left_on_the_engine_when_a_cell_is_cancelled() -> None:
    async with bench() as one:
        measuring = spawn(one.measure(3, answers_of(2000)), name="measure")
        await until(lambda: one.engine.books().running >= 3)
        await end(measuring)
        await one.stand.rest()
        assert one.engine.open_sequences == 0
    assert running() == 0


def answers_of(max_tokens: int) -> Condition:
    return SHORT._replace(max_tokens=max_tokens)


# ------------------------------------------------------------------ what a cell says of its load


@leaping
async def test_a_cell_is_queued_when_the_engine_runs_fewer_than_were_asked() -> None:
    async with bench(replace(STEADY, max_running_requests=2)) as one:
        got = await one.measure(4)
        assert got.queued
        assert got.batch == pytest.approx(2.0, rel=0.02)
        assert got.decode_tok_s == pytest.approx(one.truth(2), rel=0.01)
        assert got.usable


@leaping
async def test_one_sequence_above_a_limit_is_a_queue_too() -> None:
    async with bench(replace(STEADY, max_running_requests=30)) as one:
        got = await one.measure(31, span=Span(0.5, 3.0))
        assert got.batch is not None
        assert got.batch > 0.9 * 31
        assert got.queued


@leaping
async def test_answers_that_change_over_are_no_queue() -> None:
    async with bench() as one:
        got = await one.measure(24, answers_of(32), span=Span(0.5, 5.0))
    assert got.requests > 24
    assert not got.queued


@leaping
async def test_answers_that_change_over_in_every_step_are_measured_by_what_clients_get() -> None:
    async with bench() as one:
        got = await one.measure(24, answers_of(4), span=Span(0.5, 3.0))
        assert one.engine.books().moments[0] < one.engine.books().generated_tokens / 24 / 10
    assert got.usable
    assert (got.source, got.decode_tok_s, got.tokens_per_step) == (Source.USAGE, None, None)
    assert got.tok_s == got.gross_tok_s > 0


@leaping
async def test_an_engine_at_its_limit_is_not_waited_for_to_take_more() -> None:
    async with bench(replace(STEADY, max_running_requests=2)) as one:
        got = await one.measure(4, answers_of(4000), span=Span(1.0, 2.0))
        assert got.queued
        assert got.spent_s < 3.0 + Patience().stalled_s / 2


@leaping
async def test_requests_of_before_the_window_do_not_count() -> None:
    async with bench() as one:
        got = await one.measure(2, answers_of(16), span=Span(10.0, 1.0))
        assert 0 < got.requests < one.engine.books().finished / 4


async def stranger(one: Bench, sequences: int, max_tokens: int) -> None:
    """Somebody else's load on the engine."""
    target, shape = Target(one.engine.url, one.engine.model_name), Shape(max_tokens, more={"ignore_eos": True})
    async with open_session() as session:
        said = [{"role": "user", "content": "x"}]
        await asyncio.gather(*(call(session, target, shape, said) for _ in range(sequences)))


@pytest.mark.parametrize("sequences", [1, 3])
@leaping
async def test_a_cell_is_disturbed_when_somebody_else_comes_during_it(sequences: int) -> None:
    async with bench() as one:
        measuring = spawn(one.measure(4, answers_of(200)), name="measure")
        await until(lambda: one.engine.books().running >= 4)
        other = spawn(stranger(one, sequences, 5000), name="stranger")
        got = await measuring
        await end(other)
    assert got.disturbed
    assert not got.usable


@leaping
async def test_a_cell_is_disturbed_when_the_engine_never_was_idle_before_it() -> None:
    async with bench(patience=Patience(idle_s=1.0)) as one:
        other = spawn(stranger(one, 2, 200), name="stranger")
        await until(lambda: one.engine.books().running >= 2)
        got = await one.measure(2, span=Span(20.0, 2.0))
        assert other.done(), "the window was to be without strangers"
    assert got.disturbed


@leaping
async def test_a_cell_waits_for_what_ends_soon() -> None:
    async with bench() as one:
        other = spawn(stranger(one, 2, 30), name="stranger")
        await until(lambda: one.engine.books().running >= 2)
        got = await one.measure(2)
        await end(other)
    assert got.usable


# ------------------------------------------------------------------ failures


@leaping
async def test_a_cell_with_a_failed_request_is_cut() -> None:
    async with bench() as one:
        await one.measure(2)
        one.engine.faults.plan(Planned(parse_fault("truncate=3"), 1, None))
        got = await one.measure(2, SHORT._replace(prefix=Prefix.COLD), span=Span(1.0, 3.0))
        assert got.errors == {"cut": 1}
        assert got.cut
        assert not got.usable
        assert got.tokens > 0
        assert (await one.measure(2)).usable


@leaping
async def test_a_cell_of_nothing_but_failures_ends_early() -> None:
    async with bench() as one:
        one.engine.faults.plan(Planned(parse_fault("503"), None, None))
        got = await one.measure(5, span=Span(100.0, 100.0))
        assert got.errors.keys() == {"status 503"}
        assert got.spent_s < 20.0
        assert got.tok_s == 0.0


@leaping
async def test_a_cell_on_an_engine_that_is_gone_ends_early() -> None:
    async with bench() as one:
        await one.measure(2, span=Span(0.5, 0.5))
        one.engine.kill()
        got = await one.measure(5, span=Span(100.0, 100.0))
        assert got.errors.keys() == {"unreachable"}
        assert got.spent_s < 60.0


@leaping
async def test_a_cell_whose_engine_dies_in_mid_load_ends_early() -> None:
    async with bench() as one:
        measuring = spawn(one.measure(4, span=Span(100.0, 100.0)), name="measure")
        await until(lambda: one.engine.books().finished > 24, within_s=60.0)
        one.engine.kill()
        got = await measuring
    assert got.errors == {"cut": 4}
    assert got.spent_s < 60.0


@leaping
async def test_an_engine_that_never_answers_holds_a_cell_up_for_a_bounded_time() -> None:
    async with bench(patience=Patience(stalled_s=3.0)) as one:
        await one.measure(2, span=Span(0.5, 0.5))
        one.engine.faults.plan(Planned(parse_fault("stall=0"), None, None))
        got = await one.measure(2, SHORT._replace(prefix=Prefix.COLD), span=Span(1.0, 1.0))
    assert got.errors == {"silent": 2}
    assert got.spent_s < 60.0


# ------------------------------------------------------------------ conditions


@leaping
async def test_a_warm_cell_finds_its_prompts_in_the_cache_and_a_cold_one_does_not() -> None:
    long = Condition(context_tokens=4128, max_tokens=64)
    async with bench() as one:
        cold = await one.measure(3, long._replace(prefix=Prefix.COLD))
        warm = await one.measure(3, long)
        again = await one.measure(3, long._replace(prefix=Prefix.COLD))
    assert warm.cache_hit_rate is not None
    assert warm.cache_hit_rate > 0.85
    assert (cold.cache_hit_rate, again.cache_hit_rate) == (0.0, 0.0)
    assert warm.ttft_s is not None
    assert cold.ttft_s is not None
    assert warm.ttft_s.p50 < cold.ttft_s.p50


@leaping
async def test_prompts_are_sent_ahead_only_when_the_cache_may_not_have_them() -> None:
    async with bench() as one:
        ahead = []
        for condition in (SHORT, SHORT, SHORT._replace(prefix=Prefix.COLD), SHORT):
            before = one.engine.books().finished
            got = await one.measure(1, condition, span=Span(0.0, 0.5))
            ahead.append(one.engine.books().finished - before - got.requests)
    assert [count >= 16 for count in ahead] == [True, False, False, True]


@pytest.mark.parametrize("context_tokens", [1024, 8192, 32768])
@leaping
async def test_the_mean_context_while_decoding_is_the_one_asked_for(context_tokens: int) -> None:
    async with bench() as one:
        measuring = spawn(one.measure(3, Condition(context_tokens, max_tokens=256), span=Span(1.0, 12.0)), name="m")
        seen = []
        while not measuring.done():
            await asyncio.sleep(0.5)
            books = one.engine.books()
            if books.running == 3:
                seen.append(books.context_tokens / 3)
        got = await measuring
    assert math.fsum(seen) / len(seen) == pytest.approx(context_tokens, rel=0.1)
    assert got.prompt_tokens == pytest.approx(context_tokens - 128, rel=0.02)


@leaping
async def test_natural_answers_end_where_the_model_ends_them_and_fixed_ones_at_their_length() -> None:
    async with bench(replace(STEADY, role=Role.SPECULATIVE)) as one:
        lengths = []
        for ending in Ending:
            before = one.engine.books()
            got = await one.measure(8, SHORT._replace(ending=ending, max_tokens=600), span=Span(10.0, 25.0))
            after = one.engine.books()
            assert got.usable
            lengths.append((after.generated_tokens - before.generated_tokens) / (after.finished - before.finished))
    fixed, natural = lengths
    assert natural < 0.8 * fixed


# ------------------------------------------------------------------ on the product's loop


async def test_a_cell_is_measured_on_the_products_loop() -> None:
    engine = EmbeddedEngine(replace(STEADY, time_scale=0.05))
    await engine.start()
    try:
        target = ArmTarget(engine.url, EngineKind.SGLANG)
        async with open_stand({Arm.BASELINE: target}) as stand:
            began_at_s = stand.now_s()
            got = await stand.measure(Cell(SHORT, 3, Arm.BASELINE, 0), Span(0.1, 0.5))
            _, batches, us, *_ = engine.books().moments
            assert stand.now_s() - began_at_s >= got.spent_s
    finally:
        await engine.stop()
    assert (got.errors, got.source, got.disturbed) == ({}, Source.MOMENTS, False)
    # All that the engine did for this cell, first and last answers included, against what was found in the window.
    assert got.decode_tok_s == pytest.approx(batches / (us / 1e6), rel=0.3)
    assert got.client_cpu > 0
