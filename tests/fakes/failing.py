"""Ways in which an engine fails a request, and requests of every dialect to fail."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, FakeEngine, Script, content
from fakes.raw import RawClient, Said, request
from fakes.stage import Stage
from prometheus_client.parser import text_string_to_metric_families

from proxy.model import Dialect, Role

# Probes that come once and never again: nothing but requests tells of the engines.
UNPROBED = {"interval_s": 300}
# Never opens: what is asked is what becomes of requests, not of circuits.
STEADY = {"max_failures": 1000}

EITHER_ROLE = pytest.mark.parametrize("role", list(Role), ids=str)
STREAMING = pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
VERSION = pytest.mark.parametrize("version", ["1.1", "1.0"])


@dataclass(frozen=True)
class Form:
    """One form of request: a dialect, streaming or not."""

    sample: Sample
    stream: bool

    @property
    def body(self) -> bytes:
        """What the client sends."""
        return self.sample.body if self.stream else self.sample.body.replace(b'"stream":true', b'"stream":false')

    def request(self, *lines: str, version: str = "1.1") -> bytes:
        """The whole request."""
        return request(self.sample.target, self.body, *lines, version=version)

    async def ask(self, stage: Stage, *lines: str, version: str = "1.1") -> Said:
        """Send it over a connection of its own and take the answer."""
        async with RawClient(stage.app.port) as client:
            await client.send(self.request(*lines, version=version))
            return await client.answer()

    async def serve(self, exchange: Exchange) -> None:
        """The whole good answer, in the form that this request asks for."""
        if not self.stream:
            return await exchange.answer(PLAIN_ANSWER)
        await exchange.stream_head(self.sample.content_type)
        for each in (*self.sample.events, self.sample.end):
            await exchange.chunk(each)
        return await exchange.end()

    async def begin(self, exchange: Exchange) -> None:
        """The head and three events, or the first half of a plain answer."""
        if not self.stream:
            await exchange.head("200 OK", "content-type: application/json", f"content-length: {len(PLAIN_ANSWER)}")
            return await exchange.send(PLAIN_ANSWER[:10])
        await exchange.stream_head(self.sample.content_type)
        for each in self.sample.events:
            await exchange.chunk(each)
        return None

    def is_good(self, said: Said) -> bool:
        """Whether an answer is the one of `serve`, whole."""
        served = b"".join((*self.sample.events, self.sample.end)) if self.stream else PLAIN_ANSWER
        return (said.status, said.body, said.whole) == (200, served, True)


PLAIN_ANSWER = orjson.dumps({"id": "x", "text": "all of the answer", "done": True})
FORMS = tuple(Form(sample, stream) for sample in SAMPLES for stream in (True, False))
CHAT, PLAIN_CHAT = FORMS[:2]
EVERY_FORM = pytest.mark.parametrize(
    "form", FORMS, ids=[f"{each.sample.dialect}-{'stream' if each.stream else 'plain'}" for each in FORMS]
)

EVERY_STREAM = pytest.mark.parametrize(
    "form", [each for each in FORMS if each.stream], ids=lambda form: form.sample.dialect.value
)


def pinned(role: Role) -> dict[str, str]:
    """The `routing` section that asks `role` first, for every request."""
    return {"policy": "pinned", "pin": role.value}


def scripts(role: Role, first: Script, second: Script) -> dict[str, Script]:
    """The scripts of a stage where `role`, which is asked first, has `first`."""
    return {"a": first, "b": second} if role is Role.SPECULATIVE else {"a": second, "b": first}


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b'{"object":"error","message":"boom","code":500}', "500 Internal Server Error")


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def hang(exchange: Exchange) -> None:
    """Say nothing until the other side gives up."""
    await exchange.gone()


async def cut(exchange: Exchange) -> None:
    """Break off after the first word."""
    await exchange.stream_head()
    await exchange.event(content("w0"))
    exchange.reset()


async def late_close(exchange: Exchange) -> None:
    """Wait two seconds, then close without a byte."""
    await asyncio.sleep(2.0)  # sleeps: on a leaping loop
    exchange.writer.close()


def metric(stage: Stage, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    families = text_string_to_metric_families(stage.app.metrics.exposition().decode())
    samples = (each for family in families for each in family.samples if each.name == f"crossover_{name}")
    return sum(each.value for each in samples if labels.items() <= each.labels.items())


# What an engine's refusal inside a 200 calls itself, by the status that it stands for.
_WORDS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "overloaded_error"}


def refusing(form: Form, code: int) -> Script:
    """HTTP 200 and an error as the first event, in the form's dialect; for forms that stream."""
    said = refusal(form, code)

    async def refuse(exchange: Exchange) -> None:
        await exchange.stream_head(form.sample.content_type)
        await exchange.chunk(said)
        await exchange.end()

    return refuse


def refusal(form: Form, code: int) -> bytes:
    """The one event of such a stream."""
    error: dict[str, object] = {"message": "no", "type": _WORDS[code], "param": None}
    if form.sample.dialect in (Dialect.MESSAGES, Dialect.RESPONSES):
        return b"event: error\ndata: " + orjson.dumps({"type": "error", "error": error}) + b"\n\n"
    told = orjson.dumps({"error": {**error, "code": code}})
    return told + b"\n" if form.sample.dialect is Dialect.OLLAMA else b"data: " + told + b"\n\n"


async def serve_any(exchange: Exchange) -> None:
    """Serve whatever form comes."""
    asked = exchange.request
    await next(each for each in FORMS if (each.sample.target, each.body) == (asked.target, asked.body)).serve(exchange)


@dataclass
class Paged(FakeEngine):
    """An engine whose health pages may have scripts of their own, by path."""

    pages: dict[str, Script] = field(default_factory=dict)
    probed: int = 0

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.request.target.partition("?")[0]
        self.probed += path in ("/ready", "/health")
        if path in self.pages:
            await self.pages[path](exchange)
        else:
            await super()._serve(exchange)


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """The url of a port that takes no connection and refuses none: its backlog is full and nobody accepts."""
    with socket.socket() as listener, contextlib.ExitStack() as held:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
