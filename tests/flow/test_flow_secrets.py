"""No secret is logged or told, whatever goes wrong: a proxy in a process of its own, through every way of failing."""

import asyncio
import contextlib
import gzip
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine, content
from fakes.raw import RawClient, Said, ask, request
from fakes.until import until

from proxy.model import Outcome

ROOT = Path(__file__).resolve().parents[2]
Style = Literal["json", "text"]
CANARY = b"CANARY"
CONFIG = """\
listen: {{host: 127.0.0.1, port: 0, max_body_bytes: 20000, body_timeout_s: 0.2}}
admin: {{port: 0}}
backends:
  speculative: {{url: "{a}", api_key: CANARY-upstream-key}}
  baseline: {{url: "{b}", api_key: CANARY-upstream-key}}
timeouts: {{connect_s: 2, first_byte_s: 2, stall_s: 2, settle_s: 0, linger_s: 0, drain_s: 5}}
queue: {{max_waiting: 0}}
circuit: {{max_failures: 1000}}
retries: {{max_ratio: 1, reserve: 1000}}
"""


async def act(heard: asyncio.Event, exchange: Exchange) -> None:
    """Answers as the header x-act says, with secrets wherever an engine may put them. What breaks off does so once
    its beginning was `heard`."""
    name = exchange.request.header("x-act") or "answer"
    if name in PLAIN:
        status, body = PLAIN[name]
        await exchange.answer(body, status, "x-say: CANARY", "retry-after: 2")
    elif name in BYTES:
        await exchange.send(BYTES[name])
        exchange.writer.close()
    elif name in STREAMS:
        await streamed(exchange, heard, *STREAMS[name])
    elif name == "answer":
        await answer(exchange)
    elif name == "reset":
        exchange.reset()
    else:
        await exchange.gone()


PLAIN = {
    "refuse": ("400 Bad Request", b'{"error":{"message":"CANARY echoed"}}'),
    "fail": ("500 Internal Server Error", b'{"error":{"message":"CANARY trace"}}'),
    "busy": ("503 Service Unavailable", b'{"error":{"message":"CANARY"}}'),
}
BYTES = {
    "garbage": b"CANARY is no HTTP\r\nCANARY\r\n\r\n",
    "bad-head": b"HTTP/1.1 200 OK\r\nCANARY \x01 no colon\r\n\r\n",
}
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"CANARY"}}]}\n\n'
COMPLAINT = b'data: {"error":{"message":"CANARY","type":"CANARY","code":"CANARY"}}\n\n'
REFUSAL = b'data: {"error":{"message":"CANARY","type":"CANARY","code":503}}\n\n'
DONE = b"data: [DONE]\n\n"
# Pieces of a stream, and how it goes on after them.
STREAMS = {
    "die": ((TEXT,), "reset"),
    "bad-chunk": ((TEXT,), "garbage"),
    "stall": ((TEXT,), "nothing"),
    "complain": ((TEXT, COMPLAINT, DONE), "end"),
    "full": ((REFUSAL, DONE), "end"),
    "not-json": ((b"data: CANARY {not json\n\n", DONE), "end"),
}


async def streamed(exchange: Exchange, heard: asyncio.Event, pieces: tuple[bytes, ...], then: str) -> None:
    """Pieces of a stream, then its end or none."""
    await exchange.stream_head()
    for piece in pieces:
        await exchange.chunk(piece)
    if then == "end":
        return await exchange.end()
    await heard.wait()
    if then == "garbage":
        await exchange.send(b"zz CANARY\r\n")
    elif then == "reset":
        exchange.reset()
    else:
        await exchange.gone()
    return None


async def answer(exchange: Exchange) -> None:
    """A whole answer, with secrets in its text and its tool call."""
    if b'"stream":true' not in exchange.request.body:
        message = {"role": "assistant", "content": "CANARY", "tool_calls": [{"function": {"arguments": "CANARY"}}]}
        value = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 5}}
        return await exchange.answer(orjson.dumps(value), "200 OK", "x-say: CANARY")
    await exchange.stream_head()
    await exchange.event(content("CANARY"))
    await exchange.event(content("", finish_reason="stop"))
    await exchange.chunk(b"data: [DONE]\n\n")
    return await exchange.end()


