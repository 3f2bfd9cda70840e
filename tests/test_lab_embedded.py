"""The wire of an embedded engine: like the real one's, over real sockets."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import aiohttp
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.step_time import TableTime
from proxy.model import Role

FAST = EngineOptions(role=Role.SPECULATIVE, time_scale=0.02, health_latency_s=0.0, record_bodies=True)
SLOW = EngineOptions(role=Role.SPECULATIVE, time_scale=0.3, health_latency_s=0.0)
SAID = [{"role": "user", "content": "hello there"}]
CHAT = {"model": "m", "messages": SAID, "max_tokens": 12, "ignore_eos": True}
STREAM = {**CHAT, "stream": True}


async def _started(options: EngineOptions) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine(options)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def engine() -> AsyncIterator[EmbeddedEngine]:
    async for one in _started(FAST):
        yield one


@pytest.fixture
async def slow() -> AsyncIterator[EmbeddedEngine]:
    async for one in _started(SLOW):
        yield one


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def _events(response: aiohttp.ClientResponse) -> list[Any]:
    body = await response.read()
    assert body.endswith(b"\n\n")
    parts = [part.partition(b"data: ")[2] for part in body.split(b"\n\n")[:-1]]
    return [part if part == b"[DONE]" else json.loads(part) for part in parts]


async def _load(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get(f"{engine.url}/v1/loads?include=core") as response:
        load: dict[str, Any] = (await response.json())["loads"][0]
        return load


# ------------------------------------------------------------------ streams


async def test_a_chat_stream_has_the_chunks_of_the_real_engine(
    engine: EmbeddedEngine, http: aiohttp.ClientSession
) -> None:
    body = {**STREAM, "stream_options": {"include_usage": True}}
    async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert response.headers["Server"] == "uvicorn"
        role, *content, finish, usage, done = await _events(response)
    assert role["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert list(role["choices"][0]) == ["index", "delta", "logprobs", "finish_reason", "matched_stop"]
    assert len(content) < 12
    assert finish["choices"][0]["delta"] == {"reasoning_content": None}
    assert finish["choices"][0]["finish_reason"] == "length"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 12)
    assert done == b"[DONE]"
    assert len({chunk["id"] for chunk in (role, *content, finish, usage)}) == 1


async def test_both_roles_answer_one_request_with_one_text(http: aiohttp.ClientSession) -> None:
    texts = []
    for role in Role:
        async for engine in _started(EngineOptions(role=role, time_scale=0.01)):
            async with http.post(f"{engine.url}/v1/chat/completions", json=CHAT) as response:
                texts.append((await response.json())["choices"][0]["message"]["content"])
    assert texts[0] == texts[1]


async def test_two_choices_interleave_and_finish_together(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{engine.url}/v1/chat/completions", json={**STREAM, "n": 2}) as response:
        *_, first, second, done = await _events(response)
    assert done == b"[DONE]"
    assert [chunk["choices"][0]["finish_reason"] for chunk in (first, second)] == ["length", "length"]
    assert {first["choices"][0]["index"], second["choices"][0]["index"]} == {0, 1}
    assert first["id"] != second["id"]


async def test_usage_comes_with_every_chunk_when_asked(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {**STREAM, "stream_options": {"continuous_usage_stats": True}}
    async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
        chunks = (await _events(response))[:-1]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 12


async def test_completions_finish_on_their_last_text_chunk(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {"model": "m", "prompt": "x", "max_tokens": 9, "stream": True, "ignore_eos": True}
    async with http.post(f"{engine.url}/v1/completions", json=body) as response:
        *chunks, done = await _events(response)
    assert done == b"[DONE]"
    assert chunks[-1]["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "length"]
    assert chunks[0]["usage"] is None


async def test_the_native_stream_is_cumulative(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 9, "ignore_eos": True}}
    async with http.post(f"{engine.url}/generate", json=body) as response:
        *chunks, done = await _events(response)
    assert done == b"[DONE]"
    assert all(late["text"].startswith(early["text"]) for early, late in pairwise(chunks))
    assert chunks[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 9}
    assert len(chunks[-1]["output_ids"]) == 9


async def test_anthropic_events_come_in_their_order(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {"model": "m", "messages": SAID, "max_tokens": 6, "stream": True}
    async with http.post(f"{engine.url}/v1/messages", json=body) as response:
        names = re.findall(rb"^event: (\w+)$", await response.read(), re.MULTILINE)
    start, block, *deltas, end, delta, stop = [name.decode() for name in names]
    assert (start, block) == ("message_start", "content_block_start")
    assert set(deltas) == {"content_block_delta"}
    assert (end, delta, stop) == ("content_block_stop", "message_delta", "message_stop")


async def test_ollama_answers_lines_of_json_and_streams_unasked(
    engine: EmbeddedEngine, http: aiohttp.ClientSession
) -> None:
    body = {"model": "m", "messages": SAID, "options": {"num_predict": 6}}
    async with http.post(f"{engine.url}/api/chat", json=body) as response:
        assert response.headers["Content-Type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in (await response.read()).splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["eval_count"] == 6


async def test_a_natural_end_says_stop(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {"model": "m", "messages": SAID, "max_tokens": 4000}
    async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
        choice = (await response.json())["choices"][0]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", 2)


async def test_heads_come_at_once_where_the_real_engine_sends_them_at_once(
    slow: EmbeddedEngine, http: aiohttp.ClientSession
) -> None:
    long = "word " * 40_000
    async with http.post(f"{slow.url}/generate", json={"text": long, "stream": True}):
        assert slow.books().generated_tokens == 0
    await slow.until_idle()
    async with http.post(f"{slow.url}/v1/chat/completions", json=STREAM):
        assert slow.books().generated_tokens > 0


# ------------------------------------------------------------------ the OpenAI SDK


@pytest.fixture
async def client(engine: EmbeddedEngine) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as one:
        yield one


async def test_the_sdk_reads_chat_streams(client: openai.AsyncOpenAI) -> None:
    text, usage = "", None
    async for chunk in await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hi"}],
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
    assert len(text) > 20
    assert usage is not None
    assert usage.completion_tokens == 20


async def test_the_sdk_puts_streamed_tool_calls_together(client: openai.AsyncOpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    stream = client.chat.completions.stream(
        model="m",
        messages=[{"role": "user", "content": "weather"}],
        tools=[{"type": "function", "function": {"name": "weather", "parameters": parameters}}],
        tool_choice="required",
    )
    async with stream as events:
        final = await events.get_final_completion()
    call = final.choices[0].message.tool_calls
    assert call is not None
    assert call[0].function.name == "weather"
    assert set(json.loads(call[0].function.arguments)) == {"city", "days"}
    assert final.choices[0].finish_reason == "tool_calls"


async def test_the_sdk_reads_completions_embeddings_models_and_responses(
    client: openai.AsyncOpenAI, engine: EmbeddedEngine
) -> None:
    texts = await client.completions.create(model="m", prompt=["a", "b"], n=2, max_tokens=3)
    assert [choice.index for choice in texts.choices] == [0, 1, 2, 3]
    assert len((await client.embeddings.create(model="m", input=["a", "b"])).data) == 2
    assert [model.id async for model in client.models.list()] == [engine.model_name]
    assert (await client.responses.create(model="m", input="hi", max_output_tokens=5)).usage is not None
    kinds = [
        event.type
        async for event in await client.responses.create(model="m", input="hi", max_output_tokens=4000, stream=True)
    ]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


async def test_the_sdk_raises_its_own_error_for_a_refused_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="too large"):
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=10_000_000
        )


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (("POST", "/v1/nothing"), (404, {"detail": "Not Found"})),
        (("GET", "/v1/chat/completions"), (405, {"detail": "Method Not Allowed"})),
    ],
)
async def test_unknown_paths_and_methods_have_the_real_bodies(
    engine: EmbeddedEngine, http: aiohttp.ClientSession, asked: tuple[str, str], answered: Any
) -> None:
    async with http.request(asked[0], f"{engine.url}{asked[1]}") as response:
        assert (response.status, await response.json()) == answered


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", ["object", "message", "type", "param", "code"]),
        ("/generate", ["error"]),
        ("/v1/messages", ["type", "error"]),
        ("/v1/responses", ["error"]),
    ],
)
async def test_a_bad_body_is_refused_in_the_shape_of_its_route(
    engine: EmbeddedEngine, http: aiohttp.ClientSession, path: str, shape: list[str]
) -> None:
    async with http.post(f"{engine.url}{path}", json={"stream": True}) as response:
        assert response.status == 400
        assert list(await response.json()) == shape


async def test_an_unknown_model_is_served(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{engine.url}/v1/chat/completions", json={**CHAT, "model": "other"}) as response:
        assert (await response.json())["model"] == "other"


async def test_a_full_queue_says_so_inside_a_200_to_streams_and_by_503_to_others(http: aiohttp.ClientSession) -> None:
    options = EngineOptions(time_scale=0.3, max_running_requests=1, max_queued_requests=0)
    async for engine in _started(options):
        url = f"{engine.url}/v1/chat/completions"
        async with http.post(url, json={**STREAM, "max_tokens": 1000}):
            async with http.post(url, json=STREAM) as refused:
                event, done = await _events(refused)
            assert (refused.status, done) == (200, b"[DONE]")
            assert event["error"]["code"] == 503
            async with http.post(url, json=CHAT) as plain:
                assert plain.status == 503
                assert (await plain.json())["message"] == "The request queue is full."


# ------------------------------------------------------------------ sequences


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/generate"])
async def test_a_client_that_leaves_frees_its_sequences_at_once(
    slow: EmbeddedEngine, http: aiohttp.ClientSession, path: str, stream: bool
) -> None:
    body = {**CHAT, "text": "x", "stream": stream, "max_tokens": 2000, "sampling_params": {"max_new_tokens": 2000}}
    asking = asyncio.ensure_future(http.post(f"{slow.url}{path}", json=body))
    while (await _load(slow, http))["num_running_reqs"] == 0:
        pass
    if stream:
        (await asking).close()
    else:
        asking.cancel()
    async with asyncio.timeout(30):
        await slow.until_idle()
    assert slow.open_sequences == 0
    assert slow.books().aborted == 1


async def test_a_speculative_engine_runs_48_of_60_sequences(slow: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {**STREAM, "n": 60, "max_tokens": 500}
    async with http.post(f"{slow.url}/v1/chat/completions", json=body):
        load = await _load(slow, http)
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["max_running_requests"]) == (48, 12, 48)


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_step_times_told_by_two_polls_match_the_curve(
    http: aiohttp.ClientSession, role: Role, concurrency: int
) -> None:
    options = EngineOptions(role=role, time_scale=0.05, prefill_tokens_per_s=1e9)
    async for engine in _started(options):
        time = engine.curve.step_time(role)
        assert isinstance(time, TableTime)
        before, after = await _moments_around(engine, http, concurrency)
        steps, batch, us, _, _, tokens = (b - a for a, b in zip(before, after, strict=True))
        # Most steps are full ones; the tail, in which sequences end one by one, makes the rest of the tolerance.
        expected_ms = time.step_ms(round(batch / steps), 0.0) * options.time_scale
        assert us / steps / 1000.0 == pytest.approx(expected_ms, rel=0.15)
        assert tokens / batch == pytest.approx(time.tokens_per_step, rel=0.15)


async def _moments_around(
    engine: EmbeddedEngine, http: aiohttp.ClientSession, concurrency: int
) -> tuple[list[float], list[float]]:
    async def moments() -> list[float]:
        told: list[float] | None = (await _load(engine, http))["decode_moments"]
        return told or [0.0] * 6

    async def ask() -> None:
        async with http.post(f"{engine.url}/v1/chat/completions", json={**STREAM, "max_tokens": 300}) as response:
            assert (await _events(response))[-1] == b"[DONE]"

    before = await moments()
    await asyncio.gather(*(ask() for _ in range(concurrency)))
    return before, await moments()


async def test_a_prompt_seen_before_is_told_as_cached(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    body = {**CHAT, "messages": [{"role": "user", "content": "word " * 1000}], "max_tokens": 1}
    cached = []
    for _ in range(2):
        async with http.post(f"{engine.url}/v1/chat/completions", json=body) as response:
            cached.append((await response.json())["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 1024]


async def test_fingerprints_of_bodies_are_kept_when_asked(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    raw = json.dumps(CHAT).encode() + b"  "
    async with http.post(
        f"{engine.url}/v1/chat/completions", data=raw, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 200
    assert list(engine.bodies_sha256) == [hashlib.sha256(raw).hexdigest()]


# ------------------------------------------------------------------ what it says of itself


async def test_server_info_tells_the_resolved_flags(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{engine.url}/server_info") as response:
        info = await response.json()
    assert info["speculative_algorithm"] == "MTP", "as the curve was measured"
    assert (info["max_running_requests"], info["version"]) == (48, "0.5.23")
    assert info["served_model_name"] == f"crossover-embedded-{engine.curve.name}"
    assert info["internal_states"][0]["avg_spec_accept_length"] == 0.0


async def test_a_baseline_engine_does_not_speculate(http: aiohttp.ClientSession) -> None:
    async for engine in _started(EngineOptions()):
        async with http.get(f"{engine.url}/get_server_info") as response:
            info = await response.json()
        async with http.get(f"{engine.url}/v1/loads") as response:
            load = (await response.json())["loads"][0]
        assert (info["speculative_algorithm"], info["max_running_requests"]) == (None, 2048)
        assert (load["decode_moments"], "speculative" in load) == (None, False)


async def test_loads_take_only_known_sections(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{engine.url}/v1/loads?include=core,queues") as response:
        load = (await response.json())["loads"][0]
    assert "queues" in load
    assert "memory" not in load
    async with http.get(f"{engine.url}/v1/loads?include=everything") as response:
        assert response.status == 400


async def test_metrics_are_exposition_text_with_the_real_names(
    engine: EmbeddedEngine, http: aiohttp.ClientSession
) -> None:
    async with http.post(f"{engine.url}/v1/chat/completions", json=STREAM) as response:
        await response.read()
    async with http.get(f"{engine.url}/metrics") as response:
        families = {family.name: family for family in text_string_to_metric_families(await response.text())}
    running = families["sglang:num_running_reqs"].samples[0]
    assert running.value == 0.0
    assert set(running.labels) == {"engine_type", "model_name", "moe_ep_rank", "pp_rank", "tp_rank"}
    tokens = {s.labels["is_streaming"]: s.value for s in families["sglang:generation_tokens"].samples}
    assert tokens == {"true": 12.0, "false": 0.0}
    assert families["sglang:spec_accept_length"].samples[0].value > 1.0
    assert families["sglang:inter_token_latency_seconds"].type == "histogram"


async def test_an_unknown_model_card_is_404_with_its_code(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.get(f"{engine.url}/v1/models/{engine.model_name}") as response:
        assert (await response.json())["id"] == engine.model_name
    async with http.get(f"{engine.url}/v1/models/some/other") as response:
        assert (response.status, (await response.json())["error"]["code"]) == (404, "model_not_found")


async def test_tokens_are_counted_on_request(engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{engine.url}/tokenize", json={"prompt": "x" * 9}) as response:
        assert (await response.json())["count"] == 3
    async with http.post(f"{engine.url}/v1/messages/count_tokens", json={"messages": SAID}) as response:
        assert (await response.json())["input_tokens"] > 3


async def test_health_is_not_quicker_than_its_latency(http: aiohttp.ClientSession) -> None:
    async for engine in _started(EngineOptions(health_latency_s=0.2)):
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        async with http.get(f"{engine.url}/health") as response:
            assert (response.status, await response.read()) == (200, b"")
        assert loop.time() - started_s >= 0.19


async def test_a_draining_engine_says_not_ready_and_still_answers(
    engine: EmbeddedEngine, http: aiohttp.ClientSession
) -> None:
    statuses = []
    for _ in range(2):
        for path in ("/health", "/ready", "/ping", "/health_generate"):
            async with http.get(f"{engine.url}{path}") as response:
                statuses.append(response.status)
        engine.drain()
    assert statuses == [200] * 4 + [503] * 4
    async with http.post(f"{engine.url}/v1/chat/completions", json=CHAT) as response:
        assert response.status == 200
