"""The clients' port as an OpenAPI document: the proxy's own paths, and what it forwards to which engines.

Bodies of requests and answers are the engines' and pass untouched: the schemas name what the proxy reads and no more.
The rows are those of protocol/allowlist.py, the refusals those of errors.py.
"""

from collections.abc import Iterable

from proxy.model import Dialect, Reason, Role
from proxy.openapi import refusals
from proxy.openapi.words import JSON, Schema, answer, document, header, many, record, ref, text, whole
from proxy.protocol.allowlist import LIVENESS_PATHS, READINESS_PATHS, ROUTES, EngineKind, Route, RouteClass

EVENTS, LINES, ANYTHING = "text/event-stream", "application/x-ndjson", "*/*"
_ABOUT = """\
One endpoint in front of two instances of one model. Requests and answers pass byte for byte, so what an engine accepts
and answers is told by the engine's own documents; here is what the proxy adds, reads and refuses. An error of the
proxy's own has `Server: crossover`, a code of those named here, and the shape of the path's dialect.
"""
_KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key of `listen.api_keys_file`."},
    "anthropic": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The same key."},
    "azure": {"type": "apiKey", "in": "header", "name": "api-key", "description": "The same key."},
}
_REQUEST_ID = {"x-request-id": header("The client's id of the request, or one of the proxy's making.")}
_BACKEND = _REQUEST_ID | {"x-crossover-backend": header("Which backend answered.", words=Role)}
_DECIDED = _BACKEND | {
    "x-crossover-reason": header("Why it went there.", words=Reason),
    "x-crossover-in-flight": header("Sequences in flight on both, before this request."),
    "x-crossover-because": header("The numbers behind the decision."),
}
_REMEMBERED = _BACKEND | {"x-crossover-cached": header("1: from memory, since no engine answers.", required=False)}
_ASKED = {
    "name": "x-crossover-backend",
    "in": "header",
    "description": "The backend to use, where `routing.allow_header` is set; no engine is told.",
    "schema": text("A role; any other word is no wish."),
}
_MEANS = {
    RouteClass.DECODE: "Generates, and counts as sequences in flight.",
    RouteClass.PREFILL: "Reads its input and generates nothing; counts as in flight.",
    RouteClass.AUDIO: "Transcribes; counts as in flight.",
    RouteClass.CPU: "Occupies no engine: whichever backend lives answers.",
    RouteClass.INFO: "Occupies no engine: whichever backend lives answers.",
}
_STREAMS = {
    **dict.fromkeys((Dialect.CHAT, Dialect.COMPLETIONS, Dialect.RESPONSES, Dialect.MESSAGES, Dialect.GENERATE), EVENTS),
    Dialect.OLLAMA: LINES,
}
_BODIES = {
    Dialect.CHAT: "ChatRequest",
    Dialect.COMPLETIONS: "CompletionRequest",
    Dialect.RESPONSES: "ResponseRequest",
    Dialect.MESSAGES: "MessagesRequest",
}


def clients_document(engines: Iterable[EngineKind], *, locked: bool) -> Schema:
    """What a proxy in front of these kinds of engines serves: the routes that all of them have. `locked`: a client key
    is asked for."""
    first, *others = ({row.template: row for row in ROUTES[kind]} for kind in engines)
    paths: Schema = {path: _own(path) for path in sorted(LIVENESS_PATHS | READINESS_PATHS)}
    for template, row in first.items():
        if all(template in other for other in others):
            methods = row.methods.intersection(*(other[template].methods for other in others))
            paths.setdefault(_path(template), _forwarded(row, methods, locked=locked))
    schemas = _request_bodies() | refusals.shapes() | _states()
    told = document("Crossover, the clients' port", _ABOUT, paths, schemas, _KEYS, locked=locked)
    told["components"]["responses"] = refusals.answers()
    return told


def _path(template: str) -> str:
    """A row's template as OpenAPI writes one."""
    return template.replace(":path}", "}")


