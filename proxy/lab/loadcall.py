"""One request of a load: what it asks, how it is sent, and what of its answer is measured.

When requests are sent is in lab/loadwalk.py. The answer is read as raw lines, so that the client costs little beside
what it measures; no SDK stands between.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from types import SimpleNamespace
from typing import Protocol

import aiohttp
import orjson

from proxy.errors import BackendUnreachable, UpstreamError
from proxy.lab.bodies import OversizeBody, whole
from proxy.lab.loadreport import Sample
from proxy.lab.prompts import Message
from proxy.model import Role
from proxy.protocol.answers import READ_MAX_BYTES
from proxy.protocol.sse import MAX_LINE_BYTES

Clock = Callable[[], float]

# What a delta may carry that a reader would see: text, thoughts, a call, a refusal. A role alone is not content.
_CONTENT_KEYS = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")

# Engines close a kept connection after 5 s of silence; one used again later than this could be closed just then.
_KEEP_S = 3.0

# The error of an answer of which no more is read.
_OVERSIZE = "oversize"

# The models list is a line out of memory: an answer later than this means a server that will not answer a load either.
_MODELS_TIMEOUT_S = 10.0

# What to do where something listens and has no list: a proxy whose engines are out, or an engine that hangs.
_BEHIND = "do its engines answer? `crossover status` says so of a proxy's; or name a model with --model"

# Of a list of models, and of an answer that is no answer: what is larger comes from something else on that port.
_MAX_PAGE_BYTES = 1 << 20

# The proxy's header values are one short word; longer text is some other server's and has no place in a table.
_MAX_WORD_BYTES = 32


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: the server's base address (no path), the model's name, and the key if it wants one."""

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """What every request asks for; `timeout_s` is for a whole request, connection to last byte.

    `continuous_usage` asks a stream for the token counts in every chunk; `more` are further fields of the body.
    """

    max_tokens: int = 128
    stream: bool = True
    n: int = 1
    timeout_s: float = 600.0
    continuous_usage: bool = False
    more: Mapping[str, object] = field(default_factory=dict)


class Watch(Protocol):
    """Who is told of every event of a stream as it comes, across answers."""

    def event(self, *, visible: bool, told: bool, new_tokens: int, gap_s: float | None) -> None:
        """One event: whether a reader sees something of it, and whether it told its token count, which has grown by
        `new_tokens`. `gap_s` is the time since the content before it; None for the first content, or none."""


