"""The proxy has no schema: fields it does not know, and fields it might be tempted to add, cross as sent (H27, H28)."""

from typing import Any

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, Script
from fakes.proxy import url
from fakes.raw import Said, ask, request
from fakes.sending import sends
from fakes.stage import staged
from openai import AsyncOpenAI

from proxy.model import Dialect, Outcome, Usage

DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
ROLE = pytest.mark.parametrize("role", ["speculative", "baseline"])
CHAT, COMPLETIONS, RESPONSES, MESSAGES, GENERATE, OLLAMA = SAMPLES

# As somebody's own encoder writes it: spaces, escapes, its own order, a key twice, numbers that do not round-trip.
UNKNOWN = (
    rb'"rid" : "r-1","priority":-3, "input_ids":[ 1,2 ],"return_routed_experts":true,"stop_regex":"\\d+\/",'
    rb'"chat_template_kwargs":{"enable_thinking":false,"z":1,"a":2},"cache_salt":"\u0000\ud83d\ude00",'
    rb'"invented":{"x":1.0,"y":1e300,"big":123456789012345678901234567890,"x":2},  "temperature":0.10'
)

# With a number that parsers refuse, and without: what cannot be read cannot be written anew either.
UNREADABLE = UNKNOWN.replace(b"1e300", b"1e400")
READ = pytest.mark.parametrize("unknown", [UNKNOWN, UNREADABLE], ids=["readable", "unreadable"])


def asked(sample: Sample, *, stream: bool, unknown: bytes = UNKNOWN) -> bytes:
    """A request of its dialect with fields that no schema has."""
    body = sample.body if stream else sample.body.replace(b'"stream":true', b'"stream":false')
    return b"\n" + body[:-1] + b" , " + unknown + b" }  "


def whole(sample: Sample) -> Script:
    """A stream to those who ask for one, a small plain answer to others."""

    async def answer(exchange: Exchange) -> None:
        if b'"stream":true' in exchange.request.body:
            return await sends(*sample.events, sample.end, content_type=sample.content_type)(exchange)
        return await exchange.answer(b"{}")

    return answer


async def refuse(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"busy"}}', "503 Service Unavailable")


# ---------------------------------------------------------------- H27: requests


@DIALECT
@ROLE
@READ
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_h27_engine_sees_the_request_as_sent(
    sample: Sample, role: str, version: str, stream: bool, unknown: bytes
) -> None:
    body, answer = asked(sample, stream=stream, unknown=unknown), whole(sample)
    async with staged(a=answer, b=answer, routing={"policy": "pinned", "pin": role}) as stage:
        said = await ask(stage.app.port, request(sample.target, body, version=version))
        (seen,) = (stage.a if role == "speculative" else stage.b).requests
        assert (said.status, seen.body, seen.target) == (200, body, sample.target)


@DIALECT
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_h27_second_engine_sees_the_same_request_as_the_first(sample: Sample, stream: bool) -> None:
    body = asked(sample, stream=stream)
    async with staged(a=refuse, b=whole(sample)) as stage:
        said = await ask(stage.app.port, request(sample.target, body))
        assert said.header("x-crossover-backend") == "baseline"
        assert [each.body for each in stage.a.requests + stage.b.requests] == [body, body]


@pytest.mark.parametrize("target", ["/v1/embeddings", "/v1/tokenize", "/v1/rerank", "/v1/audio/transcriptions"])
async def test_h27_other_routes_carry_unknown_fields_too(target: str) -> None:
    body = b'{"input":"x",' + UNKNOWN + b"}"
    async with staged() as stage:
        await ask(stage.app.port, request(target, body))
        assert [each.body for each in stage.a.requests + stage.b.requests] == [body]


# ---------------------------------------------------------------- H27: answers


def chunk(choice: bytes, more: bytes = b"") -> bytes:
    return b'data: {"id":"x", "object":"chat.completion.chunk","choices":[%b]%b}\n\n' % (choice, more)


def delta(index: int, said: bytes, more: bytes = b"") -> bytes:
    return chunk(b'{"index":%d,"delta":{%b},"finish_reason":null%b}' % (index, said, more))


ARGUMENTS = ('{"city":"Köln","days":', '{"city":"東京","days":')