SECRETS = (
    "authorization: Bearer CANARY-key",
    "x-api-key: CANARY-key",
    "cookie: CANARY=CANARY",
    "user-agent: CANARY",
    "referer: http://CANARY.example/",
    "x-request-id: CANARY is not one word",
    "x-correlation-id: CANARY" + "y" * 200,
)
ASKED: dict[str, Any] = {
    "model": "CANARY-model",
    "user": "CANARY-user",
    "messages": [
        {"role": "system", "content": "CANARY system"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,CANARY"}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"key":"CANARY"}'}}]},
    ],
    "tools": [{"type": "function", "function": {"name": "CANARY", "parameters": {"CANARY": 1}}}],
}


@dataclass
class Served:
    """A proxy in a process of its own, and where its two outputs go."""

    port: int
    admin_port: int
    out: Path
    err: Path


@contextlib.asynccontextmanager
async def served(folder: Path, style: Style, a: str, b: str) -> AsyncIterator[Served]:
    """Started as an operator does; ended by SIGTERM, which must end it with exit code 0."""
    (folder / "crossover.yaml").write_text(CONFIG.format(a=a, b=b))
    out, err = folder / "out", folder / "err"
    command = [sys.executable, "-m", "proxy", "serve", str(folder / "crossover.yaml")]
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = await asyncio.create_subprocess_exec(
            *command, "--log-format", style, "--log-level", "debug", cwd=ROOT, stdout=to_out, stderr=to_err
        )
    try:
        await until(lambda: _ports(out) or process.returncode is not None, 60)
        port, admin_port = _ports(out) or (0, 0)
        assert port, err.read_text()
        yield Served(port, admin_port, out, err)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _ports(out: Path) -> tuple[int, int] | None:
    """The client port and the operators', from the line that says that it started."""
    line = next((line for line in out.read_text().splitlines() if "started" in line), None)
    if line is None:
        return None
    port, admin = re.search(r'\bport"?[=:](\d+)', line), re.search(r'admin"?[=:]"?127\.0\.0\.1:(\d+)', line)
    assert port is not None
    assert admin is not None
    return int(port[1]), int(admin[1])


async def asked(port: int, act_as: str = "answer", *, stream: bool) -> Said:
    body = orjson.dumps({**ASKED, "stream": stream})
    return await ask(port, request("/v1/chat/completions?sig=CANARY", body, *SECRETS, f"x-act: {act_as}"))


async def raw(port: int, data: bytes) -> Said:
    """Bytes as they stand, and what is answered; no answer at all is status 0."""
    async with RawClient(port) as client:
        await client.send(data)
        try:
            return await client.answer()
        except (asyncio.IncompleteReadError, ConnectionError):
            return Said(0, [], b"", whole=False)


async def left(port: int, act_as: str, engines: tuple[FakeEngine, ...]) -> None:
    """A client that leaves in the middle: of waiting, or of a stream."""
    before = _seen(engines)
    body = orjson.dumps({**ASKED, "stream": True})
    async with RawClient(port) as client:
        await client.send(request("/v1/chat/completions", body, *SECRETS, f"x-act: {act_as}"))
        await until(lambda: _seen(engines) > before)
        if act_as == "stall":
            await client.head()
            await client.chunk()
        client.leave(reset=True)


def _seen(engines: tuple[FakeEngine, ...]) -> int:
    return sum(len(engine.requests) for engine in engines)


# What the client does wrong, each with the status of the answer, which is our own.
WRONG: tuple[tuple[bytes, int], ...] = (
    (request("/CANARY/x?CANARY=1", method="GET"), 404),
    (request("/v1/models/../CANARY", method="GET"), 404),
    (request("/v1/%zzCANARY", method="GET"), 400),
    (request("/flush_cache?CANARY", b"CANARY"), 403),
    (request("/v1/responses/CANARY", method="PUT"), 405),
    (request("/v1/chat/completions", method="OPTIONS"), 405),
    (request("/v1/chat/completions?CANARY", b"{}", "upgrade: CANARY", "connection: upgrade"), 501),
    (request("/v1/chat/completions", b'{"CANARY":' + b"1" * 30_000, *SECRETS), 413),
    (request("/v1/messages", b"CANARY" * 5_000, *SECRETS), 413),
    (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nCANARY", 408),
    (b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzzCANARY\r\n", 400),
    (b"CANARY /CANARY HTTP/1.1\r\nhost: CANARY\r\n\r\n", 400),
    (b"GET /CANARY HTTP/CANARY\r\nCANARY\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nhost: x\r\nCANARY no colon\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nhost: x\r\ncanary: a\x00CANARY\r\n\r\n", 400),
    (b"GET /" + b"CANARY" * 20_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
    (b"GET /CANARY HTTP/2.0\r\nhost: CANARY\r\n\r\n", 505),
    (b"\x16\x03\x01CANARY\r\n\r\n", 400),
)
# What engines do wrong before anything of theirs is passed on: these answers are our own too.
BROKEN = (("reset", 502), ("garbage", 502), ("bad-head", 502), ("full", 503), ("silent", 504))
# Where they break off after it, and what our event says of it.
IN_STREAM = (("die", "backend_broken"), ("bad-chunk", "backend_broken"), ("stall", "stall_timeout"))
PASSED_ON = ("answer", "refuse", "fail", "busy", "complain", "not-json")
OPERATORS = (
    request("/pin", b"CANARY", method="POST"),
    request("/drain", b'{"CANARY": "CANARY"}', method="POST"),
    request("/pin", b'{"role": "CANARY"}', method="POST"),
    request("/decisions?limit=CANARY", method="GET"),
    request("/decisions", method="GET"),
    request("/status", method="GET"),
    request("/config", method="GET"),
    request("/metrics", method="GET"),
)


async def broken_off(port: int, act_as: str, heard: asyncio.Event) -> bytes:
    """The last event of a stream that breaks off once it was heard; no last chunk may follow it."""
    body = orjson.dumps({**ASKED, "stream": True})
    async with RawClient(port) as client:
        await client.send(request("/v1/chat/completions", body, *SECRETS, f"x-act: {act_as}"))
        assert (await client.head()).status == 200
        assert await client.chunk() == TEXT
        heard.set()
        event = await client.chunk()
        assert await client.chunk() is None
    heard.clear()
    assert event is not None
    return event


async def everything_wrong(proxy: Served, heard: asyncio.Event, *engines: FakeEngine) -> tuple[int, list[Said]]:
    """Every way of failing that there is: how many requests were for an engine, and the answers of our own."""
    port, own = proxy.port, list[Said]()
    for data, status in WRONG:
        said = await raw(port, data)
        assert said.status == status, data[:60]
        own.append(said)
    for name, status in BROKEN:
        said = await asked(port, name, stream=name == "full")
        assert said.status == status, name
        own.append(said)
    for name, reason in IN_STREAM:
        event = await broken_off(port, name, heard)
        assert orjson.loads(event.partition(b"data: ")[2])["error"]["reason"] == reason, name
        own.append(Said(200, [], event, whole=False))
    for name in PASSED_ON:
        for stream in (False, True):
            assert CANARY in (await asked(port, name, stream=stream)).body, name
    for body in (b"CANARY not json", b"\xff\xfeCANARY", gzip.compress(b"CANARY"), b"[" * 5000 + CANARY):
        await raw(port, request("/v1/chat/completions", body, "content-encoding: gzip"))
    for name in ("stall", "silent"):
        await left(port, name, engines)
    own += [await raw(proxy.admin_port, data) for data in OPERATORS]
    engine_bound = 4 + len(BROKEN) + len(IN_STREAM) + 2 * len(PASSED_ON) + 4 + 2
    return engine_bound, own


@pytest.mark.parametrize("style", ["json", "text"])
async def test_no_secret_is_logged_or_told_whatever_goes_wrong(style: Style, tmp_path: Path) -> None:
    heard = asyncio.Event()
    script = partial(act, heard)
    async with (
        FakeEngine(script=script) as a,
        FakeEngine(script=script, role="baseline") as b,
        served(tmp_path, style, a.url, b.url) as proxy,
    ):
        engine_bound, own = await everything_wrong(proxy, heard, a, b)
        await until(lambda: proxy.out.read_bytes().count(b"request_settled") >= engine_bound)
    for said in own:
        assert CANARY not in said.body + str(said.headers).encode()
    out = proxy.out.read_bytes()
    assert CANARY not in out, [line for line in out.splitlines() if CANARY in line]
    assert proxy.err.read_bytes() == b""
    assert out.count(b"request_settled") == engine_bound
    if style == "json":
        require_whole_lines(out)


def require_whole_lines(out: bytes) -> None:
    """Each line is an object by itself; requests that reached an engine tell the numbers of their decision."""
    lines = [orjson.loads(line) for line in out.splitlines()]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    settled = [line for line in lines if line["event"] == "request_settled"]
    numbers = {"role", "reason", "policy", "speculative_in_flight", "baseline_in_flight", "leave_at"}
    for line in settled:
        assert {"request_id", "client", "route", "outcome", "status", "duration_s"} <= line.keys()
        assert not line["attempts"] or numbers <= line.keys()
        assert all(line[name] >= 0 for name in line if name.endswith("_s"))
        assert re.fullmatch(r"[0-9a-f]{32}", line["request_id"]), "a forged id was taken over"
    assert len({line["request_id"] for line in settled}) == len(settled)
    assert {line["outcome"] for line in settled} >= {outcome.value for outcome in Outcome} - {"shut_down"}
