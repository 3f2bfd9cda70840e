"""Says our own errors in the client's dialect: as a whole body, and as an event in a stream that has begun.

Not here: errors of the engines, which pass as they are. Messages are the error's own, which never quote a request.
"""

from typing import Any

import orjson

from proxy.errors import CrossoverError
from proxy.model import Dialect

CONTENT_TYPE = "application/json"
"""Media type of every error body."""

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(error: CrossoverError, dialect: Dialect) -> bytes:
    """The JSON body that goes with `error.status`: Anthropic's shape on messages, Ollama's on Ollama, else OpenAI's."""
    if dialect is Dialect.MESSAGES:
        return orjson.dumps(_anthropic(error))
    if dialect is Dialect.OLLAMA:
        return orjson.dumps({"error": _message(error)})
    return orjson.dumps({"error": _openai(error, error.code)})


def error_event(error: CrossoverError, dialect: Dialect, *, sequence_number: int = 0) -> bytes:
    """One whole event that tells a client in mid-stream that no more will come; empty where the dialect has no events.

    It is to be written at an event boundary, and no end mark follows it. `sequence_number` is for responses, whose
    events are numbered from 0: the number of events that went before.
    """
    if dialect is Dialect.PLAIN:
        return b""
    if dialect is Dialect.OLLAMA:
        return error_body(error, dialect) + b"\n"
    if dialect is Dialect.MESSAGES:
        return b"event: error\ndata: " + error_body(error, dialect) + b"\n\n"
    if dialect is Dialect.RESPONSES:
        return b"event: error\ndata: " + orjson.dumps(_responses(error, sequence_number)) + b"\n\n"
    # In a stream there is no status line: the number goes where the engines put it, and our word beside it.
    told = _openai(error, error.status) | {"reason": error.code}
    return b"data: " + orjson.dumps({"error": told}) + b"\n\n"


def _openai(error: CrossoverError, code: str | int) -> dict[str, Any]:
    return {"message": _message(error), "type": error.error_type, "param": None, "code": code}


def _anthropic(error: CrossoverError) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "api_error"
    kind = _ANTHROPIC_TYPES.get(error.status, kind)
    return {"type": "error", "error": {"type": kind, "message": _message(error)}}


def _responses(error: CrossoverError, sequence_number: int) -> dict[str, Any]:
    return {
        "type": "error",
        "code": error.code,
        "message": _message(error),
        "param": None,
        "sequence_number": sequence_number,
    }


def _message(error: CrossoverError) -> str:
    """The message as text that JSON can carry: stray surrogates, as undecodable paths bring them, become marks."""
    return error.message.encode("utf-8", "replace").decode()