def tool_deltas() -> list[bytes]:
    """Two calls, each begun once and then split over ten deltas, by turns."""
    events = []
    for call in range(2):
        begun = b'{"index":%d,"id":"c%d","type":"function","function":{"name":"f%d","arguments":""}}' % (
            call,
            call,
            call,
        )
        events.append(delta(0, b'"tool_calls":[%b]' % begun))
    texts = [text + "1" * 40 + "}" for text in ARGUMENTS]
    for part in range(10):
        for call, text in enumerate(texts):
            size = -(-len(text) // 10)
            piece = orjson.dumps(text[part * size : (part + 1) * size])
            events.append(delta(0, b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]' % (call, piece)))
    return events


def choices_by_turns() -> list[bytes]:
    """Two choices of one request, and every field that an engine was seen to send."""
    logprobs = b',"logprobs":{"content":[{"token":"a","logprob":-0.10,"bytes":[97],"top_logprobs":[]}]}'
    return [
        delta(0, b'"role":"assistant","content":null'),
        delta(1, b'"role":"assistant"'),
        delta(0, b'"reasoning_content":"think"'),
        delta(1, b'"reasoning":"think","reasoning_items":[{"a":1.0}]'),
        delta(0, b'"content":"\\u4f60 a"', logprobs),
        delta(1, b'"content" : "b"', b',"invented":{"x":null}'),
        chunk(
            b'{"index":0,"delta":{},"finish_reason":"stop","matched_stop":7}', b',"sgl_ext":{"routed_experts":"AAE="}'
        ),
        *tool_deltas(),
        chunk(b'{"index":1,"delta":{},"finish_reason":"tool_calls"}'),
        b'data: {"choices":[], "usage":{"prompt_tokens":5,"completion_tokens":42,"odd":1.0}}\n\n',
        b"data: [DONE]\n\n",
    ]


async def test_h27_client_sees_the_events_as_sent() -> None:
    events = choices_by_turns()
    async with staged(a=sends(*events)) as stage:
        said = await ask(stage.app.port, request(CHAT.target, asked(CHAT, stream=True)[:-4] + b',"n":2}'))
        ended = await stage.ended_one()
        assert (said.body, said.whole) == (b"".join(events), True)
        assert (ended.outcome, ended.usage.completion_tokens) == (Outcome.FINISHED, 42)


ODD_EVENTS = {
    COMPLETIONS: b'data: {"choices":[{"text":"","index":0,"invented":{"a":1.0},"finish_reason":null}]}\n\n',
    RESPONSES: b'event: response.invented\ndata: {"type":"response.invented", "reasoning_items":[{"a":1.0}]}\n\n',
    MESSAGES: b'event: ping\ndata: {"type": "ping"}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta",'
    b'"index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}\n\n',
    GENERATE: b'data: {"text":"w", "meta_info":{"finish_reason":null,"routed_experts":[[1.0]],"spec_verify_ct":2}}\n\n',
    OLLAMA: b'{"message":{"thinking":"t", "tool_calls":[{"function":{"arguments":{"a":1.0}}}]},"done":false}\n',
}


@pytest.mark.parametrize("sample", list(ODD_EVENTS), ids=lambda sample: sample.dialect.value)
@ROLE
async def test_h27_odd_events_pass_in_every_dialect(sample: Sample, role: str) -> None:
    odd = ODD_EVENTS[sample]
    pieces = (odd, *sample.events, odd, sample.end)
    send = sends(*pieces, content_type=sample.content_type)
    async with staged(a=send, b=send, routing={"policy": "pinned", "pin": role}) as stage:
        said = await ask(stage.app.port, request(sample.target, sample.body))
        ended = await stage.ended_one()
        assert (said.body, said.whole, ended.outcome) == (b"".join(pieces), True, Outcome.FINISHED)


@DIALECT
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "422 Unprocessable Entity"])
async def test_h27_plain_answers_and_errors_keep_unknown_fields(sample: Sample, status: str) -> None:
    body = b'{"error" : {"message":"m","invented":1.0},' + UNKNOWN + b"}\n"
    if status == "200 OK":
        body = b'{ "choices":[{"message":{"content":null,"reasoning":"r"}}],' + UNKNOWN + b"}\n"

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, status)

    async with staged(a=answer, b=answer) as stage:
        said = await ask(stage.app.port, request(sample.target, asked(sample, stream=False)))
        assert (said.status, said.body) == (int(status[:3]), body)


async def test_h27_sdk_puts_the_split_tool_calls_together() -> None:
    events = [*tool_deltas(), chunk(b'{"index":0,"delta":{},"finish_reason":"tool_calls"}'), b"data: [DONE]\n\n"]
    calls: dict[int, str] = {0: "", 1: ""}
    seen = 0
    async with (
        staged(a=sends(*events)) as stage,
        AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key="k", max_retries=0) as client,
    ):
        extra: Any = {"rid": "r-1", "invented": {"x": 1}}
        async for piece in await client.chat.completions.create(model="m", messages=[], stream=True, extra_body=extra):
            for call in piece.choices[0].delta.tool_calls or []:
                seen += 1
                assert call.function is not None
                calls[call.index] += call.function.arguments or ""
        assert orjson.loads(stage.a.requests[0].body)["invented"] == {"x": 1}
    assert (seen, [orjson.loads(calls[index])["city"] for index in (0, 1)]) == (22, ["Köln", "東京"])


