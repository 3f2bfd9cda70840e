"""What tokens are counted by, on engines that tell this or that: each writes two tokens every tenth of a second."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine, content
from fakes.leaping import leaping

from proxy.lab.calibration.stand.http import ArmTarget, HttpStand, Patience, open_stand
from proxy.lab.calibration.values import Arm, Cell, Condition, Ending, Measurement, Prefix, Source, Span
from proxy.protocol.allowlist import EngineKind

STEP_S = 0.1
TOKENS_A_STEP = 2
TOK_S = TOKENS_A_STEP / STEP_S
COLD = Condition(context_tokens=64, max_tokens=40, prefix=Prefix.COLD)


@dataclass
class Teller:
    """A script for FakeEngine: streams at one speed, and tells of it what a test wants told."""

    continuous: bool = True
    at_the_end: bool = True
    refuses_continuous: bool = False
    times_tokens: bool = False
    metrics: Callable[["Teller"], str] | None = None
    bytes_per_token: float = 4.0
    # What it tells of every prompt, where that is no count of it.
    lie: int | None = None
    leaves_out_cached: bool = False
    doubts: list[str] = field(default_factory=list)
    known: set[bytes] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    made: int = 0
    finished: int = 0
    running: int = 0

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.target == "/metrics" and self.metrics is not None:
            return await exchange.answer(self.metrics(self).encode())
        if exchange.request.method == "GET":
            return await exchange.answer(b"{}", "404 Not Found")
        body = orjson.loads(exchange.request.body)
        self.bodies.append(body)
        if self.refuses_continuous and "continuous_usage_stats" in body["stream_options"]:
            return await exchange.answer(b'{"error":{"message":"unknown field"}}', "400 Bad Request")
        self.running += 1
        try:
            await self._stream(exchange, body)
        finally:
            self.running -= 1
        return None

    async def _stream(self, exchange: Exchange, body: dict[str, Any]) -> None:
        told = self.continuous and body["stream_options"].get("continuous_usage_stats")
        prompt = round(sum(len(one["content"]) for one in body["messages"]) / self.bytes_per_token)
        prompt = prompt if self.lie is None else self.lie
        text = orjson.dumps(body["messages"])
        if self.leaves_out_cached and text in self.known:
            prompt = 1
        self.known.add(text)
        await exchange.stream_head()
        done = 0
        while done < body["max_tokens"]:
            await asyncio.sleep(STEP_S)
            new = min(TOKENS_A_STEP, body["max_tokens"] - done)
            done += new
            self.made += new
            usage: dict[str, Any] = {"usage": {"prompt_tokens": prompt, "completion_tokens": done}} if told else {}
            if self.times_tokens and body.get("timings_per_token"):
                usage = {"timings": {"prompt_n": prompt, "predicted_n": done}}
            await exchange.event({**content("words "), **usage})
        self.finished += done
        await exchange.event(content("", finish_reason="length"))
        if self.at_the_end:
            await exchange.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": done}})
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()


@asynccontextmanager
async def stand_on(teller: Teller, kind: EngineKind = EngineKind.SGLANG) -> AsyncIterator[HttpStand]:
    async with FakeEngine(script=teller) as engine:
        target = ArmTarget(engine.url, kind, model="m")
        clock = asyncio.get_running_loop().time
        patience = Patience(idle_s=1.0)
        async with open_stand(
            {Arm.BASELINE: target}, patience=patience, clock=clock, on_doubt=teller.doubts.append
        ) as stand:
            yield stand


async def measured(
    teller: Teller, kind: EngineKind = EngineKind.SGLANG, condition: Condition = COLD, size: int = 3
) -> Measurement:
    async with stand_on(teller, kind) as stand:
        return await stand.measure(Cell(condition, size, Arm.BASELINE, 0), Span(1.0, 10.0))


def vllm_text(teller: Teller) -> str:
    return "\n".join(
        (
            f'vllm:num_requests_running{{engine="0",model_name="m"}} {teller.running}.0',
            'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0',
            'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
            f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {teller.made}.0',
            f'vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {teller.made / 2}',
            f'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {teller.made * 0.75}',
            f'vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} {teller.made * 10}',
            f'vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {teller.made * 4}',
            "",
        )
    )


def sglang_text(teller: Teller) -> str:
    return f'sglang:generation_tokens_total{{is_streaming="true",model_name="m"}} {teller.finished}.0\n'


@leaping
async def test_tokens_are_counted_by_usage_in_every_chunk() -> None:
    got = await measured(Teller(at_the_end=False))
    assert got.source is Source.USAGE
    assert got.gross_tok_s == pytest.approx(3 * TOK_S, rel=0.03)
    assert got.decode_tok_s is None
    assert got.batch == pytest.approx(3.0, rel=0.05)
    assert got.usable


@leaping
async def test_tokens_are_counted_by_the_engines_counter_where_chunks_do_not_tell() -> None:
    got = await measured(Teller(continuous=False, metrics=vllm_text), EngineKind.VLLM)
    assert got.source is Source.COUNTER
    assert got.gross_tok_s == pytest.approx(3 * TOK_S, rel=0.03)
    assert got.usable


def llamacpp_text(teller: Teller) -> str:
    return "\n".join(
        (
            f"llamacpp:requests_processing {teller.running}",
            "llamacpp:requests_deferred 0",
            f"llamacpp:tokens_predicted_total {teller.finished}",
            f"llamacpp:prompt_tokens_total {teller.finished * 6}",
            f"llamacpp:prompt_tokens_cached_total {teller.finished * 4}",
            f"llamacpp:spec_decode_num_drafts_total {teller.finished / 2}",
            f"llamacpp:spec_decode_num_accepted_tokens_total {teller.finished * 0.75}",
            "",
        )
    )


@leaping
async def test_llamacpp_tells_its_count_in_every_chunk_by_its_own_name() -> None:
    got = await measured(Teller(continuous=False, times_tokens=True, metrics=llamacpp_text), EngineKind.LLAMACPP)
    assert got.source is Source.USAGE
    assert got.gross_tok_s == pytest.approx(3 * TOK_S, rel=0.03)
    assert (got.accept_length, got.cache_hit_rate) == (pytest.approx(2.5), pytest.approx(0.4))
    assert got.batch == pytest.approx(3.0, rel=0.05)
    assert got.usable


@leaping
async def test_tokens_are_spread_where_only_the_end_of_an_answer_tells_them() -> None:
    got = await measured(Teller(continuous=False))
    assert got.source is Source.SPREAD
    # How the tokens lay within an answer is not known, so those at the edges of the window are a guess.
    assert got.gross_tok_s == pytest.approx(3 * TOK_S, rel=0.08)


@leaping
async def test_a_counter_of_ended_requests_is_the_last_resort() -> None:
    got = await measured(Teller(continuous=False, at_the_end=False, metrics=sglang_text))
    assert got.source is Source.COUNTER
    assert got.gross_tok_s == pytest.approx(3 * TOK_S, rel=0.25)


@leaping
async def test_chunks_are_never_taken_for_tokens() -> None:
    got = await measured(Teller(continuous=False, at_the_end=False))
    assert got.tokens == 0.0
    assert not got.usable


@leaping
async def test_an_engine_that_refuses_continuous_usage_is_asked_without_it() -> None:
    teller = Teller(refuses_continuous=True)
    got = await measured(teller)
    assert (got.source, got.errors) == (Source.SPREAD, {})
    asked = [body["stream_options"] for body in teller.bodies]
    assert asked[0] == {"include_usage": True, "continuous_usage_stats": True}
    assert all(options == {"include_usage": True} for options in asked[1:])


@leaping
async def test_what_vllm_counts_is_read_over_the_window() -> None:
    got = await measured(Teller(metrics=vllm_text), EngineKind.VLLM)
    assert got.source is Source.USAGE
    assert got.accept_length == pytest.approx(2.5)
    assert got.cache_hit_rate == pytest.approx(0.4)
    assert got.kv_use == pytest.approx(0.25)
    assert not got.disturbed


@leaping
async def test_a_counter_that_grows_by_more_than_our_tokens_shows_a_stranger() -> None:
    def with_another(teller: Teller) -> str:
        return vllm_text(teller).replace(f"}} {teller.made}.0", f"}} {teller.made * 1.3}")

    got = await measured(Teller(metrics=with_another), EngineKind.VLLM)
    assert got.disturbed


@dataclass
class Publisher(FakeEngine):
    """Publishes its decode moments only every fifteenth step, as SGLang does."""

    def _loads(self) -> dict[str, object]:
        assert isinstance(self.script, Teller)
        steps = self.script.made // (TOKENS_A_STEP * 3) // 15 * 15
        moments = [steps, steps * 3, steps * STEP_S * 1e6, steps * 9, steps * STEP_S * 3e6, steps * 3 * TOKENS_A_STEP]
        load = {"num_running_reqs": self.open, "num_waiting_reqs": 0, "decode_moments": moments}
        return {"loads": [load], "version": "0.5.23"}


@leaping
async def test_moments_that_come_late_are_taken_where_they_are_new() -> None:
    got = []
    async with Publisher(script=Teller()) as engine:
        clock, target = asyncio.get_running_loop().time, ArmTarget(engine.url, EngineKind.SGLANG, model="m")
        async with open_stand({Arm.BASELINE: target}, clock=clock) as stand:
            for settle_s in (0.2, 0.6, 1.0, 1.4):
                cell = Cell(COLD._replace(max_tokens=400), 3, Arm.BASELINE, 0)
                got.append(await stand.measure(cell, Span(settle_s, 4.0)))
    assert [one.source for one in got] == [Source.MOMENTS] * 4
    assert [one.decode_tok_s for one in got] == pytest.approx([3 * TOK_S] * 4)
    assert not any(one.disturbed for one in got), "what the engine made before the window was counted into it"


@dataclass
class Shared(FakeEngine):
    """Runs two sequences more than the clients of the test have there."""

    def _loads(self) -> dict[str, object]:
        others = 2 if self.open else 0
        return {"loads": [{"num_running_reqs": self.open + others, "num_waiting_reqs": 0}], "version": "0.5.23"}


@leaping
async def test_sequences_that_are_not_ours_show_a_stranger_where_no_tokens_are_told() -> None:
    async with Shared(script=Teller(continuous=False)) as engine:
        clock, target = asyncio.get_running_loop().time, ArmTarget(engine.url, EngineKind.SGLANG, model="m")
        async with open_stand({Arm.BASELINE: target}, clock=clock) as stand:
            got = await stand.measure(Cell(COLD, 3, Arm.BASELINE, 0), Span(1.0, 4.0))
    assert got.disturbed


# ------------------------------------------------------------------ what is asked


@leaping
async def test_the_first_requests_of_a_cell_end_one_after_another() -> None:
    teller = Teller()
    await measured(teller, size=4)
    probe, *asked = (body["max_tokens"] for body in teller.bodies)
    assert probe == 1
    assert asked[:4] == [10, 20, 30, 40]
    assert set(asked[4:]) == {40}


@leaping
async def test_fixed_answers_ask_to_go_on_and_natural_ones_do_not() -> None:
    for kind, ending, more in (
        (EngineKind.SGLANG, Ending.FIXED, {"ignore_eos": True}),
        (EngineKind.VLLM, Ending.FIXED, {"ignore_eos": True, "min_tokens": 40}),
        (EngineKind.VLLM, Ending.NATURAL, {}),
    ):
        teller = Teller(metrics=vllm_text)
        await measured(teller, kind, COLD._replace(ending=ending))
        last = teller.bodies[-1]
        assert {key: last[key] for key in ("ignore_eos", "min_tokens") if key in last} == more
        assert "temperature" not in last


@leaping
async def test_prompts_are_cut_by_the_length_of_a_token_that_the_engine_showed() -> None:
    teller = Teller(bytes_per_token=3.0)
    got = await measured(teller, condition=COLD._replace(context_tokens=3000))
    assert got.prompt_tokens == pytest.approx(3000 - 20, rel=0.01)


@pytest.mark.parametrize("lie", [-3, 0, 1, 50, 10**6, 2**63])
@leaping
async def test_a_count_of_prompt_tokens_that_cannot_be_is_told_and_prompts_are_cut_as_usual(lie: int) -> None:
    teller = Teller(lie=lie)
    async with stand_on(teller) as stand:
        await stand.measure(Cell(COLD._replace(context_tokens=3000), 3, Arm.BASELINE, 0), Span(0.5, 4.0))
        assert await stand.first_token(Arm.BASELINE, 3000) is None
    sizes = [sum(len(one["content"]) for one in body["messages"]) for body in teller.bodies]
    assert sizes[1:] == pytest.approx([3000 * 4] * len(sizes[1:]), rel=0.01)
    [doubt] = teller.doubts
    assert f"tells {lie:,} prompt tokens" in doubt and "4 characters a token are assumed" in doubt


@leaping
async def test_an_engine_that_counts_what_it_has_not_cached_alone_is_understood_in_every_run() -> None:
    teller = Teller(bytes_per_token=3.0, leaves_out_cached=True)
    lengths = [(await measured(teller, condition=COLD._replace(context_tokens=3000))).prompt_tokens for _ in range(2)]
    assert lengths == pytest.approx([2980, 2980], rel=0.01)
    assert not teller.doubts


@leaping
async def test_every_cold_prompt_begins_as_no_other() -> None:
    teller = Teller()
    async with stand_on(teller) as stand:
        for _ in range(2):
            await stand.measure(Cell(COLD, 3, Arm.BASELINE, 0), Span(0.5, 4.0))
    begun = [body["messages"][0]["content"].splitlines()[0] for body in teller.bodies[1:]]
    assert len(begun) > 12
    assert len(set(begun)) == len(begun)


@leaping
async def test_every_repeat_of_a_warm_cell_asks_the_same() -> None:
    teller, asked = Teller(), []
    async with stand_on(teller) as stand:
        for _ in range(2):
            teller.bodies.clear()
            await stand.measure(Cell(COLD._replace(prefix=Prefix.WARM), 3, Arm.BASELINE, 0), Span(0.5, 4.0))
            asked.append([body["messages"] for body in teller.bodies if body["max_tokens"] > 1][:12])
    assert asked[0] == asked[1]


@leaping
async def test_answers_that_nobody_counts_are_called_that_and_not_silence() -> None:
    got = await measured(Teller(continuous=False, at_the_end=False))
    assert not got.usable
    assert got.errors == {"uncounted": 3}
