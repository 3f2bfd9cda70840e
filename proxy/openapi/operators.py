"""The operators' port as an OpenAPI document: of the paths that its router serves, what each asks and answers.

What the answers hold is in seen.py. A path without words here is a mistake that a test finds.
"""

from collections.abc import Iterable

from proxy.model import Role
from proxy.openapi import seen
from proxy.openapi.words import JSON, Schema, answer, document, flag, maybe, record, ref, text

Served = Iterable[tuple[str, str]]

_ABOUT = """\
What an operator may see and do. Where `admin.token` is set every path but /health asks for it. Times are seconds,
instants unix seconds, counts sequences. An error is `{"error": SENTENCE}`, and the sentence tells the mend. A
method that is not here is answered 405 with `Allow`, and what is no HTTP 400.
"""
_KEYS = {
    "token": {"type": "http", "scheme": "bearer", "description": "The token of `admin.token`."},
    "password": {"type": "http", "scheme": "basic", "description": "The same token as the password of any user."},
}
_ROLE = text("A role.", Role)
_BARE = {status: {"description": "As to GET, without a body."} for status in ("200", "default")}
_YAML, _EVENTS, _PAGE, _TEXT = "application/yaml", "text/event-stream", "text/html", "text/plain"


def operators_document(served: Served, *, locked: bool) -> Schema:
    """What the port with these (method, path) pairs serves. `locked`: a token is asked for."""
    paths: Schema = {}
    for method, path in sorted(served, key=lambda each: (each[1], each[0])):
        if (described := _OPERATIONS.get((method, path))) is not None:
            operation = {**described, "responses": described["responses"] | _refused(method, path, locked=locked)}
            operation |= {"security": []} if path == "/health" else {}
            paths.setdefault(path, {})[method.lower()] = operation
            if method == "GET" and path != "/stream":
                paths[path]["head"] = operation | {"responses": _BARE}
    return document("Crossover, the operators' port", _ABOUT, paths, seen.schemas(), _KEYS, locked=locked)


def described() -> frozenset[tuple[str, str]]:
    """The (method, path) pairs that there are words for."""
    return frozenset(_OPERATIONS)


def _refused(method: str, path: str, *, locked: bool) -> Schema:
    told = {"500": answer("The proxy failed on this; its log has the place.", ref("Error"))}
    if locked and path != "/health":
        told["401"] = answer("The token is missing or wrong.", ref("Error"))
    if path != "/health":
        told["403"] = answer("A page of another site asks through a browser.", ref("Error"))
    if not locked and path not in ("/health", "/metrics"):
        told["421"] = answer("It is asked by a name that may be anybody's; the error tells the mend.", ref("Error"))
    return told


def _get(
    summary: str,
    content: Schema,
    *,
    kind: str = JSON,
    parameters: Iterable[Schema] = (),
    refused: Schema | None = None,
    page: bool = False,
) -> Schema:
    asked = list(parameters)
    queried = any(each["in"] == "query" for each in asked)
    wrong = {"400": answer("A parameter is not what it should be.", ref("Error"))} if queried else {}
    told = {"200": answer(summary, content, kind=kind)} | wrong | (refused or {})
    if page:
        told["200"]["content"][_PAGE] = {}
    return {"summary": summary, "parameters": asked, "responses": told}


def _post(summary: str, content: Schema, *, body: Schema | None = None, refused: Schema | None = None) -> Schema:
    told = {"200": answer(summary, content)} | (refused or {})
    if body is None:
        return {"summary": summary, "responses": told}
    told["400"] = answer("The body is not what it should be; the error shows the form.", ref("Error"))
    told["413"] = answer("The body is over 1 MiB.", ref("Error"))
    strict = body | {"additionalProperties": False}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {JSON: {"schema": strict}}},
        "responses": told,
    }


def _asked(name: str, meaning: str, kind: str = "integer", **bounds: int) -> Schema:
    schema = {"type": kind, **bounds}
    return {"name": name, "in": "query", "required": False, "description": meaning, "schema": schema}


