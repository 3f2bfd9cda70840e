"""What an arm says of itself, asked over real sockets; and the mends where it says nothing."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes.engine import Exchange, FakeEngine

from proxy.errors import BackendUnreachable, UpstreamError
from proxy.lab.calibration.stand.http import ArmTarget, open_stand
from proxy.lab.calibration.values import Arm, ArmFacts
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import Role
from proxy.protocol.allowlist import EngineKind

VLLM_METRICS = "\n".join(
    (
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
        'gpu_memory_utilization="0.9",num_gpu_blocks="1000",sliding_window="None"} 1.0',
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 0.0',
        *(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="{place}"}} 0.0'
            for place in range(3)
        ),
        "",
    )
)
MODELS = b'{"object":"list","data":[{"id":"org/m","object":"model","max_model_len":4096}]}'


def told(pages: Mapping[str, bytes], *, key: str | None = None) -> Any:
    """A script that answers these paths and no other, to those who have the key."""

    async def script(exchange: Exchange) -> None:
        if key is not None and exchange.request.header("authorization") != f"Bearer {key}":
            return await exchange.answer(b'{"error":"Unauthorized"}', "401 Unauthorized")
        page = pages.get(exchange.request.target.partition("?")[0])
        return await (exchange.answer(b"{}", "404 Not Found") if page is None else exchange.answer(page))

    return script


async def facts(
    url: str, kind: EngineKind = EngineKind.SGLANG, *, model: str | None = None, key: str | None = None
) -> ArmFacts:
    async with open_stand({Arm.BASELINE: ArmTarget(url, kind, key, model)}) as stand:
        return (await stand.facts())[Arm.BASELINE]


@asynccontextmanager
async def engine(script: Any) -> AsyncIterator[str]:
    async with FakeEngine(script=script) as fake:
        yield fake.url


async def test_an_sglang_arm_tells_what_it_runs() -> None:
    embedded = EmbeddedEngine(EngineOptions(role=Role.SPECULATIVE, max_running_requests=96, health_latency_s=0.0))
    await embedded.start()
    try:
        got = await facts(embedded.url)
    finally:
        await embedded.stop()
    assert (got.engine, got.model, got.version) == ("sglang", embedded.model_name, "0.5.23")
    assert (got.max_running_requests, got.kv_tokens) == (96, 343_664)
    assert (got.speculative_algorithm, got.num_steps, got.topk, got.draft_tokens) == ("MTP", 3, 1, 4)
    assert (got.adaptive, got.accelerators) == (False, 8)
    assert got.accelerator is not None
    assert (got.flags["tp_size"], got.flags["disable_radix_cache"]) == ("8", "false")


class Telling(FakeEngine):
    """Shows its keys, as SGLang did."""

    def _server_info(self) -> dict[str, object]:
        keys = {"api_key": "secret", "admin_api_key": "secret", "launch_command": "--api-key secret"}
        return {
            "served_model_name": "m",
            "version": "1",
            "tp_size": 2,
            "enable_metrics": True,
            "quantization": None,
            **keys,
        }


async def test_no_key_is_among_the_facts() -> None:
    async with Telling(script=told({"/v1/models": MODELS}, key="secret")) as fake:
        url = fake.url
        got = await facts(url, key="secret")
    assert got.flags == {"tp_size": "2", "enable_metrics": "true"}
    assert "secret" not in repr(got)
    assert "secret" not in repr(ArmTarget(url, EngineKind.SGLANG, "secret"))


async def test_a_vllm_arm_tells_less_and_that_it_drafts() -> None:
    pages = {"/v1/models": MODELS, "/version": b'{"version":"0.33.0"}', "/metrics": VLLM_METRICS.encode()}
    async with engine(told(pages)) as url:
        got = await facts(url, EngineKind.VLLM)
    assert (got.engine, got.model, got.version, got.kv_tokens) == ("vllm", "org/m", "0.33.0", 16_000)
    assert (got.speculative_algorithm, got.num_steps, got.draft_tokens) == ("unnamed", 3, 4)
    assert got.flags["enable_prefix_caching"] == "True"
    assert got.max_running_requests is None


async def test_a_llamacpp_arm_tells_its_slots_and_that_it_drafts() -> None:
    props = b'{"total_slots":8,"model_alias":"m","build_info":"b7","default_generation_settings":{"n_ctx":2048}}'
    pages = {"/v1/models": MODELS, "/props": props, "/slots": b'[{"speculative":true,"is_processing":false}]'}
    async with engine(told(pages)) as url:
        got = await facts(url, EngineKind.LLAMACPP)
    assert (got.engine, got.model, got.version, got.max_running_requests) == ("llamacpp", "org/m", "b7", 8)
    assert (got.speculative_algorithm, got.flags) == ("unnamed", {"slot_context": "2048"})


@pytest.mark.parametrize("kind", list(EngineKind))
async def test_an_engine_that_tells_only_its_models_is_an_arm_too(kind: EngineKind) -> None:
    async with engine(told({"/v1/models": MODELS})) as url:
        got = await facts(url, kind)
    # The fake answers SGLang's own questions by itself, as a healthy engine would.
    assert got.model == "org/m"


async def test_the_model_that_was_named_goes_before_the_list() -> None:
    async with engine(told({"/v1/models": MODELS})) as url:
        assert (await facts(url, model="mine")).model == "mine"
    async with engine(told({})) as url:
        assert (await facts(url, EngineKind.VLLM, model="mine")).model == "mine"


async def test_an_engine_that_wants_a_key_says_where_to_put_it() -> None:
    async with engine(told({"/v1/models": MODELS}, key="right")) as url:
        with pytest.raises(UpstreamError, match=r"baseline engine .* wants a key .*api_key_file"):
            await facts(url, key="wrong")


async def test_an_engine_that_is_not_there_is_named_with_its_address() -> None:
    async with engine(told({})) as url:
        pass
    with pytest.raises(BackendUnreachable, match=f"baseline engine at {url} .*start it"):
        await facts(url)


async def test_a_server_that_names_no_model_is_told_from_an_engine() -> None:
    async with engine(told({})) as url:
        with pytest.raises(UpstreamError, match="answered 404 and names no model"):
            await facts(url)


async def test_words_that_would_steer_a_terminal_or_fill_a_page_are_made_plain() -> None:
    pages = {
        "/v1/models": b'{"data":[{"id":"m\\u0007%b","object":"model"}]}' % (b"x" * 5000),
        "/version": b'{"version":"0.5\\u001b[31m\\n# head"}',
        "/metrics": VLLM_METRICS.replace('"auto"', '"fp\u2028\x1b8"').encode(),
    }
    async with engine(told(pages)) as url:
        found = await facts(url, EngineKind.VLLM)
    assert found.version == "0.5?[31m?# head"
    assert found.flags["cache_dtype"] == "fp??8"
    assert found.model is not None
    assert found.model.startswith("m?xx")
    assert len(found.model) == 200
