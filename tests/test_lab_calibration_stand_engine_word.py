"""What an engine tells of its load, in the shapes of both engines; silence is no error."""

import asyncio
import contextlib

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.until import until

from proxy.lab.bodies import OversizeBody
from proxy.lab.calibration.stand import engine_word, series
from proxy.lab.calibration.stand.engine_word import (
    ArmTarget,
    Counters,
    EngineWord,
    Reading,
    counters_of,
    reading_of_loads,
    reading_of_metrics,
)
from proxy.lab.loadcall import open_session
from proxy.protocol.allowlist import EngineKind

RANK = {
    "num_running_reqs": 3,
    "num_waiting_reqs": 1,
    "max_running_requests": 48,
    "token_usage": 0.2,
    "cache_hit_rate": 0.5,
    "decode_moments": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "speculative": {"accept_length": 2.5},
}
RANKS = "".join(
    f'sglang:realtime_tokens_total{{mode="{mode}",moe_ep_rank="0",pp_rank="0",tp_rank="{rank}"}} {value}\n'
    for mode, value in (("decode", 50.0), ("prefill_compute", 30.0), ("prefill_cache", 10.0))
    for rank in (0, 1)
)
SGLANG = f"""# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{is_streaming="true",model_name="m"}} 40.0
sglang:generation_tokens_total{{is_streaming="false",model_name="m"}} 2.0
sglang:num_running_reqs{{tp_rank="0"}} 3.0
sglang:token_usage{{tp_rank="0"}} 0.2
sglang:spec_accept_length{{tp_rank="0"}} 0.0
{RANKS}"""


def test_ranks_are_summed_and_shares_averaged() -> None:
    other = RANK | {"token_usage": 0.4, "cache_hit_rate": 0.7}
    got = reading_of_loads(orjson.dumps({"loads": [RANK, other]}))
    moments = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
    assert got is not None
    assert got == Reading(6, 2, 96, moments, 2, 2.5, pytest.approx(0.3), pytest.approx(0.6))
    assert (got.sequences, got.at_limit, got._replace(running=96).at_limit) == (8, False, True)


def test_metrics_tell_running_and_kv() -> None:
    assert reading_of_metrics(SGLANG) == Reading(3, 0, kv_use=0.2)
    assert reading_of_metrics("up 1\n") is None
    assert reading_of_loads(b"{}") is None


def test_counters_of_sglang_take_one_rank_and_both_ways_of_answering() -> None:
    assert counters_of(SGLANG) == Counters(50.0, 42.0, looked_up=40.0, found=10.0)


def test_counters_of_vllm_are_summed_over_engines() -> None:
    text = "".join(f'vllm:generation_tokens_total{{engine="{one}"}} {one + 1}.0\n' for one in range(3))
    assert counters_of(text) == Counters(6.0)
    assert counters_of("") == Counters()


def test_numbers_that_make_no_sense_and_other_priorities_are_passed_over() -> None:
    text = 'a{priority="1"} 5\na{priority=""} 6\na NaN\na x\na -1\na{tp_rank="1"} 7\nb 3\n'
    found = series.read(text, frozenset("a"))
    assert series.total(found, "a") == 6.0
    assert series.total(found, "b") is None
    assert series.mean(found, "b") is None


@pytest.mark.parametrize("kind", list(EngineKind))
async def test_an_engine_that_is_gone_tells_nothing(kind: EngineKind) -> None:
    async with FakeEngine() as engine:
        url = engine.url
    async with open_session() as session:
        word = EngineWord(session, ArmTarget(url, kind))
        assert (await word.read(), await word.counters()) == (None, Counters())


async def test_a_page_that_is_larger_than_any_of_an_engines_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.stream_head()
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(SGLANG.encode())
        over.set()

    async with FakeEngine(script=script) as engine, open_session() as session:
        word = EngineWord(session, ArmTarget(engine.url, EngineKind.SGLANG))
        monkeypatch.setattr(engine_word, "MAX_PAGE_BYTES", 1 << 20)
        with pytest.raises(OversizeBody):
            await word.page("/metrics")
        await until(over.is_set)
        assert await word.counters() == Counters()


async def test_an_engine_is_asked_with_its_key() -> None:
    async def script(exchange: object) -> None:
        await exchange.answer(SGLANG.encode())  # type: ignore[attr-defined]

    async with FakeEngine(script=script) as engine, open_session() as session:
        word = EngineWord(session, ArmTarget(engine.url, EngineKind.SGLANG, "the-key"))
        assert (await word.counters()).finished == 42.0
    assert engine.requests[0].header("authorization") == "Bearer the-key"
