"""A fake SGLang over a real socket that does exactly what a test tells it, and keeps books of its own.

It writes raw bytes: a test may send half an event, close in mid-answer or never answer at all.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import orjson

Script = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Request:
    """One request as it came: names and bytes untouched."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class Exchange:
    """One request and the socket it came on."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: str = "200 OK", *lines: str) -> None:
        await self.send("\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode())

    async def stream_head(self, content_type: str = "text/event-stream; charset=utf-8") -> None:
        await self.head("200 OK", f"content-type: {content_type}", "transfer-encoding: chunked")

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: object) -> None:
        await self.chunk(b"data: " + orjson.dumps(value) + b"\n\n")

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def answer(self, body: bytes, status: str = "200 OK", *lines: str) -> None:
        await self.head(status, "content-type: application/json", f"content-length: {len(body)}", *lines)
        await self.send(body)

    def reset(self) -> None:
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        while await self.reader.read(65536):
            pass


def content(text: str, **more: object) -> dict[str, object]:
    """One chat chunk with content, as SGLang writes it."""
    choice = {"index": 0, "delta": {"reasoning_content": None, "content": text}, "logprobs": None, **more}
    choice.setdefault("finish_reason", None)
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


async def stream(exchange: Exchange, words: int = 3, gate: asyncio.Event | None = None) -> None:
    """A whole streamed chat answer; with a gate, it waits after the first word until the gate opens."""
    await exchange.stream_head()
    for number in range(words):
        await exchange.event(content(f"w{number} "))
        if gate is not None and number == 0:
            await gate.wait()
    await exchange.event(content("", finish_reason="stop"))
    usage = {"prompt_tokens": 5, "completion_tokens": words, "total_tokens": 5 + words}
    await exchange.event({**content(""), "choices": [], "usage": usage})
    await exchange.chunk(b"data: [DONE]\n\n")
    await exchange.end()


async def plain(exchange: Exchange) -> None:
    """A whole plain chat answer."""
    message = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    value = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [message], "usage": usage}
    await exchange.answer(orjson.dumps(value))


async def either(exchange: Exchange) -> None:
    """Stream when the body asks for it."""
    await (stream if b'"stream":true' in exchange.request.body.replace(b" ", b"") else plain)(exchange)


@dataclass
class FakeEngine:
    """The engine. `script` answers what clients ask; what the proxy itself asks is answered as by a healthy SGLang."""

    role: str = "speculative"
    script: Script = either
    ready: bool = True
    requests: list[Request] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    cut: int = 0
    max_running_requests: int | None = 256
    port: int = 0
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"http://{'[::1]' if ':' in self.host else self.host}:{self.port}"

    async def __aenter__(self) -> "FakeEngine":
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def listen(self) -> None:
        """Start, on the same port as before if there was one."""
        self._connections: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._connected, self.host, self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        self._server.close()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await _read(reader)) is not None:
                await self._serve(Exchange(request, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, exchange: Exchange) -> None:
        path = exchange.request.target.partition("?")[0]
        if path in ("/ready", "/health"):
            return await exchange.answer(b"", "200 OK" if self.ready else "503 Service Unavailable")
        if path == "/v1/loads" and not _forwarded(exchange.request):
            return await exchange.answer(orjson.dumps(self._loads()))
        if path == "/server_info" and not _forwarded(exchange.request):
            return await exchange.answer(orjson.dumps(self._server_info()))
        self.requests.append(exchange.request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        watch = asyncio.current_task()
        try:
            await self.script(exchange)
        except (ConnectionError, asyncio.CancelledError):
            self.cut += 1
            raise
        finally:
            self.open -= 1
        assert watch is not None
        return None

    def _loads(self) -> dict[str, object]:
        load = {"timestamp": 1.0, "num_running_reqs": self.open, "num_waiting_reqs": 0}
        if self.max_running_requests is not None:
            load["max_running_requests"] = self.max_running_requests
        return {"loads": [load], "version": "0.5.23"}

    def _server_info(self) -> dict[str, object]:
        algorithm = "EAGLE3" if self.role == "speculative" else None
        return {
            "served_model_name": "m",
            "version": "0.5.23",
            "context_length": 4096,
            "weight_version": "default",
            "speculative_algorithm": algorithm,
            "max_running_requests": self.max_running_requests,
            "internal_states": [],
        }


def _forwarded(request: Request) -> bool:
    """Whether a client asks, through the proxy, and not the proxy itself."""
    return request.header("x-forwarded-for") is not None


async def _read(reader: asyncio.StreamReader) -> Request | None:
    with contextlib.suppress(asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        return Request(method, target, headers, await reader.readexactly(length))
    return None
