"""Bodies of refused requests, in the shape each route of the real engine has. Streams refuse in answers.py."""

import orjson

from proxy.model import Dialect

# What a refusal is called on the flat routes when the queue is full: the status as text.
QUEUE_FULL = "The request queue is full."


def body(dialect: Dialect, status: int, message: str, kind: str) -> bytes:
    """The JSON body of a refusal with that HTTP status; `kind` is the error's type where the shape has one."""
    value: object
    match dialect:
        case Dialect.GENERATE:
            value = {"error": {"message": message}}
        case Dialect.MESSAGES:
            value = {"type": "error", "error": {"type": _anthropic(status), "message": message}}
        case Dialect.RESPONSES:
            value = nested(message, kind, status)
        case Dialect.OLLAMA:
            value = {"error": message}
        case _:
            value = flat(message, kind, status)
    return orjson.dumps(value)


def flat(message: str, kind: str, status: int) -> dict[str, object]:
    """The shape of chat, completions and embeddings."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def nested(message: str, kind: str, status: int) -> dict[str, object]:
    """OpenAI's own shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _anthropic(status: int) -> str:
    if status == 503:
        return "overloaded_error"
    return "invalid_request_error" if status < 500 else "api_error"
