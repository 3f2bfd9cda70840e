"""Streams keep their bytes and their pace, and what the proxy reads beside them is right (H2, H3, H4)."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.ears import p99, paced
from fakes.engine import Exchange, Script, content
from fakes.hop import Hop, hop_before
from fakes.leaping import leaping, passed_s
from fakes.raw import WITHIN_S, RawClient, Said, chat, request
from fakes.sending import FRAMINGS, SSE, sends, sends_bytewise
from fakes.stage import Stage, staged
from fakes.until import until
from openai import AsyncOpenAI

from proxy.config import Settings
from proxy.model import Dialect, Outcome
from proxy.wire.attempt import PEEK_MORE_S

ROOT = Path(__file__).parents[2]
# Turns of the loop that the proxy may add to those of a bare wire: it reads, wakes its passage, writes.
PROXY_TURNS = 12

DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
EVENTS = [sample for sample in SAMPLES if sample.dialect is not Dialect.OLLAMA]
ENDING = pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
SPACING = pytest.mark.parametrize("field", [b"data:", b"data: "], ids=["tight", "spaced"])
FRAMING = pytest.mark.parametrize("framing", FRAMINGS)
TEXT = "你好 👩‍🚀 é".encode()
TOKENS = 42

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n:\n\n'
WORDS = b"""data: {"choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}

:

data:

data: {"choices":[{"index":0,"delta":{"content":"TEXT"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}

data: {"choices":[],
data: "usage":{"prompt_tokens":5,"completion_tokens":42,"total_tokens":47}}

data: [DONE]

""".replace(b"TEXT", TEXT)


def spelt(body: bytes, line_end: bytes, field: bytes = b"data: ") -> bytes:
    """The same stream in another of SSE's spellings."""
    return body.replace(b"data: ", field).replace(b"\n", line_end)


async def spoken(
    stage: Stage, target: str, body: bytes, *lines: str, version: str = "1.1", host: str = "127.0.0.1"
) -> Said:
    async with RawClient(stage.app.port, host) as client:
        await client.send(request(target, body, *lines, version=version))
        return await client.answer()


# ---------------------------------------------------------------- H2: bytes


@ENDING
@SPACING
@FRAMING
async def test_h2_client_bytes_are_the_engines_when_each_byte_is_a_segment(
    line_end: bytes, field: bytes, framing: str
) -> None:
    body = spelt(ROLE + WORDS, line_end, field)
    async with staged(a=sends_bytewise(body, framing=framing)) as stage:
        said = await stage.ask(stream=True)
        assert (said.body, said.whole) == (body, True)


@ENDING
@SPACING
async def test_h2_tokens_and_end_are_read_right_when_each_byte_is_a_segment(line_end: bytes, field: bytes) -> None:
    async with staged(a=sends_bytewise(spelt(ROLE + WORDS, line_end, field))) as stage:
        await stage.ask(stream=True)
        ended = await stage.ended_one()
        assert (ended.outcome, ended.usage.prompt_tokens, ended.usage.completion_tokens) == (Outcome.FINISHED, 5, 42)


@ENDING
@SPACING
async def test_h2_first_token_is_timed_between_its_sending_and_its_coming(line_end: bytes, field: bytes) -> None:
    """Neither the role nor a comment is a token, and the proxy's time lies between those of its two neighbours."""
    seen, role, words = asyncio.Event(), spelt(ROLE, line_end, field), spelt(WORDS, line_end, field)
    instants: dict[str, float] = {}

    async def send(exchange: Exchange) -> None:
        now = stage.app.desk.clock
        instants["requested"] = now()
        await exchange.stream_head()
        await exchange.chunk(role)
        await seen.wait()
        instants["sent"] = now()
        await exchange.chunk(words)
        await exchange.end()

    async with staged(a=send) as stage, RawClient(stage.app.port) as client:
        asked_s = stage.app.desk.clock()
        await client.send(request(body=chat(stream=True)))
        await client.head()
        assert await client.chunk() == role
        seen.set()
        assert await client.chunk()
        came_s = stage.app.desk.clock()
        ttft_s = (await stage.ended_one()).ttft_s
        assert ttft_s is not None
        assert instants["sent"] - instants["requested"] <= ttft_s <= came_s - asked_s


@ENDING
async def test_h2_events_pass_unchanged_when_two_come_in_one_write(line_end: bytes) -> None:
    body = spelt(ROLE + WORDS, line_end)
    events = [event + 2 * line_end for event in body.split(2 * line_end)[:-1]]
    pairs = [b"".join(events[at : at + 2]) for at in range(0, len(events), 2)]
    async with staged(a=sends(*pairs)) as stage:
        said = await stage.ask(stream=True)
        usage = (await stage.ended_one()).usage
        assert (said.body, said.whole, usage.completion_tokens) == (body, True, TOKENS)


@DIALECT
@ENDING
async def test_h2_every_dialect_passes_and_is_read_when_each_byte_is_a_segment(sample: Sample, line_end: bytes) -> None:
    if sample.dialect is Dialect.OLLAMA and line_end == b"\r":
        line_end = b"\r\n"  # lines of JSON know no bare CR
    body = (b"".join(sample.events) + sample.end).replace(b"w1", TEXT).replace(b"\n", line_end)
    async with staged(a=sends_bytewise(body, sample.content_type)) as stage:
        said = await spoken(stage, sample.target, sample.body)
        ended = await stage.ended_one()
        assert (said.body, said.whole) == (body, True)
        assert (ended.outcome, ended.ttft_s is not None) == (Outcome.FINISHED, True)
        assert ended.usage.completion_tokens == (3 if b"tokens" in body or b"eval_count" in body else 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("role", ["speculative", "baseline"])
async def test_h2_bytes_are_the_same_for_either_engine_address_and_client(role: str, version: str, host: str) -> None:
    body = spelt(ROLE + WORDS, b"\r\n", b"data:")
    send, routing = sends_bytewise(body), {"policy": "pinned", "pin": role}
    async with staged(a=send, b=send, host=host, routing=routing, listen={"host": host}) as stage:
        said = await spoken(stage, "/v1/chat/completions", chat(stream=True), version=version, host=host)
        assert (said.body, said.whole, said.header("x-crossover-backend")) == (body, True, role)


POISON = [
    b"data: \xff\xfe\xf0\x9f\x91 half a character",
    b"data: {not json",
    b"data: " + b"[" * 20_000,
    b"data: null",
    b'data: "[DONE]"',
    b"data: -1e999",
    b"\x00\x00: nul",
    b"data",
    b"event:",
    b"id: \x00",
    b"retry: soon",
    b'data: {"choices":{"delta":1},"usage":[1],"error":null}',
    b'data: {"choices":[null,1,{"delta":[],"finish_reason":{"a":1}}]}',
    b'data: {"usage":{"completion_tokens":"many","prompt_tokens":-5,"prompt_tokens_details":7}}',
    b'data: {"choices":[{"delta":{"content":"\\ud83d"}}],"choices":[]}',
]


@pytest.mark.parametrize("place", ["first", "later"])
@pytest.mark.parametrize("poison", POISON, ids=range(len(POISON)))
async def test_h2_what_cannot_be_read_never_makes_a_stream_fail(poison: bytes, place: str) -> None:
    odd = poison + b"\n\n"
    later = WORDS.index(b"\n\n") + 2
    pieces = (odd, ROLE, WORDS) if place == "first" else (ROLE, WORDS[:later], odd, WORDS[later:])
    async with staged(a=sends(*pieces)) as stage:
        said = await stage.ask(stream=True)
        ended = await stage.ended_one()
        assert (said.body, said.whole) == (b"".join(pieces), True)
        assert (ended.outcome, ended.attempts, ended.usage.completion_tokens) == (Outcome.FINISHED, 1, TOKENS)


# ---------------------------------------------------------------- H3: signs of life

COMMENTS = [b":\n", b":\n\n", b": ping\n", b": ping\n\n", b": ping - 2026-01-01\r\n\r\n", b":\r\r"]
COMMENT = pytest.mark.parametrize("comment", COMMENTS, ids=repr)
# Longer than anybody's idle limit that pings would be there for, and shorter than our own.
SILENCE_S = 250.0
SPEAKS_SSE = pytest.mark.parametrize("sample", EVENTS, ids=lambda sample: sample.dialect.value)


@SPEAKS_SSE
@COMMENT
async def test_h3_engine_comments_pass_unchanged_and_are_no_events(sample: Sample, comment: bytes) -> None:
    """Before the first event, between two, between the lines of one, and behind the end."""
    first, *others = sample.events
    inside = first.removesuffix(b"\n") + comment[: comment.index(comment[-1:]) + 1] + b"\n"
    pieces = (comment, inside, comment, *others, comment, sample.end, comment)
    async with staged(a=sends(*pieces)) as stage:
        said = await spoken(stage, sample.target, sample.body)
        ended = await stage.ended_one()
        assert (said.body, said.whole) == (b"".join(pieces), True)
        assert (ended.outcome, ended.attempts, ended.ttft_s is not None) == (Outcome.FINISHED, 1, True)


@SPEAKS_SSE
@pytest.mark.parametrize("role", ["speculative", "baseline"])
@pytest.mark.parametrize("begun", [False, True], ids=["first", "later"])
async def test_h3_comment_arrives_while_the_engine_has_nothing_to_say(sample: Sample, role: str, begun: bool) -> None:
    async def comment(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk((sample.events[0] if begun else b"") + b": keep-alive\n")
        await exchange.gone()

    routing = {"policy": "pinned", "pin": role}
    async with staged(a=comment, b=comment, routing=routing) as stage, RawClient(stage.app.port) as client:
        await client.send(request(sample.target, sample.body))
        async with asyncio.timeout(WITHIN_S):
            await client.reader.readuntil(b": keep-alive\n")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("stream_it", [True, False], ids=["stream", "plain"])
@leaping
async def test_h3_nothing_is_said_before_the_status_is_known(stream_it: bool, version: str) -> None:
    answering = asyncio.Event()

    async def refuse(exchange: Exchange) -> None:
        await answering.wait()
        await exchange.answer(b'{"error":{"message":"no"}}', "422 Unprocessable Entity")

    async with staged(a=refuse) as stage, RawClient(stage.app.port) as client:
        early = asyncio.ensure_future(client.reader.readexactly(1))
        await client.send(request(body=chat(stream=stream_it), version=version))
        await until(lambda: stage.a.requests, what="the engine asked")
        await asyncio.sleep(SILENCE_S)
        assert not early.done()
        answering.set()
        said = await early + await client.reader.readuntil(b"}}")
        assert said.startswith(b"HTTP/" + version.encode() + b" 422 ") and said.endswith(b'{"error":{"message":"no"}}')


@DIALECT
@pytest.mark.parametrize("begun", [b"", b": working\n\n"], ids=["head", "comment"])
@leaping
async def test_h3_nothing_is_added_to_a_stream_however_long_its_engine_says_nothing(
    sample: Sample, begun: bytes
) -> None:
    """Before its first event, between two, and within one."""
    if sample.dialect is Dialect.OLLAMA:
        begun = b""  # lines of JSON know no comment
    first, second, *others = sample.events
    pieces = (begun, first[:9], first[9:], second, *others, sample.end)

    async def slow(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        for piece in filter(None, pieces):
            await exchange.chunk(piece)
            await asyncio.sleep(SILENCE_S)
        await exchange.end()

    async with staged(a=slow, health={"interval_s": 300}) as stage:
        said = await spoken(stage, sample.target, sample.body)
        assert (said.body, said.whole) == (b"".join(pieces), True)


async def sdk_texts(port: int) -> list[str | None]:
    """What the openai package makes of one stream."""
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0) as client:
        return [piece.choices[0].delta.content async for piece in await client.chat.completions.create(**asked)]


def slow_engine(hops: list[Hop], *, pings: bool) -> Script:
    """Silent for 70 s, then an event every 20 s; with pings, a comment every 20 s of the first silence."""

    async def send(exchange: Exchange) -> None:
        if pings:
            await exchange.stream_head()
            for _ in range(4):
                await heard(exchange, b": ping\n\n", then_s=20)
        else:
            await hops[0].wait(70)
            await exchange.stream_head()
        for each in SAMPLES[0].events:
            await heard(exchange, each, then_s=20)
        await exchange.chunk(SAMPLES[0].end)
        await exchange.end()

    async def heard(exchange: Exchange, data: bytes, then_s: float) -> None:
        before = hops[0].seen_bytes
        await exchange.chunk(data)
        await until(lambda: hops[0].seen_bytes > before, what="bytes at the hop in front")
        await hops[0].wait(then_s)

    return send


@pytest.mark.parametrize(("pings", "read_timeout_s"), [(True, 60), (False, 90)], ids=["pings", "patient"])
async def test_h3_sdk_gets_a_slow_stream_through_a_hop(pings: bool, read_timeout_s: float) -> None:
    hops: list[Hop] = []
    send = slow_engine(hops, pings=pings)
    async with staged(a=send) as stage, hop_before(stage.app.port, read_timeout_s=read_timeout_s) as hop:
        hops.append(hop)
        assert await sdk_texts(hop.port) == ["w0", "w1", "w2", ""]
        assert hop.cuts == 0


async def test_h3_hop_that_gives_up_early_frees_the_engine_and_starts_nothing_else() -> None:
    """The 60 s of nginx against 70 s without a byte: what the documentation warns of."""
    hops: list[Hop] = []
    send = slow_engine(hops, pings=False)
    async with staged(a=send) as stage, hop_before(stage.app.port, read_timeout_s=60) as hop:
        hops.append(hop)
        with pytest.raises(openai.APIConnectionError):
            await sdk_texts(hop.port)
        ended = await stage.ended_one()
        assert (ended.outcome, ended.attempts) == (Outcome.CLIENT_GONE_WAITING, 1)
        assert (hop.cuts, len(stage.a.requests), len(stage.b.requests)) == (1, 1, 0)


def test_h3_documentation_says_what_the_hop_in_front_needs() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    front = text.partition("## In front of Crossover")[2].partition("\n## ")[0]
    keys = set(re.findall(r"`(queue|timeouts|listen)\.(\w+)`", front))
    assert {("queue", "max_wait_s"), ("timeouts", "first_byte_s"), ("timeouts", "stall_s")} <= keys
    assert all(hasattr(Settings.model_fields[section].default, key) for section, key in keys)


# ---------------------------------------------------------------- H4: at once

EVENTS_SENT = 200
EVENT_BYTES = 250


def sized_event(number: int) -> bytes:
    """A chat event of EVENT_BYTES with the instant of its sending."""
    value = {**content(f"w{number}"), "sent_s": asyncio.get_running_loop().time(), "pad": ""}
    missing = EVENT_BYTES - len(b"data: " + orjson.dumps(value) + b"\n\n")
    return b"data: " + orjson.dumps({**value, "pad": "x" * missing}) + b"\n\n"


@pytest.mark.parametrize("clients", [1, 64])
async def test_h4_every_event_leaves_in_the_turns_in_which_it_came(clients: int) -> None:
    """Nothing waits for a timer or for more data: the proxy takes a few turns of the loop more than a bare wire."""
    pace = await paced(SAMPLES[0], [sized_event(number) for number in range(EVENTS_SENT)], clients)
    assert len(pace.proxied) == len(pace.direct) == EVENTS_SENT * clients
    assert p99(pace.proxied) <= p99(pace.direct) + PROXY_TURNS


@pytest.mark.parametrize("clients", [1, 64])
async def test_h4_events_are_not_merged_while_the_client_keeps_up(clients: int) -> None:
    events = [sized_event(number) for number in range(20)]
    pace = await paced(SAMPLES[0], events, clients)
    framed = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    for ear in pace.ears[:clients]:
        assert [piece for piece in ear.pieces if piece in framed[1:]] == framed[1:]


@DIALECT
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("kind", ["", "gzip"], ids=["open", "packed"])
async def test_h4_no_dialect_client_or_coding_is_slower(sample: Sample, version: str, kind: str) -> None:
    pace = await paced(sample, list(sample.events) * 3, version=version, kind=kind)
    assert max(pace.proxied) <= p99(pace.direct) + PROXY_TURNS
    assert all(sum(event in piece for piece in pace.ears[0].pieces) for event in sample.events)


async def test_h4_plain_answer_in_pieces_passes_piece_by_piece() -> None:
    pieces = replace(SAMPLES[0], content_type="application/json", end=b"}")
    pace = await paced(pieces, [b'{"a":', b"1", b',"b":', b"2"])
    assert max(pace.proxied) <= p99(pace.direct) + PROXY_TURNS


async def test_h4_head_is_passed_on_when_the_engine_sends_it() -> None:
    """A stream's head waits for its first event, which may be a refusal; every other is passed on by itself."""
    seen = asyncio.Event()

    async def send(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: application/json", "content-length: 2")
        await seen.wait()
        await exchange.send(b"{}")

    async with staged(a=send) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()))
        assert (await client.head()).status == 200
        seen.set()
        assert await client.reader.readexactly(2) == b"{}"


# What clients may be kept waiting for the first event's sake; it is written down here so that it cannot grow unseen.
PEEK_AT_MOST_S = 0.005


def begun(sample: Sample) -> bytes:
    """The first event of a stream that says nothing yet."""
    if sample.dialect is Dialect.CHAT:
        return ROLE.partition(b":\n\n")[0]
    return sample.events[0].replace(b"w0", b"")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@leaping
async def test_h4_first_event_without_content_is_held_for_five_milliseconds_at_most(
    sample: Sample, version: str
) -> None:
    """The first token may be seconds behind it; a refusal that follows it comes in the same breath."""

    async def send(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(begun(sample))
        await asyncio.sleep(60.0)
        for each in (*sample.events, sample.end):
            await exchange.chunk(each)
        await exchange.end()

    async with staged(a=send, health={"interval_s": 300}) as stage, RawClient(stage.app.port) as client:
        began_s = passed_s()
        await client.send(request(sample.target, sample.body, version=version))
        assert (await client.head()).status == 200
        assert begun(sample) in await client.reader.readuntil(begun(sample))
        assert passed_s() - began_s <= PEEK_AT_MOST_S * 1.01
        await client.rest() if version == "1.0" else await ended(client)


async def ended(client: RawClient) -> None:
    """Take what is left of a chunked answer."""
    await client.reader.readuntil(b"0\r\n\r\n")


def test_h4_first_event_is_held_no_longer_than_the_constant_says() -> None:
    assert PEEK_MORE_S <= PEEK_AT_MOST_S


STREAMS = [(sample.target, sample.body, sample.content_type) for sample in SAMPLES]
STREAMS += [("/v1/audio/transcriptions", b'{"stream":true}', SSE), ("/vertex_generate", b'{"stream":true}', SSE)]


@pytest.mark.parametrize(("target", "body", "content_type"), STREAMS, ids=[target for target, _, _ in STREAMS])
@pytest.mark.parametrize("kind", ["", "gzip", "zstd"], ids=["open", "gzip", "zstd"])
async def test_h4_every_stream_tells_proxies_in_front_not_to_buffer(
    target: str, body: bytes, content_type: str, kind: str
) -> None:
    lines = ("x-accel-buffering: yes", *([f"content-encoding: {kind}"] if kind else []))
    async with staged(a=sends(b"data: [DONE]\n\n", content_type=content_type, lines=lines)) as stage:
        said = await spoken(stage, target, body)
        assert [value for name, value in said.headers if name.lower() == "x-accel-buffering"] == ["no"]