class Answer:
    """What the body of one answer has told so far. Feed it bytes cut anywhere; it does no I/O and reads no clock.

    `continuous` says that token counts came along with the content, not only at the end.
    """

    def __init__(self, *, stream: bool, watch: Watch | None = None) -> None:
        self.first_at_s: float | None = None
        self.last_at_s: float | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.error: str | None = None
        self.continuous = False
        self._watch = watch
        self._stream = stream
        self._ended = False
        self._told = False
        self._rest = bytearray()

    def feed(self, piece: bytes, now_s: float) -> bool:
        """Take the next bytes of the body, which came at `now_s`. False once it is no use to read on: a line of a
        stream, or an answer that is none, is longer than one can be, and the rest would fill the memory."""
        if self.error == _OVERSIZE:
            return False
        begin = 0
        if self._stream and (end := piece.rfind(b"\n") + 1):
            for line in (bytes(self._rest) + piece[:end]).split(b"\n"):
                if line.startswith(b"data:"):
                    self._take_event(line[5:].strip(), now_s)
            self._rest.clear()
            begin = end
        self._rest += piece[begin:]
        if len(self._rest) > (MAX_LINE_BYTES if self._stream else READ_MAX_BYTES):
            self.error = _OVERSIZE
            self._rest.clear()
        return self.error != _OVERSIZE

    def close(self) -> None:
        """The body is over: a stream without its `[DONE]` was cut, whatever it said; one of only that is none."""
        if not self._stream and self.error is None:
            self._take_object(bytes(self._rest))
        elif not self._ended and self.error is None:
            self.error = "cut"
        elif not self._told and self.error is None:
            self.error = "malformed"

    def _take_event(self, text: bytes, now_s: float) -> None:
        if text == b"[DONE]":
            self._ended = True
            return
        before, visible = self.completion_tokens or 0, self._take_object(text)
        if self._watch is not None:
            self._tell(self._watch, before, now_s, visible=visible)
        if visible:
            self.first_at_s = now_s if self.first_at_s is None else self.first_at_s
            self.last_at_s = now_s

    def _tell(self, watch: Watch, before: int, now_s: float, *, visible: bool) -> None:
        # A count that comes only at the end says nothing about when its tokens came.
        new = max(0, (self.completion_tokens or 0) - before) if self.continuous else 0
        gap_s = now_s - self.last_at_s if visible and self.last_at_s is not None else None
        watch.event(visible=visible, told=self.continuous, new_tokens=new, gap_s=gap_s)

    def _take_object(self, text: bytes) -> bool:
        """Note an error or usage; whether a reader would see something of this object."""
        try:
            said = orjson.loads(text)
        except orjson.JSONDecodeError:
            said = None
        if not isinstance(said, dict):
            self.error = "malformed"
            return False
        self._told = True
        if said.get("error") is not None or said.get("object") == "error":
            self.error = "error_event"
            return False
        choices, usage = said.get("choices"), said.get("usage")
        if isinstance(usage, dict):
            self._take_usage(usage)
            self.continuous = self.continuous or bool(choices)
        visible = self._take_choices(choices)
        if visible and isinstance(timings := said.get("timings"), dict):
            self._take_timings(timings)
        return visible

    def _take_timings(self, timings: dict[str, object]) -> None:
        """llama.cpp's count of the tokens so far, where it was asked for one in every chunk."""
        if isinstance(made := timings.get("predicted_n"), int):
            self.completion_tokens, self.continuous = made, True

    def _take_usage(self, usage: dict[str, object]) -> None:
        if isinstance(completion := usage.get("completion_tokens"), int):
            self.completion_tokens = completion
        if isinstance(prompt := usage.get("prompt_tokens"), int):
            self.prompt_tokens = prompt
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            self.cached_tokens = details["cached_tokens"]

    def _take_choices(self, choices: object) -> bool:
        visible = False
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            if choice.get("finish_reason") == "abort":
                self.error = "abort"
            delta = choice.get("delta")
            visible = visible or (isinstance(delta, dict) and any(delta.get(key) for key in _CONTENT_KEYS))
        return visible


@dataclass(slots=True)
class _Kept:
    """Whether a request went over a connection that had been kept."""

    used: bool = False


async def _note_kept(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    if isinstance(context.trace_request_ctx, _Kept):
        context.trace_request_ctx.used = True


def open_session() -> aiohttp.ClientSession:
    """A client without limits of its own: no cap on connections, no total timeout, no proxy from the environment."""
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_kept)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        trust_env=False,
        trace_configs=[tracing],
    )


async def call(
    session: aiohttp.ClientSession,
    target: Target,
    shape: Shape,
    messages: Sequence[Message],
    *,
    asked: Role | None = None,
    answer: Answer | None = None,
    clock: Clock = monotonic,
) -> Sample:
    """Send one chat request and read its answer to the end. Awaits; every failure but cancelling is a Sample too.

    An `answer` that the caller gives can be looked at while the request runs, and after it was cancelled.
    """
    body, headers = _body(target, shape, messages), _headers(target.api_key, asked)
    answer = Answer(stream=shape.stream) if answer is None else answer
    backend: str | None = None
    reason: str | None = None
    sent_at_s = clock()
    try:
        async with asyncio.timeout(shape.timeout_s), await _sent(session, _chat_url(target), body, headers) as response:
            backend, reason = _word(response, "x-crossover-backend"), _word(response, "x-crossover-reason")
            error = await _read(response, answer, clock)
    except TimeoutError:
        error = "timeout"
    except aiohttp.ClientConnectorError:
        error = "unreachable"
    except (aiohttp.ClientError, ConnectionError):
        error = "cut"
    sample = sample_of(answer, sent_at_s, clock(), sequences=shape.n, error=error)
    return replace(sample, backend=backend, reason=reason)


