"""Questions that occupy no engine: model list, facts, tokenising. Answered by whichever backend lives, never counted.

An answer of 5xx is as good as none while the other backend, or for the model list our memory, may have a better one.
Requests that generate are in relay.py.
"""

import asyncio
from dataclasses import dataclass

from proxy.dispatch import Desk
from proxy.errors import (
    BackendBroken,
    BackendUnreachable,
    FirstByteTimeout,
    OutOfSockets,
    RouteRefused,
    StateUnreachable,
    UpstreamError,
    without_frames,
)
from proxy.model import Dialect, Role
from proxy.protocol import headers
from proxy.protocol.allowlist import STATEFUL_PREFIX, STORED_RESPONSES
from proxy.protocol.engines import shows_keys
from proxy.protocol.prefixes import response_state
from proxy.protocol.routes import Route
from proxy.state.backend import Backend
from proxy.wire.attempt import Opened, open_answer
from proxy.wire.body import Bodies
from proxy.wire.connection import Call
from proxy.wire.downstream import BODILESS, Reply, kept_reply, stamps_of
from proxy.wire.kept import Kept
from proxy.wire.pair import Line, Pair
from proxy.wire.request import Request

# These answer from memory; one that takes longer is a hung engine, and the other may do better.
ANSWER_WITHIN_S = 30.0
# Clients ask for the model list as they start, with little patience: while the other engine or our memory may have it,
# a hung engine gets no longer. Shorter, and a busy engine's own list would be missed.
LIST_WITHIN_S = 2.0
# Answers are held whole. The largest honest ones are token lists of the largest bodies; one that never ends must not
# fill the memory.
ANSWER_MAX_BYTES = 128 * 1024 * 1024
# The model list is kept to be answered when no engine lives; other answers are not.
REMEMBERED = "/v1/models"
# A question is none of the attempts that engines are told of.
NO_ATTEMPT = b""
# SGLang lists its launch arguments there, keys included.
ARGUMENT_LISTS = ("/server_info", "/get_server_info")


@dataclass(frozen=True, slots=True)
class _Told:
    """What a backend answered, and the keys that it was asked with."""

    answer: Kept
    role: Role
    keys: headers.Keys