def _named(name: str, meaning: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": meaning,
        "schema": {"type": "string", "minLength": 1},
    }


_UNKNOWN: Schema = {"404": answer("No request of this id is remembered.", ref("Error"))}
_PIN = record("Where everything is to go.", role=maybe(_ROLE))
_DRAIN = record("Which backend.", absent=("draining",), role=_ROLE, draining=flag("False takes it back into service."))

_OPERATIONS: dict[tuple[str, str], Schema] = {
    ("GET", "/"): _get("What this port serves; to a browser the status page.", ref("Index"), page=True),
    ("GET", "/health"): _get("Whether the process runs; asks for no token.", ref("Alive")),
    ("GET", "/metrics"): _get(
        "Metrics for Prometheus; docs/metrics.md says what each means.", {"type": "string"}, kind=_TEXT
    ),
    ("GET", "/status"): _get("Everything that is so at this moment.", ref("Status")),
    ("GET", "/decisions"): _get(
        "The latest decisions, newest first; with `request_id` all of that request.",
        ref("Decisions"),
        parameters=(
            _asked("limit", "How many at most, 100 unless told.", minimum=1, maximum=1000),
            _asked("request_id", "The request to tell of, as its answer's x-request-id has it.", "string"),
        ),
        refused=_UNKNOWN,
    ),
    ("GET", "/explain/{request_id}"): _get(
        "Why one request went where it went, in sentences.",
        ref("Explanation"),
        parameters=(_named("request_id", "As the answer's x-request-id has it."),),
        refused=_UNKNOWN,
    ),
    ("GET", "/failures"): _get(
        "The latest requests that failed, newest first; /explain tells why of each.",
        ref("Failures"),
        parameters=(_asked("limit", "How many at most, 100 unless told.", minimum=1, maximum=1000),),
    ),
    ("GET", "/history"): _get(
        "The last minutes, a sample a second, oldest first.",
        ref("History"),
        parameters=(
            _asked(
                "seconds", "How far back: above 0, 900 unless told; half an hour is kept.", "number", exclusiveMinimum=0
            ),
        ),
    ),
    ("GET", "/journal"): _get(
        "What has changed, newest first.",
        ref("Journal"),
        parameters=(_asked("limit", "How many at most, 200 unless told.", minimum=1, maximum=500),),
    ),
    ("GET", "/stream"): _get(
        "Samples, journal entries, decisions and state as they come: events `sample`, `journal`, `decisions`, `state`.",
        {"type": "string"},
        kind=_EVENTS,
        refused={"503": answer("As many read it as may.", ref("Error"))},
    ),
    ("GET", "/web/{name}"): _get(
        "A file of the status page.",
        {},
        kind="*/*",
        parameters=(_named("name", "Its path."),),
        refused={"304": answer("It is as it was."), "404": answer("There is no such file.", ref("Error"))},
    ),
    ("GET", "/config/differences"): _get(
        "The configuration in force beside the defaults, and beside its file as it is now.", ref("Differences")
    ),
    ("GET", "/config"): _get("The configuration in force, secrets masked.", {"type": "object"}, kind=_YAML),
    ("GET", "/curves"): _get("The measured speeds, their verdict, and what was learned since.", ref("Curves")),
    ("GET", "/openapi.json"): _get("This document.", {"type": "object"}),
    ("GET", "/openapi/clients.json"): _get("The document of the clients' port.", {"type": "object"}),
    ("POST", "/reload"): _post(
        "The configuration is read again and taken over whole.",
        ref("Reloaded"),
        refused={"422": answer("The configuration is not right and nothing has changed.", ref("Refused"))},
    ),
    ("POST", "/pin"): _post(
        "Send everything to one role, or unpin.", record("In force.", pinned=maybe(_ROLE)), body=_PIN
    ),
    ("POST", "/drain"): _post(
        "Send nothing new to a backend, or again.",
        record("In force.", role=_ROLE, draining=flag("Whether it is kept from new requests.")),
        body=_DRAIN,
    ),
}
"""What each path asks and answers, by method and path."""
