"""What one parsed event or answer of an engine says: content, finish, end, error, token counts.

Not here: finding the events in a stream (sse.py). Text is looked at for being there and never kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.model import Dialect, Usage

READ_MAX_BYTES = 8 * 1024 * 1024
"""Longer plain answers are not parsed for their usage: parsing holds the event loop, and an answer of this size is
embeddings or log probabilities, whose counts are not worth that."""

MAX_WORD_CHARS = 64
"""Longest error type or code that is kept: they are engine constants of a few letters, and end in logs and labels."""

_MAX_COUNT = 2**53
_NO_USAGE = Usage()
# Where counts are in `usage` of the answer and nowhere else, and how engines write it, behind the text.
_IN_USAGE = (Dialect.CHAT, Dialect.COMPLETIONS)
_USAGE = b',"usage":{'

_STATUS_BY_WORD = {
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "timeout_error": 504,
    "overloaded_error": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "BadRequestError": 400,
    "SERVICE_UNAVAILABLE": 503,
    "ServiceUnavailableError": 503,
    "api_error": 500,
    "server_error": 500,
    "InternalServerError": 500,
}
"""HTTP status for error words of engines that put no number beside them."""


@dataclass(frozen=True, slots=True)
class StreamError:
    """An error that an engine told inside its answer. Its message is not kept: it may quote the prompt.

    `status` is the HTTP status it stands for (400 to 599), None where the engine did not say.
    """

    status: int | None = None
    error_type: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What one event says. `finish` is the finish reason, None while it goes on; `ended` that no event follows; `made`
    the id of a response that the engine may store."""

    content: bool = False
    finish: str | None = None
    ended: bool = False
    usage: Usage = _NO_USAGE
    error: StreamError | None = None
    made: str | None = None


def read_event(value: dict[str, Any], dialect: Dialect) -> EventFacts:
    """The facts of one parsed event. Never raises, whatever is in it."""
    return _READERS.get(dialect, _read_choices)(value)


def read_answer(body: bytes, dialect: Dialect) -> Usage:
    """The token counts of a whole plain answer; zeros where it does not say, is no JSON or is over READ_MAX_BYTES.

    Answers to several prompts are summed. Of completions no more may be looked at than their usage and what follows:
    whether the rest is JSON is not told. Never raises.
    """
    if len(body) > READ_MAX_BYTES:
        return _NO_USAGE
    if dialect in _IN_USAGE and (at := body.rfind(_USAGE)) >= 0:
        # Most of an answer stands before its usage and need not be parsed. The comma before the mark is no backslash,
        # so the mark's first quotation mark opens or closes a string; behind one that is closed no word may follow, so
        # it opens one: the mark is a key and its value, not words in a text. Its object is the answer itself, and not
        # one inside it, where the rest closes one object more than it opens, which is where the rest is JSON once it
        # is opened with one brace. What is named twice counts as it is said last, and what is said last is in the rest.
        try:
            return read_usage(orjson.loads(b"{" + body[at + 1 :])["usage"])
        except ValueError:
            pass
    try:
        value = orjson.loads(body)
    except ValueError:
        return _NO_USAGE
    if isinstance(value, dict):
        if dialect in _IN_USAGE:
            return read_usage(value.get("usage"))
        several = value.get("predictions")
        if not isinstance(several, list):
            return _answer_usage(value, dialect)
        value = several
    return add(*(_answer_usage(one, dialect) for one in _dicts(value)))


def read_made(body: bytes) -> str | None:
    """The id of the response that a whole plain answer is; None where it is none, or over READ_MAX_BYTES."""
    try:
        value = orjson.loads(body) if len(body) <= READ_MAX_BYTES else None
    except ValueError:
        return None
    return _read_responses(value).made if isinstance(value, dict) else None


def add(*parts: Usage) -> Usage:
    """The sum of several counts."""
    return Usage(
        sum(part.prompt_tokens for part in parts),
        sum(part.completion_tokens for part in parts),
        sum(part.cached_tokens for part in parts),
    )


def _answer_usage(value: dict[str, Any], dialect: Dialect) -> Usage:
    """The counts alone: of a whole answer nothing else is asked."""
    if dialect is Dialect.PLAIN and "meta_info" in value:
        dialect = Dialect.GENERATE
    return read_event(value, dialect).usage


# ---------------------------------------------------------------- one reader for each dialect


def _read_choices(value: dict[str, Any]) -> EventFacts:
    """Chat and text completions, streamed or whole."""
    content, finish = False, None
    for choice in _dicts(value.get("choices")):
        content = content or _holds_text(choice.get("delta")) or bool(choice.get("text") or choice.get("token_ids"))
        finish = _word(choice.get("finish_reason")) or finish
    return EventFacts(content, finish, False, read_usage(value.get("usage")), read_error(value))