class Informer:
    """Answers questions. A client may name the backend by x-crossover-backend; none is needed to ask."""

    def __init__(self, desk: Desk, pair: Pair, bodies: Bodies) -> None:
        self._bodies = bodies
        self.answer_within_s = ANSWER_WITHIN_S
        self.list_within_s = LIST_WITHIN_S
        self._desk = desk
        self._pair = pair
        self._models: _Told | None = None

    async def answer(self, request: Request, route: Route, request_id: str, client_name: str | None = None) -> Reply:
        """Ask one backend, then the other. The key of a client with a name was for the proxy and goes to neither.
        Raises UpstreamError when neither answers."""
        body = await self._bodies.read(request)
        try:
            return await self._put(request, route, request_id, body.content, named=client_name is not None)
        finally:
            body.free()

    async def _put(self, request: Request, route: Route, request_id: str, body: bytes, *, named: bool) -> Reply:
        trouble: UpstreamError = BackendUnreachable("no backend answers")
        failed: _Told | None = None
        holder = self._holder(request, route)
        order = self._order(request) if holder is None else [holder]
        for role in order:
            backend = self._desk.backend(role)  # looked up anew: a reload may have come while the first was asked
            try:
                within_s = self._patience_s(request, route, last=role is order[-1], named=named)
                told = await self._ask(request, backend, body, request_id, within_s, named=named)
            except UpstreamError as error:
                trouble = without_frames(error)
                if isinstance(error, OutOfSockets):
                    break  # the other one would be called in vain too
                continue
            elsewhere = told.answer.status == 404 and route.template == STORED_RESPONSES
            if told.answer.status < 500 and not elsewhere:
                _guard(route, told.answer)
                self._remember(request, route, told)
                return _respond(request, told, request_id)
            failed = failed or told
        if holder is not None and failed is None and not isinstance(trouble, OutOfSockets):
            raise StateUnreachable(
                "the backend that holds this response does not answer, and no other has it"
            ) from trouble
        if route.template == REMEMBERED and (remembered := self._recall(request, request_id, named=named)) is not None:
            return remembered
        if failed is not None:
            return _respond(request, failed, request_id)
        raise trouble

    def _patience_s(self, request: Request, route: Route, *, last: bool, named: bool) -> float:
        """How long a backend may take: not long with a list that another, or our memory, may have."""
        if route.template != REMEMBERED or (last and self._recall(request, "", named=named) is None):
            return self.answer_within_s
        return min(self.list_within_s, self.answer_within_s)

    def _holder(self, request: Request, route: Route) -> Role | None:
        """The role whose engine holds the stored response that is asked for; None where any may be asked."""
        if route.template != STORED_RESPONSES:
            return None
        path = request.target.partition("?")[0].removeprefix(STATEFUL_PREFIX)
        return self._desk.holder(response_state(path.partition("/")[0]))

    def _remember(self, request: Request, route: Route, told: _Told) -> None:
        """Keep a model list that any client can read, whatever codings it accepts."""
        coded = any(name.lower() == b"content-encoding" for name, _ in told.answer.fields)
        if route.template == REMEMBERED and told.answer.status == 200 and not coded:
            self._models = told

    def _recall(self, request: Request, request_id: str, *, named: bool) -> Reply | None:
        """The model list from memory, for whoever asks with the same keys: the engines that check them are gone."""
        told = self._models
        if told is None:
            return None
        with self._pair.line(self._desk.backend(told.role)) as line:
            if _keys(request, line, named=named) != told.keys:
                return None
        reply = _respond(request, told, request_id)
        reply.fields.append((b"x-crossover-cached", b"1"))
        return reply

    def _order(self, request: Request) -> list[Role]:
        """Who is asked: the one the client names, else the baseline first; ones that look down last, and before them
        ones whose latest probe went unanswered."""
        wanted = headers.asked_role(request.by_name.get(b"x-crossover-backend")) or Role.BASELINE
        snapshot = self._desk.snapshot()
        health = {role: self._desk.backend(role).health for role in (wanted, wanted.other)}
        return sorted(
            health,
            key=lambda role: (
                not snapshot.of(role).eligible,
                bool(health[role].misses or health[role].not_ready or health[role].doubtful),
            ),
        )

    async def _ask(
        self, request: Request, backend: Backend, body: bytes, request_id: str, within_s: float, *, named: bool
    ) -> _Told:
        # Engines know no HEAD, and answer it 405: they are asked the whole question, and the body stays here.
        method = "GET" if request.method == "HEAD" else request.method
        with self._pair.line(backend) as line:
            head = headers.upstream_head(
                method,
                request.target,
                request.fields,
                host=line.host,
                api_key=line.api_key,
                request_id=request_id.encode(),
                peer=request.peer.encode(),
                drop_client_key=named,
                attempt=NO_ATTEMPT,
                body_bytes=len(body) if request.incoming.declared else None,
            )
            call = Call(method, head, body)
            opened, _ = await open_answer(line.upstream, call, Dialect.PLAIN, task=request.task, first_byte_s=within_s)
            self._desk.spoke(backend)
            keys = _keys(request, line, named=named)
            return _Told(await _whole(opened, within_s), backend.role, keys)


def _keys(request: Request, line: Line, *, named: bool) -> headers.Keys:
    """What of a client's own keys the engine has seen."""
    return frozenset() if line.api_key is not None or named else headers.keys(request.fields)


def _guard(route: Route, answer: Kept) -> None:
    coded = any(name.lower() == b"content-encoding" for name, _ in answer.fields)
    if route.template in ARGUMENT_LISTS and (coded or shows_keys(answer.body)):
        raise RouteRefused("the engine's launch arguments hold keys; ask the engine itself, not through the proxy")


async def _whole(opened: Opened, within_s: float) -> Kept:
    pieces: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(within_s):
            while data := await opened.answer.read():
                size_bytes += len(data)
                if size_bytes > ANSWER_MAX_BYTES:
                    raise BackendBroken(f"the backend's answer is over {ANSWER_MAX_BYTES} bytes")
                pieces.append(data)
    except TimeoutError as error:
        raise FirstByteTimeout(f"the backend did not finish its answer within {within_s:g} s") from error
    finally:
        opened.answer.close()
    return Kept(opened.status, opened.answer.fields, b"".join(pieces))


def _respond(request: Request, told: _Told, request_id: str) -> Reply:
    stamps = b"%bx-crossover-backend: %b\r\n" % (stamps_of(request_id, None), told.role.encode())
    bodiless = request.method == "HEAD"
    reply = kept_reply(told.answer, stamps, bodiless=bodiless)
    if bodiless and reply.status not in BODILESS:
        reply.length = len(told.answer.body)
    return reply
