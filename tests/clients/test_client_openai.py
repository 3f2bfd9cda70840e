"""The `openai` Python SDK works against the proxy as it is: only its base URL is set."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from fakes.engine import Exchange, FakeEngine, stream
from fakes.proxy import running, settings, url
from fakes.until import until
from openai import AsyncOpenAI, OpenAI

SAID: Any = [{"role": "user", "content": "Tell me of the sea."}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "find_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
MODEL = "any"
ROLES = ("speculative", "baseline")


@pytest.fixture
def client(base: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base}/v1", api_key="key", max_retries=0, timeout=20) as made:
        yield made


@pytest.fixture
async def eager(base: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{base}/v1", api_key="key", max_retries=0, timeout=20) as made:
        yield made


def fault(kind: str) -> dict[str, str]:
    """The header that makes the embedded engines fail one request."""
    return {"x-engine-fault": kind}


# ---------------------------------------------------------------- answers


def test_chat_answers_whole(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=12)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_streams(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=12, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_usage_when_it_is_asked_for(client: OpenAI) -> None:
    said = client.chat.completions.create(
        model=MODEL, messages=SAID, max_tokens=12, stream=True, stream_options={"include_usage": True}
    )
    *_, last = said
    assert last.choices == []
    assert last.usage is not None
    assert 0 < last.usage.completion_tokens <= 12


def test_two_choices_come_whole_and_streamed(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=6, n=2)
    assert [choice.index for choice in whole.choices] == [0, 1]
    texts = {0: "", 1: ""}
    for chunk in client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=6, n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert all(texts.values())


def test_a_tool_is_called_whole_and_streamed(client: OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": SAID, "tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    choice = client.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    call = choice.message.tool_calls[0]
    assert call.type == "function"
    assert call.function.name == "find_weather"
    assert set(json.loads(call.function.arguments)) == {"city", "days"}

    with client.chat.completions.stream(**asked) as events:
        message = events.get_final_completion().choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "find_weather"
    assert set(json.loads(message.tool_calls[0].function.arguments)) == {"city", "days"}


def test_raw_answers_carry_the_decision_in_their_headers(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=SAID, max_tokens=4, extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.headers["x-request-id"] == raw.parse()._request_id == "mine-1"
    assert raw.headers["x-crossover-backend"] in ROLES
    assert raw.headers["x-crossover-reason"]
    assert raw.headers["x-crossover-in-flight"].startswith("speculative=")
    with client.chat.completions.with_streaming_response.create(
        model=MODEL, messages=SAID, max_tokens=4, stream=True
    ) as streamed:
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.headers["x-crossover-backend"] in ROLES


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    models = client.models.list().data
    assert len(models) == 1
    assert client.models.retrieve(models[0].id).id == models[0].id


def test_completions_answer_and_stream(client: OpenAI) -> None:
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=8).choices[0].text
    pieces = client.completions.create(model=MODEL, prompt=["Once", "Twice"], max_tokens=8, stream=True)
    assert {choice.index for piece in pieces for choice in piece.choices} == {0, 1}


def test_embeddings_answer(client: OpenAI) -> None:
    rows = client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float").data
    assert [row.index for row in rows] == [0, 1]
    assert all(row.embedding for row in rows)


def test_responses_answer_and_stream(client: OpenAI) -> None:
    whole = client.responses.create(model=MODEL, input="Tell me of the sea.", max_output_tokens=12)
    assert whole.output_text
    kinds = [event.type for event in client.responses.create(model=MODEL, input="And on.", stream=True)]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] in ("response.completed", "response.incomplete")


async def test_the_async_client_answers_and_streams(eager: AsyncOpenAI) -> None:
    whole = await eager.chat.completions.create(model=MODEL, messages=SAID, max_tokens=8)
    assert whole.choices[0].message.content
    chunks = [
        chunk
        async for chunk in await eager.chat.completions.create(model=MODEL, messages=SAID, max_tokens=8, stream=True)
    ]
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


async def test_many_streams_at_once_all_come_whole(eager: AsyncOpenAI) -> None:
    async def one(number: int) -> str | None:
        asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": f"Number {number}"}], "max_tokens": 16}
        finish = None
        async for chunk in await eager.chat.completions.create(**asked, stream=True):
            finish = chunk.choices[0].finish_reason or finish
        return finish

    assert set(await asyncio.gather(*(one(number) for number in range(32)))) <= {"stop", "length"}


async def test_a_stream_that_is_closed_early_leaves_the_client_usable(eager: AsyncOpenAI) -> None:
    streaming = await eager.chat.completions.create(model=MODEL, messages=SAID, max_tokens=4000, stream=True)
    await anext(aiter(streaming))
    await streaming.close()
    assert (await eager.chat.completions.create(model=MODEL, messages=SAID, max_tokens=4)).choices


# ---------------------------------------------------------------- errors, each as its class


def test_what_the_engine_refuses_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=SAID, max_tokens=10_000_000)
    assert refused.value.status_code == 400
    assert "max_completion_tokens" in refused.value.message


def test_an_unknown_route_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.files.list()
    assert refused.value.code == "unknown_route"
    assert refused.value.type == "invalid_request_error"
    assert refused.value.request_id


def test_a_model_that_is_not_there_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("nobody/has-this")
    assert refused.value.code == "model_not_found"


def test_a_route_of_the_operators_is_denied(base: str) -> None:
    with OpenAI(base_url=base, api_key="key", max_retries=0) as root, pytest.raises(openai.PermissionDeniedError) as no:
        root.post("/flush_cache", cast_to=object)
    assert no.value.code == "route_refused"


def test_a_body_over_the_limit_is_its_own_status(client: OpenAI) -> None:
    large: Any = [{"role": "user", "content": "x" * 300_000}]
    with pytest.raises(openai.APIStatusError) as refused:
        client.chat.completions.create(model=MODEL, messages=large)
    assert refused.value.status_code == 413
    assert refused.value.code == "body_too_large"


@pytest.mark.parametrize(
    ("kind", "status"),
    [("500", 500), ("503", 503), ("reset", 502), ("garbage", 502), ("silent", 504)],
)
def test_both_backends_failing_is_an_internal_server_error(client: OpenAI, kind: str, status: int) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model=MODEL, messages=SAID, extra_headers=fault(kind))
    assert failed.value.status_code == status


def test_a_stream_refused_inside_a_200_is_an_internal_server_error(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(model=MODEL, messages=SAID, stream=True, extra_headers=fault("queue-full"))
    assert failed.value.status_code == 503
    assert failed.value.code == "backend_busy"


def test_a_client_that_retries_outlives_a_busy_moment(base: str) -> None:
    with OpenAI(base_url=f"{base}/v1", api_key="key", max_retries=1) as patient:
        seen: list[int] = []
        patient._client.event_hooks["response"].append(lambda answer: seen.append(answer.status_code))
        with pytest.raises(openai.InternalServerError):
            patient.chat.completions.create(model=MODEL, messages=SAID, extra_headers=fault("500"))
    assert seen == [500, 500]


@pytest.mark.parametrize("kind", ["die-mid-line=2", "reset-stream=2", "truncate=2"])
def test_an_engine_that_dies_in_a_stream_is_an_api_error(client: OpenAI, kind: str) -> None:
    seen = []
    with pytest.raises(openai.APIError) as failed:
        for chunk in client.chat.completions.create(
            model=MODEL, messages=SAID, max_tokens=60, stream=True, extra_headers=fault(kind)
        ):
            seen.append(chunk)
    assert seen
    assert not isinstance(failed.value, openai.APIStatusError | openai.APIConnectionError)
    assert failed.value.body["code"] == 502  # type: ignore[index]


def test_no_proxy_at_all_is_a_connection_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can have it, and it refuses
        where = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with OpenAI(base_url=where, api_key="key", max_retries=0) as alone, pytest.raises(openai.APIConnectionError):
            alone.models.list()


@contextlib.asynccontextmanager
async def full(**queue: float) -> AsyncIterator[AsyncOpenAI]:
    """A client of a proxy whose backends have one place each, both of them taken."""
    gate = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await stream(exchange, gate=gate)

    async with (
        FakeEngine(script=held, max_running_requests=1) as a,
        FakeEngine(script=held, max_running_requests=1, role="baseline") as b,
        running(settings(a.url, b.url, queue=queue)) as app,
        AsyncOpenAI(base_url=url(app, "/v1"), api_key="key", max_retries=0, timeout=20) as client,
    ):
        holding = [await client.chat.completions.create(model=MODEL, messages=SAID, stream=True) for _ in range(2)]
        await until(lambda: app.desk.snapshot().in_flight == 2)
        yield client
        gate.set()
        for one in holding:
            await one.close()


async def test_a_full_queue_is_a_rate_limit_error() -> None:
    async with full(max_waiting=0) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(model=MODEL, messages=SAID)
    assert refused.value.code == "queue_full"
    assert refused.value.response.headers["retry-after"] == "1"


async def test_waiting_in_vain_is_an_internal_server_error() -> None:
    async with full(max_wait_s=0.05) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(model=MODEL, messages=SAID)
    assert refused.value.status_code == 503
    assert refused.value.code == "queue_timeout"


async def test_both_backends_down_is_an_internal_server_error() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        await a.close()
        await b.close()
        async with AsyncOpenAI(base_url=url(app, "/v1"), api_key="key", max_retries=0, timeout=20) as client:
            with pytest.raises(openai.InternalServerError) as failed:
                await client.chat.completions.create(model=MODEL, messages=SAID)
    assert failed.value.status_code == 502
    assert failed.value.code == "backend_unreachable"


async def test_a_slow_engine_is_a_timeout_of_the_client_when_the_client_says_so(base: str) -> None:
    async with AsyncOpenAI(base_url=f"{base}/v1", api_key="key", max_retries=0, timeout=0.2) as hasty:
        with pytest.raises(openai.APITimeoutError):
            await hasty.chat.completions.create(model=MODEL, messages=SAID, extra_headers=fault("silent"))
