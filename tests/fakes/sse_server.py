"""A small OpenAI-like server on a free port, which answers chat requests as a test tells it to."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson
from aiohttp import web


@dataclass
class Reply:
    """One answer: pieces are written as they stand; then it ends, is cut, or hangs until the client goes."""

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ending: str = "end"  # end | cut | hang


def event(**said: object) -> bytes:
    return b"data: " + orjson.dumps(said) + b"\n\n"


def delta(**says: object) -> bytes:
    return event(choices=[{"index": 0, "delta": says, "finish_reason": None}])


def usage(tokens: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": 7, "completion_tokens": tokens})


ROLE = delta(role="assistant", content="", reasoning_content=None)
DONE = b"data: [DONE]\n\n"


def whole(tokens: int = 8, chunks: int = 2) -> list[bytes]:
    """A whole stream whose tokens are more than its chunks, as a speculative engine sends."""
    return [ROLE, *[delta(content="words ")] * chunks, usage(tokens), DONE]


def by(backend: str, reason: str = "regime") -> dict[str, str]:
    return {"x-crossover-backend": backend, "x-crossover-reason": reason}


class SseServer:
    """Records what came and how much was in flight. Answers wait for `gate`, which is open at first."""

    def __init__(self, answer: Callable[["SseServer", web.Request], Reply]) -> None:
        self.bodies: list[dict[str, object]] = []
        self.requests: list[web.Request] = []
        self.in_flight = self.max_in_flight = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""
        self._answer = answer
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> "SseServer":
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://127.0.0.1:{1}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` is true, looked at whenever a request comes or goes."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(holds)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "fake-model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(orjson.loads(await request.read()))
        await self._count(1)
        try:
            await self.gate.wait()
            return await self._write(request, self._answer(self, request))
        finally:
            await asyncio.shield(self._count(-1))

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.in_flight += change
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            self._changed.notify_all()

    async def _write(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        for piece in reply.pieces:
            await response.write(piece)
        if reply.ending == "hang":
            await asyncio.Event().wait()
        if reply.ending == "cut" and request.transport is not None:
            request.transport.abort()
        return response
