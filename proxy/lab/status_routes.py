"""The routes of an embedded engine that generate nothing: health, introspection, metrics, faults."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from proxy.lab import exposition, refusals
from proxy.lab.ask_parts import BadAskError, chat_text
from proxy.lab.fault_acts import strike
from proxy.lab.faults import FaultBook, FaultKind, Planned, parse_fault
from proxy.lab.introspection import SECTIONS, Introspection
from proxy.lab.observations import Observations
from proxy.lab.realtime import RealTime
from proxy.lab.text import count_tokens

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StatusRoutes:
    """Answers about one engine. `refuse` closes the listening socket for that many seconds."""

    def __init__(
        self,
        about: Introspection,
        realtime: RealTime,
        seen: Observations,
        faults: FaultBook,
        refuse: Callable[[float], None],
    ) -> None:
        self._about = about
        self._realtime = realtime
        self._seen = seen
        self._faults = faults
        self._refuse = refuse
        self.draining = False
        self.address = ("", 0)

    def routes(self) -> list[web.RouteDef]:
        """Every row."""
        info: dict[str, Callable[[], Any]] = {
            "/v1/models": self._about.models,
            "/model_info": self._about.model_info,
            "/get_model_info": self._about.model_info,
            "/server_info": self._server_info,
            "/get_server_info": self._server_info,
        }
        return [
            *(web.get(path, _telling(tell)) for path, tell in info.items()),
            web.get("/", self._root),
            web.get("/v1/models/{model:.+}", self._model),
            web.get("/health", self._health),
            web.get("/health_generate", self._health),
            web.get("/ready", self._flag),
            web.get("/ping", self._flag),
            web.get("/v1/loads", self._loads),
            web.get("/metrics", self._metrics),
            web.post("/tokenize", self._tokenize),
            web.post("/v1/tokenize", self._tokenize),
            web.post("/v1/messages/count_tokens", self._count_tokens),
            web.get("/faults", self._list_faults),
            web.post("/faults", self._plan_fault),
            web.delete("/faults", self._clear_faults),
        ]

    @web.middleware
    async def observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count the request, let a fault strike that strikes everywhere, and give errors the engine's shape."""
        resource = request.match_info.route.resource
        key = (resource.canonical if resource is not None else "unknown", request.method)
        self._seen.http_requests[key] += 1
        self._seen.http_active[key] += 1
        try:
            response = await self._struck(request) or await handler(request)
        except web.HTTPException as error:
            response = _json({"detail": error.reason}, error.status)
        finally:
            self._seen.http_active[key] -= 1
        self._seen.http_responses[(*key, response.status)] += 1
        return response

    async def _struck(self, request: web.Request) -> web.StreamResponse | None:
        if request.path == "/faults":
            return None
        fault = self._faults.take(self._realtime.clock(), generation=False)
        return None if fault is None else await strike(fault, request, self._refuse)

    # ------------------------------------------------------------------ health

    async def _health(self, request: web.Request) -> web.Response:
        if not self.draining:
            # The real probe generates a token and looks for it only after a second.
            await asyncio.sleep(self._about.options.health_latency_s)
        return web.Response(status=503 if self.draining else 200)

    async def _flag(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self.draining else 200)

    async def _root(self, request: web.Request) -> web.Response:
        return web.Response(text="An embedded engine is running")

    # ------------------------------------------------------------------ introspection

    def _server_info(self) -> dict[str, Any]:
        return self._about.server_info(self._realtime.engine.books(), *self.address)

    async def _model(self, request: web.Request) -> web.Response:
        if request.match_info["model"] == self._about.model:
            return _json(self._about.model_card())
        error = refusals.nested("The model does not exist", "invalid_request_error", 404)["error"]
        assert isinstance(error, dict)
        return _json({"error": {**error, "param": "model", "code": "model_not_found"}}, 404)

    async def _loads(self, request: web.Request) -> web.Response:
        include = frozenset(part.strip() for part in request.query.get("include", "all").split(",") if part.strip())
        unknown = include.difference(SECTIONS)
        if unknown:
            return _json({"detail": f"Invalid include; use any of {', '.join(SECTIONS)}"}, 400)
        return _json(self._about.loads(self._realtime.engine.books(), include))

    async def _metrics(self, request: web.Request) -> web.Response:
        text = exposition.render(self._realtime.engine.books(), self._about, self._seen)
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    # ------------------------------------------------------------------ counting tokens

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await _object(request)
        given = body.get("prompt") if isinstance(body, dict) else None
        if not isinstance(given, str):
            return _json(refusals.flat("prompt must be text", "Bad Request", 400), 400)
        count = count_tokens(given)
        ids = [place % 32_768 for place in range(count)]
        return _json({"tokens": ids, "count": count, "max_model_len": self._about.options.context_length})

    async def _count_tokens(self, request: web.Request) -> web.Response:
        body = await _object(request)
        try:
            text = chat_text(body.get("messages") if isinstance(body, dict) else None)
        except BadAskError as bad:
            error = {"type": "invalid_request_error", "message": bad.message}
            return _json({"type": "error", "error": error}, 400)
        return _json({"input_tokens": count_tokens(text)})

    # ------------------------------------------------------------------ faults

    async def _plan_fault(self, request: web.Request) -> web.Response:
        body = await _object(request)
        try:
            fault = parse_fault(str(body["kind"]))
            seconds, count = body.get("seconds"), body.get("count")
            if fault.kind is FaultKind.REFUSE:
                self._refuse(fault.arg if seconds is None else float(seconds))
            else:
                until_s = None if seconds is None else self._realtime.clock() + float(seconds)
                left = None if count is None else int(count)
                self._faults.plan(Planned(fault, left, until_s, everywhere=bool(body.get("everywhere"))))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return _json({"error": f'{error}; send {{"kind": "KIND[=ARG]", "count": N, "seconds": S}}'}, 400)
        return await self._list_faults(request)

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._faults.clear()
        return await self._list_faults(request)

    async def _list_faults(self, request: web.Request) -> web.Response:
        listed = self._faults.listed(self._realtime.clock())
        return _json({"faults": [{"kind": one.fault.kind, "count": one.left} for one in listed]})


def _telling(tell: Callable[[], Any]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return _json(tell())

    return answer


async def _object(request: web.Request) -> Any:
    try:
        return orjson.loads(await request.read())
    except orjson.JSONDecodeError:
        return None


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
