"""The operators' port: a page for people, metrics, status, decisions, configuration, and the few things that an
operator may do.

It listens on loopback by default. Where a token is set, every path but /health asks for it; else whoever reaches the
port may pin, drain and reload.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler
from structlog.typing import FilteringBoundLogger

from proxy import __version__, logs
from proxy.metrics import CONTENT_TYPE, Metrics, Reading
from proxy.model import Role
from proxy.openapi import operators_document
from proxy.protocol.browsers import is_own_name, of_other_origin, of_other_site, opens_page
from proxy.protocol.credentials import carries_token, user_of
from proxy.watch import Page, Views, Watch, json_text, wants_page
from proxy.wire.ports import NAME

INDEX, HEALTH, METRICS, STREAM = "/", "/health", "/metrics", "/stream"
PATHS = (
    *(METRICS, "/status", "/decisions", "/explain/ID", "/failures", "/history", "/journal", STREAM),
    *("/config", "/config/differences", "/curves", "/openapi.json", "/openapi/clients.json"),
    *("POST /reload", "POST /pin", "POST /drain"),
)
# What aiohttp refuses by itself is said in this port's own words.
MENDS = {
    404: "this path is not served here; / lists those that are",
    405: "this path is served with another method; see the Allow header",
    413: "the body is over 1 MiB; everything that this port takes is short",
}
FAILED = "the proxy failed on this; its log has the type and the place"
NO_HTTP = "this is no request of HTTP/1.1 that can be read; with admin.tls the URL begins with https://"
OTHER_SITE = "requests made by other sites are refused; open this port's address itself"
OTHER_NAME = (
    "without admin.token this port is asked by an address, by localhost or by the name of admin.host alone, since any "
    "other name may be made to mean this machine; use the address, or set admin.token"
)
TOKEN_FORM = "send the token of admin.token as `Authorization: Bearer TOKEN`, or as the password of any user"
PIN_FORM = 'send {"role": "speculative"} or {"role": "baseline"} to pin, {"role": null} to unpin'
DRAIN_FORM = 'send {"role": "baseline"} or {"role": "speculative"}; add "draining": false to take it back into service'


class Operable(Protocol):
    """What the port shows and steers; the app is one."""

    metrics: Metrics
    logger: FilteringBoundLogger
    watch: Watch

    def reading(self) -> Reading:
        """Everything a scrape shows."""
        ...

    def status(self) -> dict[str, Any]:
        """State, warnings, start facts and the reading, as JSON tells them."""
        ...

    def curves(self) -> dict[str, Any]:
        """The measured speeds and their verdict."""
        ...

    def token(self) -> str | None:
        """What operators have to send; None where nothing is asked for."""
        ...

    def own_name(self) -> str | None:
        """The host that the port may be asked by, besides addresses and localhost; None where any name will do."""
        ...

    def clients_document(self) -> dict[str, Any]:
        """The clients' port as an OpenAPI document."""
        ...

    def effective(self) -> str:
        """The configuration in force as YAML, secrets masked."""
        ...

    async def differences(self) -> dict[str, Any]:
        """The configuration in force beside the defaults and beside the file as it is now, secrets masked."""
        ...

    async def reload(self) -> tuple[bool, list[str]]:
        """Read the configuration again; whether it was taken, and what changed or what is wrong."""
        ...

    def pin(self, role: Role | None) -> None:
        """Send everything to one role, or unpin."""
        ...

    def drain_backend(self, role: Role, *, draining: bool) -> None:
        """Keep new requests from a backend, or let them again."""
        ...