def sample_of(
    answer: Answer, sent_at_s: float, ended_at_s: float, *, sequences: int = 1, error: str | None = None
) -> Sample:
    """What is known of a request by its answer so far, whether that is whole or not."""
    return Sample(
        sent_at_s=sent_at_s,
        ended_at_s=ended_at_s,
        first_at_s=answer.first_at_s,
        last_at_s=answer.last_at_s,
        sequences=sequences,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
        error=error,
    )


async def _sent(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str]
) -> aiohttp.ClientResponse:
    """Send, and once more for each kept connection that turns out to be closed before anything came: llama.cpp closes
    one after every stream and says that it is kept."""
    while True:
        kept = _Kept()
        try:
            return await session.post(url, data=body, headers=headers, allow_redirects=False, trace_request_ctx=kept)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not kept.used:
                raise


async def _read(response: aiohttp.ClientResponse, answer: Answer, clock: Clock) -> str | None:
    """Read the body into `answer`; the name of the error, None for a whole answer."""
    if response.status != 200:
        with suppress(OversizeBody):  # read for the connection's sake alone, which is closed then
            await whole(response.content, _MAX_PAGE_BYTES)
        return f"status {response.status}"
    async for piece in response.content.iter_any():
        if not answer.feed(piece, clock()):
            break
    answer.close()
    return answer.error


async def first_model(session: aiohttp.ClientSession, url: str, api_key: str | None) -> str:
    """The name of the first model that the server lists. Awaits. Raises UpstreamError, which tells the mend."""
    mend = "is the proxy up? start it with `crossover serve`, or name its address: `crossover load URL`"
    try:
        async with (
            asyncio.timeout(_MODELS_TIMEOUT_S),
            session.get(f"{url}/v1/models", headers=_headers(api_key, None)) as response,
        ):
            status, text = response.status, await whole(response.content, _MAX_PAGE_BYTES)
    except TimeoutError as error:
        message = f"{url} takes connections, and within {_MODELS_TIMEOUT_S:g} s said nothing to /v1/models: {_BEHIND}"
        raise BackendUnreachable(message) from error
    except OversizeBody as error:
        raise UpstreamError(f"{url}/v1/models answers with {error}: {mend}, or name a model with --model") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise BackendUnreachable(f"no answer from {url}/v1/models ({type(error).__name__}): {mend}") from error
    if status == 401:
        raise UpstreamError(f"{url} wants a key: give --api-key, or set CROSSOVER_API_KEY")
    if status >= 500:
        raise UpstreamError(f"{url} is up, and answered /v1/models with {status}: {_BEHIND}")
    name = _first_id(text) if status == 200 else None
    if name is None:
        raise UpstreamError(f"{url}/v1/models answered {status} and names no model: {mend}, or name one with --model")
    return name


def _first_id(text: bytes) -> str | None:
    try:
        name = orjson.loads(text)["data"][0]["id"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    return name if isinstance(name, str) else None


def _chat_url(target: Target) -> str:
    return f"{target.url}/v1/chat/completions"


def _body(target: Target, shape: Shape, messages: Sequence[Message]) -> bytes:
    asks: dict[str, object] = {"model": target.model, "messages": messages, "max_tokens": shape.max_tokens}
    if shape.n != 1:
        asks["n"] = shape.n
    if shape.stream:
        options = {"include_usage": True} | ({"continuous_usage_stats": True} if shape.continuous_usage else {})
        asks |= {"stream": True, "stream_options": options}
    return orjson.dumps(asks | dict(shape.more))


def _headers(api_key: str | None, asked: Role | None) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    if asked is not None:
        headers["x-crossover-backend"] = asked.value
    return headers


def _word(response: aiohttp.ClientResponse, name: str) -> str | None:
    """A header's value where it is one short printable word."""
    value = response.headers.get(name, "")
    return value if value and len(value) <= _MAX_WORD_BYTES and value.isprintable() else None
