"""An engine that goes without speculation where that is faster, as its decode moments tell it over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.until import until_told

from proxy.__main__ import main
from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.adaptive import ADAPTIVE_TAX, Pause
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.step_time import Point, TableTime
from proxy.model import Role

SCALE = 0.02
ADAPTIVE = EngineOptions(
    role=Role.SPECULATIVE, speculative_adaptive=True, jitter=0.0, time_scale=SCALE, health_latency_s=0.0
)
ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000, "ignore_eos": True}
STEPS = 60


class _Told:
    """What an engine said of the steps between two looks, all with the same sequences."""

    def __init__(self, before: list[float], after: list[float]) -> None:
        steps, batches, us, _, _, tokens = (late - early for early, late in zip(before, after, strict=True))
        self.batch = batches / steps
        self.step_ms = us / steps / 1000.0 / SCALE
        self.tokens_per_step = tokens / batches


@contextlib.asynccontextmanager
async def _running(options: EngineOptions) -> AsyncIterator[tuple[EmbeddedEngine, aiohttp.ClientSession]]:
    engine = EmbeddedEngine(options)
    await engine.start()
    async with aiohttp.ClientSession() as http:
        yield engine, http
    await engine.stop()


async def _load(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get(f"{engine.url}/v1/loads?include=core") as response:
        load: dict[str, Any] = (await response.json())["loads"][0]
        return load


async def _under(count: int, engine: EmbeddedEngine, http: aiohttp.ClientSession) -> _Told:
    """What it tells with `count` sequences."""

    async def ask() -> None:
        async with http.post(f"{engine.url}/v1/chat/completions", json=ASK) as response:
            await response.read()

    looks: list[list[float]] = []

    async def looked() -> bool:
        load = await _load(engine, http)
        moments = load["decode_moments"]
        # None before its first step.
        if moments and load["num_running_reqs"] == count and (not looks or moments[0] >= looks[0][0] + STEPS):
            looks.append(moments)
        return len(looks) == 2

    asking = [asyncio.create_task(ask()) for _ in range(count)]
    try:
        await until_told(looked)
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await engine.until_idle()
    return _Told(*looks)


async def test_it_speculates_below_the_crossover_and_pays_its_tax_above() -> None:
    curve = curves.find(ADAPTIVE.curve)
    drafted, plain = curve.step_time(Role.SPECULATIVE), curve.step_time(Role.BASELINE)
    async with _running(ADAPTIVE) as (engine, http):
        few = await _under(2, engine, http)
        many = await _under(16, engine, http)
    assert (few.batch, few.step_ms) == (2, pytest.approx(drafted.step_ms(2, 0)))
    assert few.tokens_per_step == pytest.approx(curve.tokens_per_step, rel=0.25)
    assert (many.batch, many.tokens_per_step) == (16, 1)
    assert many.step_ms == pytest.approx((1 + ADAPTIVE_TAX) * plain.step_ms(16, 0))


async def test_without_the_option_it_speculates_at_every_batch() -> None:
    plainly = EngineOptions(role=Role.SPECULATIVE, jitter=0.0, time_scale=SCALE, health_latency_s=0.0)
    async with _running(plainly) as (engine, http):
        assert (await _under(16, engine, http)).tokens_per_step > 1.5


async def test_it_says_that_it_adapts_a_chain() -> None:
    async with _running(ADAPTIVE) as (engine, http), http.get(f"{engine.url}/server_info") as response:
        said = await response.json()
    assert (said["speculative_adaptive"], said["speculative_eagle_topk"]) == (True, 1)
    assert said["speculative_num_draft_tokens"] == said["speculative_num_steps"] + 1
    assert said["launch_command"].endswith("--speculative-adaptive")


async def test_a_tree_is_said_to_be_a_chain_once_it_adapts() -> None:
    for adaptive, shape in ((True, (1, 3)), (False, (4, 16))):
        options = EngineOptions(curve="seed", role=Role.SPECULATIVE, speculative_adaptive=adaptive)
        async with _running(options) as (engine, http), http.get(f"{engine.url}/server_info") as response:
            said = await response.json()
        assert (said["speculative_eagle_topk"], said["speculative_num_draft_tokens"]) == shape


async def test_the_metrics_tell_the_steps_of_now() -> None:
    options = EngineOptions(
        curve="seed", role=Role.SPECULATIVE, speculative_adaptive=True, time_scale=SCALE, adaptive_tax=0.0
    )
    async with _running(options) as (engine, http):
        await _under(2, engine, http)
        async with http.get(f"{engine.url}/metrics") as response:
            text = await response.text()
    [line] = [line for line in text.splitlines() if line.startswith("sglang:spec_num_steps{")]
    assert float(line.split()[-1]) == 0


def test_a_step_is_plain_only_where_the_tax_leaves_it_faster() -> None:
    plain = TableTime((Point(1, 100.0, 100.0),), Role.BASELINE, tokens_per_step=1.0)
    assert Pause(plain, tokens_per_step=2.0, tax=0.1).step_ms(21.0, 1, 0) is None
    assert Pause(plain, tokens_per_step=2.0, tax=0.1).step_ms(23.0, 1, 0) == pytest.approx(11.0)


def test_a_baseline_cannot_adapt(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="mend: --role speculative"):
        EmbeddedEngine(EngineOptions(speculative_adaptive=True))
    assert main(["engine", "--speculative-adaptive"]) == 1
    assert "mend: --role speculative" in capsys.readouterr().err