class Connection(web.RequestHandler):
    """A connection that answers in this port's form even what is no HTTP."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """See aiohttp, which says what it met in words of its own."""
        super().handle_error(request, status, exc, message)
        answer = _json({"error": NO_HTTP if status < 500 else FAILED}, status=status)
        answer.force_close()
        return answer


class Admin:
    """Handlers of the operators' port."""

    def __init__(self, app: Operable) -> None:
        self._app = app
        self._page = Page()

    def application(self) -> web.Application:
        """The aiohttp application to serve."""
        application = web.Application(
            middlewares=[
                self._tell_refusals,
                _refuse_other_sites,
                self._refuse_other_names,
                self._ask_token,
                self._tell_failures,
            ]
        )
        get, post = application.router.add_get, application.router.add_post
        get(INDEX, self._index)
        get(METRICS, self._metrics)
        get("/status", self._status)
        application.router.add_routes([*Views(lambda: self._app.watch).routes(), *self._page.routes()])
        get("/config", self._config)
        get("/config/differences", self._differences)
        get("/curves", self._curves)
        get("/openapi.json", self._openapi)
        get("/openapi/clients.json", self._clients_openapi)
        get(HEALTH, self._health)
        post("/reload", self._reload)
        post("/pin", _asking(self._pin, PIN_FORM))
        post("/drain", _asking(self._drain, DRAIN_FORM))
        return application

    @web.middleware
    async def _ask_token(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        token = self._app.token()
        said = request.headers.get("Authorization", "")
        if token is None or request.path == HEALTH or carries_token(said, token):
            return await handler(request)
        response = _json({"error": TOKEN_FORM}, status=401)
        # Browsers know Basic, and ask for a user and a password.
        for scheme in ('Basic realm="crossover"', "Bearer"):
            response.headers.add("WWW-Authenticate", scheme)
        return response

    @web.middleware
    async def _tell_refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whoever is not let in is told of without a name: what stands there may be a password in the wrong field."""
        response = await handler(request)
        if response.status in (401, 403, 421):
            resource = request.match_info.route.resource
            path = None if resource is None else resource.canonical  # of ours, not as it was sent
            address = request.remote
            logs.audit(self._app.logger, "refused", "port", address=address, path=path, status=response.status)
        return response

    @web.middleware
    async def _refuse_other_names(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A name that somebody makes mean this machine must not open the port to that somebody's page. Scrapers and
        probes come by the names of services, and get what gives nothing away."""
        own = self._app.own_name()
        if own is None or request.path in (HEALTH, METRICS) or is_own_name(request.headers.get("Host", ""), own):
            return await handler(request)
        return _json({"error": OTHER_NAME}, status=421)

    def _audit(self, request: web.Request, act: str, **told: Any) -> None:
        user = user_of(request.headers.get("Authorization", ""), self._app.token())
        logs.audit(self._app.logger, act, "port", address=request.remote, user=user, **told)

    @web.middleware
    async def _tell_failures(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _said_here(error)
        except Exception as error:
            self._app.logger.error("admin_failed", path=request.path, exc_info=error)
            return _json({"error": FAILED}, status=500)

    async def _index(self, request: web.Request) -> web.Response:
        if wants_page(request):
            return self._page.index(request)
        return _json({"crossover": __version__, "paths": PATHS})

    async def _health(self, _: web.Request) -> web.Response:
        answer = _json({"status": "alive"})
        answer.headers["Server"] = NAME  # by which a second process knows whose port it is
        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._app.metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _status(self, _: web.Request) -> web.Response:
        return _json(self._app.status())

    async def _config(self, _: web.Request) -> web.Response:
        return web.Response(text=self._app.effective(), content_type="application/yaml")

    async def _differences(self, _: web.Request) -> web.Response:
        return _json(await self._app.differences())

    async def _curves(self, _: web.Request) -> web.Response:
        return _json(self._app.curves())

    async def _openapi(self, request: web.Request) -> web.Response:
        return _json(operators_document(served(request.app), locked=self._app.token() is not None))

    async def _clients_openapi(self, _: web.Request) -> web.Response:
        return _json(self._app.clients_document())

    async def _reload(self, request: web.Request) -> web.Response:
        taken, lines = await self._app.reload()
        self._audit(request, "reload", after=logs.ending(taken), changes=lines if taken else None)
        return _json({"reloaded": taken, "changes" if taken else "problems": lines}, status=200 if taken else 422)

    async def _pin(self, request: web.Request, *, role: str | None) -> web.Response:
        before = self._app.status()["pinned"]
        self._app.pin(None if role is None else Role(role))
        self._audit(request, "unpin" if role is None else "pin", before=before, after=role)
        return _json({"pinned": role})

    async def _drain(self, request: web.Request, *, role: str, draining: bool = True) -> web.Response:
        if not isinstance(draining, bool):
            raise ValueError("draining is true or false")
        before = {each.role: each.draining for each in self._app.reading().backends}
        self._app.drain_backend(Role(role), draining=draining)
        self._audit(request, "drain" if draining else "undrain", role=role, before=before[Role(role)], after=draining)
        return _json({"role": role, "draining": draining})


def served(application: web.Application) -> set[tuple[str, str]]:
    """The (method, path) pairs of the port, as OpenAPI writes paths."""
    routes = application.router.routes()
    found = {(route.method, route.resource.canonical) for route in routes if route.resource is not None}
    return {each for each in found if each[0] != "HEAD"}  # which comes with every GET


def _said_here(error: web.HTTPException) -> web.Response:
    """What aiohttp refuses by itself, in the form of this port's errors."""
    answer = _json({"error": MENDS.get(error.status, error.reason)}, status=error.status)
    if "Allow" in error.headers:
        answer.headers["Allow"] = error.headers["Allow"]
    return answer


def _asking(act: Callable[..., Awaitable[web.Response]], form: str) -> Handler:
    """A handler that calls `act` with the request and the keys of its JSON object; whatever does not fit is answered
    with the `form`."""

    async def handler(request: web.Request) -> web.Response:
        try:
            asked = orjson.loads(await request.read())
            return await act(request, **asked)
        except (ValueError, TypeError):
            return _json({"error": form}, status=400)

    return handler


@web.middleware
async def _refuse_other_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A page that an operator happens to visit must not steer the proxy through the operator's browser, nor take the
    places of those who watch, nor have it make answers that nobody reads. It may link to the status page."""
    headers, path = request.headers, request.path
    linked = path == HEALTH or (path == INDEX and opens_page(headers))
    foreign = of_other_site(headers) and not (linked and request.method in ("GET", "HEAD"))
    if foreign or (of_other_origin(headers) and (request.method == "POST" or path == STREAM)):
        return _json({"error": OTHER_SITE}, status=403)
    return await handler(request)


def _json(value: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=json_text(value), status=status, content_type="application/json")