# ---------------------------------------------------------------- H28: nothing is added, nothing removed

OPTIONS = {
    "none": b"",
    "off": b',"stream_options":{"include_usage":false}',
    "on": b',"stream_options":{"include_usage":true}',
    "continuous": b',"stream_options":{"continuous_usage_stats":true}',
}
USAGE = b'"usage":{"prompt_tokens":5,"completion_tokens":42,"total_tokens":47}'
STOP = b'{"index":0,"delta":{},"finish_reason":"stop"}'
WORD = delta(0, b'"content":"w"')
DONE = b"data: [DONE]\n\n"
ENDINGS = {
    "usage alone": ([WORD, chunk(STOP), b'data: {"choices":[],%b}\n\n' % USAGE, DONE], Usage(5, 42)),
    "usage at the end": ([WORD, chunk(STOP, b"," + USAGE), DONE], Usage(5, 42)),
    "usage in each": (
        [delta(0, b'"content":"w"').replace(b"}]}", b"}]," + USAGE + b"}"), chunk(STOP, b"," + USAGE), DONE],
        Usage(5, 42),
    ),
    "usage null": ([WORD.replace(b"}]}", b'}],"usage":null}'), chunk(STOP, b',"usage":null'), DONE], Usage()),
    "no usage": ([WORD, chunk(STOP), DONE], Usage()),
}


@pytest.mark.parametrize("ending", list(ENDINGS))
@pytest.mark.parametrize("options", list(OPTIONS))
@ROLE
async def test_h28_no_usage_is_asked_for_added_or_removed(options: str, ending: str, role: str) -> None:
    """What the engine tells is counted, whoever asked for it; what it does not tell is not made up."""
    events, usage = ENDINGS[ending]
    body = CHAT.body[:-1] + OPTIONS[options] + b"}"
    send = sends(*events)
    async with staged(a=send, b=send, routing={"policy": "pinned", "pin": role}) as stage:
        said = await ask(stage.app.port, request(CHAT.target, body))
        (seen,) = (stage.a if role == "speculative" else stage.b).requests
        assert (seen.body, said.body, said.whole) == (body, b"".join(events), True)
        assert (await stage.ended_one()).usage == usage


@pytest.mark.parametrize("sample", [CHAT, COMPLETIONS], ids=lambda sample: sample.dialect.value)
async def test_h28_sdk_that_asked_for_no_usage_gets_no_event_without_choices(sample: Sample) -> None:
    async with (
        staged(a=sends(*sample.events, sample.end)) as stage,
        AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key="k", max_retries=0) as client,
    ):
        if sample is CHAT:
            chat = await client.chat.completions.create(model="m", messages=[], stream=True)
            counts = [len(piece.choices) async for piece in chat]
        else:
            text = await client.completions.create(model="m", prompt="x", stream=True)
            counts = [len(piece.choices) async for piece in text]
        assert counts == [1] * len(counts) and len(counts) == len(sample.events) + 1


def named(sample: Sample, model: bytes) -> list[bytes]:
    """The sample's events with the engine's own name of the model in each, as its dialect has it."""
    events = []
    for event in (*sample.events, sample.end):
        begin = b'{"model":"' + model + b'",'
        events.append(
            event.replace(b'{"model":"m",', begin) if sample is OLLAMA else event.replace(b"data: {", b"data: " + begin)
        )
    return events


@DIALECT
@ROLE
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_h28_model_name_is_rewritten_on_neither_way(sample: Sample, role: str, stream: bool) -> None:
    events = named(sample, b"org/model")
    plain = b'{"model":"org/model", "choices":[]}'

    async def answer(exchange: Exchange) -> None:
        if stream:
            return await sends(*events, content_type=sample.content_type)(exchange)
        return await exchange.answer(plain)

    body = sample.body.replace(b'"m"', b'"prod"').replace(b'"stream":true', b'"stream":' + orjson.dumps(stream))
    async with staged(a=answer, b=answer, routing={"policy": "pinned", "pin": role}) as stage:
        said: Said = await ask(stage.app.port, request(sample.target, body))
        (seen,) = (stage.a if role == "speculative" else stage.b).requests
        assert (seen.body, said.body) == (body, b"".join(events) if stream else plain)
        assert sample.dialect is Dialect.GENERATE or (b'"prod"' in seen.body and b'"org/model"' in said.body)


async def test_h28_model_list_is_the_engines_own() -> None:
    listed = b'{"object":"list", "data":[{"id":"org/model","max_model_len":4096,"invented":1.0}]}\n'

    async def answer(exchange: Exchange) -> None:
        await exchange.answer(listed)

    async with staged(a=answer, b=answer) as stage:
        assert (await ask(stage.app.port, request("/v1/models", method="GET"))).body == listed