def _own(path: str) -> Schema:
    """A path that the proxy answers by itself, without a key."""
    if path in LIVENESS_PATHS:
        told = {"200": answer("The process runs.", ref("Alive"))}
        meaning = "Whether the proxy runs."
    else:
        told = {
            "200": answer("New requests are welcome.", ref("Readiness")),
            "503": answer("New requests should go elsewhere; `reason` says why.", ref("Readiness")),
        }
        meaning = "Whether the proxy can serve."
    operation = {"summary": meaning, "tags": ["health"], "security": []}
    bare = {status: {"description": each["description"]} for status, each in told.items()}
    return {"get": {**operation, "responses": told}, "head": {**operation, "responses": bare}}


def _forwarded(row: Route, methods: Iterable[str], *, locked: bool) -> Schema:
    named = [_parameter(row.template)] if "{" in row.template else []
    operations = {method.lower(): _operation(row, method, locked=locked) for method in sorted(methods)}
    return ({"parameters": named} if named else {}) | operations


def _operation(row: Route, method: str, *, locked: bool) -> Schema:
    operation = {"summary": _MEANS[row.kind], "tags": [row.kind.value], "parameters": [_ASKED]}
    answered = _answer(row)
    if method == "HEAD":
        del answered["content"]
        return {**operation, "responses": {"200": answered, "default": {"description": "As to GET, without a body."}}}
    body = {"requestBody": _body(row)} if method != "GET" else {}
    told = {"200": answered} | refusals.named(row.dialect, locked=locked)
    return {**operation, **body, "responses": told}


def _parameter(template: str) -> Schema:
    name = template[template.index("{") + 1 :].partition(":")[0]
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _answer(row: Route) -> Schema:
    """The engine's answer. What is inside is the engine's, so its schema takes anything."""
    if row.kind is RouteClass.INFO:
        return {"description": "The engine's answer.", "headers": _REMEMBERED, "content": {_info_kind(row): {}}}
    if row.kind is RouteClass.CPU:
        return {"description": "The engine's answer.", "headers": _BACKEND, "content": {JSON: {}}}
    kinds = (JSON, _STREAMS[row.dialect]) if row.dialect in _STREAMS else (ANYTHING,)
    return {"description": "The engine's answer.", "headers": _DECIDED, "content": {kind: {} for kind in kinds}}


def _info_kind(row: Route) -> str:
    return JSON if row.template.startswith("/v1/models") else ANYTHING


def _body(row: Route) -> Schema:
    if row.kind is RouteClass.AUDIO:
        return {"required": True, "content": {"multipart/form-data": {"schema": {"type": "object"}}}}
    schema = ref(_BODIES[row.dialect]) if row.kind is RouteClass.DECODE and row.dialect in _BODIES else _object()
    return {"required": row.kind is not RouteClass.INFO, "content": {JSON: {"schema": schema}}}


def _object() -> Schema:
    return {"type": "object", "description": "As the engine reads it."}


def _request_bodies() -> Schema:
    """What the proxy reads of the bodies that generate, from a copy; the rest is the engine's to judge."""
    shared = {
        "model": text("The model's name, for the log."),
        "stream": {"type": "boolean", "description": "Whether the answer streams."},
        "n": whole("Sequences of each prompt: the request's weight.", least=1),
    }
    prompts = {"type": ["string", "array"], "description": "A prompt, or several."}
    said = many({"type": "object"}, "The conversation.")
    named = {
        "ChatRequest": (
            {"messages": said, "max_completion_tokens": whole("The most to generate.", least=1)},
            "messages",
        ),
        "CompletionRequest": ({"prompt": prompts}, "prompt"),
        "ResponseRequest": ({"input": prompts}, "input"),
        "MessagesRequest": ({"messages": said, "max_tokens": whole("The most to generate.", least=1)}, "messages"),
    }
    return {
        name: {**record("What is read of it.", **(shared | own)), "required": [needed]}
        for name, (own, needed) in named.items()
    }


def _states() -> Schema:
    return {
        "Alive": record("The process runs.", status=text("", ("alive",))),
        "Readiness": record(
            "Whether new requests are welcome.",
            status=text("", ("ready", "not_ready")),
            reason=text("`ok`, or why not, for people."),
        ),
    }