def _read_generate(value: dict[str, Any]) -> EventFacts:
    """The native route: counts and finish reason are in `meta_info` of every event."""
    meta = _dict(value.get("meta_info"))
    reason = meta.get("finish_reason")
    finish = _word(reason.get("type") if isinstance(reason, dict) else reason)
    error = read_error(value)
    if error is None and isinstance(reason, dict) and _status(reason.get("status_code")):
        error = StreamError(_status(reason.get("status_code")), _word(reason.get("err_type")))
    return EventFacts(bool(value.get("text") or value.get("output_ids")), finish, False, read_usage(meta), error)


def _read_messages(value: dict[str, Any]) -> EventFacts:
    """Anthropic messages, streamed or whole."""
    kind = value.get("type")
    delta = _dict(value.get("delta"))
    started = kind == "content_block_start" and _dict(value.get("content_block")).get("type") == "tool_use"
    usage = value.get("usage") or _dict(value.get("message")).get("usage")
    finish = _word(delta.get("stop_reason"))
    return EventFacts(
        started or _holds_text(delta), finish, kind == "message_stop", read_usage(usage), read_error(value)
    )


def _read_responses(value: dict[str, Any]) -> EventFacts:
    """OpenAI responses, streamed or whole."""
    kind = value.get("type")
    response = _dict(value.get("response"))
    ended = kind in ("response.completed", "response.failed", "response.incomplete")
    content = isinstance(kind, str) and kind.endswith(".delta") and bool(value.get("delta"))
    finish = _word(response.get("status")) if ended else None
    usage = read_usage(value.get("usage") or response.get("usage"))
    made = response.get("id") if response else value.get("id") if value.get("object") == "response" else None
    error = read_error(value) or read_error(response)
    return EventFacts(content, finish, ended, usage, error, made if isinstance(made, str) else None)


def _read_ollama(value: dict[str, Any]) -> EventFacts:
    """Ollama chat and generate, streamed or whole."""
    done = value.get("done") is True
    content = _holds_text(value.get("message")) or bool(value.get("response") or value.get("thinking"))
    finish = (_word(value.get("done_reason")) or "stop") if done else None
    return EventFacts(content, finish, done, read_usage(value), read_error(value))


_READERS: dict[Dialect, Callable[[dict[str, Any]], EventFacts]] = {
    Dialect.GENERATE: _read_generate,
    Dialect.MESSAGES: _read_messages,
    Dialect.RESPONSES: _read_responses,
    Dialect.OLLAMA: _read_ollama,
}


# ---------------------------------------------------------------- parts of all dialects

_CONTENT_FIELDS = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "text",
    "thinking",
    "partial_json",
    "function_call",
    "refusal",
    "audio",
)


_CACHED = ("cached_tokens", "cache_read_input_tokens")


def _holds_text(delta: object) -> bool:
    """Whether a delta carries something generated; a role alone is not content."""
    return isinstance(delta, dict) and any(delta.get(name) for name in _CONTENT_FIELDS)


def read_usage(counts: object) -> Usage:
    """Token counts under any of the names in use; zeros where there are none."""
    if not isinstance(counts, dict):
        return _NO_USAGE
    # Under the names of OpenAI, which most engines use, no search is made.
    prompt, completion = counts.get("prompt_tokens"), counts.get("completion_tokens")
    if type(prompt) is not int or not 0 < prompt < _MAX_COUNT:
        prompt = _count(counts, "input_tokens", "prompt_eval_count")
    if type(completion) is not int or not 0 < completion < _MAX_COUNT:
        completion = _count(counts, "output_tokens", "eval_count")
    details = counts.get("prompt_tokens_details") or counts.get("input_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, dict) else 0
    if not cached and not counts.keys().isdisjoint(_CACHED):
        cached = _count(counts, *_CACHED)
    return Usage(prompt, completion, cached)


def read_error(value: dict[str, Any]) -> StreamError | None:
    """The error that an event or answer tells, in any of the engines' shapes; None where it tells none."""
    error = value.get("error")
    if not error:
        if value.get("object") != "error" and value.get("type") != "error":
            return None
        error = value
    if not isinstance(error, dict):
        return StreamError()
    kind, code = error.get("type"), error.get("code")
    by_word = _STATUS_BY_WORD.get(str(kind)) or _STATUS_BY_WORD.get(str(code))
    return StreamError(_status(code) or by_word, _word(kind), _word(code))


def _status(value: object) -> int | None:
    """An HTTP error status given as a number or as digits."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if type(value) is int and 400 <= value <= 599 else None


def _word(value: object) -> str | None:
    """A short word of the engine's own; whatever else stands there is not carried on."""
    if type(value) is int and abs(value) < _MAX_COUNT:
        value = str(value)
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        return None
    return value[:MAX_WORD_CHARS]


def _count(counts: dict[str, Any], *names: str) -> int:
    for name in names:
        value = counts.get(name)
        if type(value) is int and 0 < value < _MAX_COUNT:
            return value
    return 0


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
