"""The generation routes of an embedded engine: from a body to an answer that flows, and to one that was stored. Other
routes are elsewhere."""

import hashlib
from collections import deque
from collections.abc import Callable

from aiohttp import HttpVersion11, web

from proxy.lab import refusals
from proxy.lab.answers import Answer
from proxy.lab.answers_events import MessagesAnswer, ResponsesAnswer
from proxy.lab.answers_native import GenerateAnswer, OllamaAnswer, OllamaGenerateAnswer
from proxy.lab.answers_openai import ChatAnswer, CompletionsAnswer, EmbeddingsAnswer
from proxy.lab.ask_parts import BadAskError
from proxy.lab.asks import read_ask
from proxy.lab.fault_acts import reset, strike, until_gone
from proxy.lab.faults import STREAM_KINDS, Fault, FaultBook, FaultKind, parse_fault
from proxy.lab.introspection import Introspection, unix_now_s
from proxy.lab.jobs import Job, plan_choices
from proxy.lab.outlet import Outlet
from proxy.lab.realtime import RealTime
from proxy.lab.stored import Stored
from proxy.model import Dialect

FAULT_HEADER = "x-engine-fault"
"""A generation request with this header fails as it says: `KIND` or `KIND=ARG`."""

# Fingerprints of request bodies that are kept, the newest: more than any test sends at once.
_MAX_RECORDED = 100_000

SHAPES: dict[str, tuple[Dialect, type[Answer]]] = {
    "/v1/chat/completions": (Dialect.CHAT, ChatAnswer),
    "/invocations": (Dialect.CHAT, ChatAnswer),
    "/v1/completions": (Dialect.COMPLETIONS, CompletionsAnswer),
    "/generate": (Dialect.GENERATE, GenerateAnswer),
    "/v1/messages": (Dialect.MESSAGES, MessagesAnswer),
    "/v1/responses": (Dialect.RESPONSES, ResponsesAnswer),
    "/api/chat": (Dialect.OLLAMA, OllamaAnswer),
    "/api/generate": (Dialect.OLLAMA, OllamaGenerateAnswer),
    "/v1/embeddings": (Dialect.PLAIN, EmbeddingsAnswer),
}
"""Generation routes: how the body is read and how the answer looks."""


class Generation:
    """Answers generation requests. `refuse` closes the listening socket for that many seconds."""

    def __init__(
        self, about: Introspection, realtime: RealTime, faults: FaultBook, refuse: Callable[[float], None]
    ) -> None:
        self._about = about
        self._realtime = realtime
        self._faults = faults
        self._refuse = refuse
        self.stored = Stored()
        self.bodies_sha256: deque[str] = deque(maxlen=_MAX_RECORDED)

    def routes(self) -> list[web.RouteDef]:
        """The rows of `SHAPES`, all by POST, the native one by PUT too, and those of stored responses."""
        rows = [web.post(path, self.answer) for path in SHAPES]
        stored = [
            web.get("/v1/responses/{id}", self._read_stored),
            web.post("/v1/responses/{id}/cancel", self._cancel_stored),
        ]
        return [*rows, web.put("/generate", self.answer), *stored]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """One generation request. The sequences leave the engine when this ends, however it ends."""
        dialect, shape = SHAPES[request.path]
        body = await request.read()
        if self._about.options.record_bodies:
            self.bodies_sha256.append(hashlib.sha256(body).hexdigest())
        try:
            fault = self._due_fault(request)
            if fault is not None:
                struck = await strike(fault, request, self._refuse)
                if struck is not None:
                    return struck
            options = self._about.options
            content_type = request.headers.get("Content-Type", "")
            ask = read_ask(dialect, body, content_type, self._about.model, options.context_length)
            ask = self.stored.taken_up(ask, options.context_length)
        except BadAskError as bad:
            return _bad(dialect, bad)
        answer = shape(ask, plan_choices(ask), int(unix_now_s()), speculative=self._about.options.speculative)
        job = Job(answer, self._realtime.clock(), Outlet(fault) if ask.stream else None)
        return await self._run(request, job, fault)

    async def _run(self, request: web.Request, job: Job, fault: Fault | None) -> web.StreamResponse:
        full = fault is not None and fault.kind is FaultKind.QUEUE_FULL
        if full or not self._realtime.submit(job):
            return await _queue_full(request, job)
        try:
            if job.outlet is not None:
                return await _stream(request, job, job.outlet)
            await job.over.wait()
        finally:
            if job.over.is_set():
                self.stored.keep(job.answer)
            self._realtime.withdraw(job)
        body = job.answer.whole()
        if fault is not None and fault.kind in STREAM_KINDS:
            return await _broken(request, body, fault)
        return web.Response(body=body, content_type="application/json")

    async def _read_stored(self, request: web.Request) -> web.Response:
        try:
            body = self.stored.body(request.match_info["id"])
        except BadAskError as bad:
            return _bad(Dialect.RESPONSES, bad)
        return web.Response(body=body, content_type="application/json")

    async def _cancel_stored(self, request: web.Request) -> web.Response:
        try:
            self.stored.cancel(request.match_info["id"])
        except BadAskError as bad:
            return _bad(Dialect.RESPONSES, bad)
        raise AssertionError("nothing stored runs")

    def _due_fault(self, request: web.Request) -> Fault | None:
        asked = request.headers.get(FAULT_HEADER)
        if asked is None:
            return self._faults.take(self._realtime.clock(), generation=True)
        try:
            return parse_fault(asked)
        except ValueError as error:
            raise BadAskError(f"{FAULT_HEADER}: {error}") from error


async def _stream(request: web.Request, job: Job, outlet: Outlet) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": job.answer.content_type})
    if not job.answer.head_at_once:
        await outlet.begun.wait()
    await response.prepare(request)
    outlet.attach(request.transport, chunked=request.version >= HttpVersion11)
    await outlet.over.wait()
    await response.write_eof()
    return response


async def _queue_full(request: web.Request, job: Job) -> web.StreamResponse:
    """As the real engine: a stream is refused inside an HTTP 200, anything else by a true 503."""
    if job.outlet is None:
        return _refused(job.answer.ask.dialect, 503, refusals.QUEUE_FULL, "503")
    response = web.StreamResponse(headers={"Content-Type": job.answer.content_type})
    await response.prepare(request)
    await response.write(job.answer.refusal(refusals.QUEUE_FULL, "SERVICE_UNAVAILABLE", 503))
    await response.write_eof()
    return response


async def _broken(request: web.Request, body: bytes, fault: Fault) -> web.StreamResponse:
    """A body that is not streamed, under a fault made for streams: half of it, then what the fault says."""
    half = body[: len(body) // 2]
    if fault.kind is FaultKind.TRUNCATE:
        return web.Response(body=half, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    if fault.kind is not FaultKind.STALL:
        await response.write(half)
    if fault.kind is FaultKind.RESET_STREAM:
        reset(request.transport)
    elif fault.kind is FaultKind.DIE_MID_LINE and request.transport is not None:
        request.transport.close()
    return await until_gone()


def _bad(dialect: Dialect, bad: BadAskError) -> web.Response:
    return _refused(dialect, bad.status, bad.message, bad.kind)


def _refused(dialect: Dialect, status: int, message: str, kind: str) -> web.Response:
    body = refusals.body(dialect, status, message, kind)
    return web.Response(body=body, status=status, content_type="application/json")
