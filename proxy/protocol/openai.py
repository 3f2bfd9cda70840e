"""Reads from a copy of a request body what routing may know of it; the body itself goes upstream untouched.

Not here: counting sequences (weights.py), how prompts begin (prefixes.py), and any judgement of the body: what is wrong
with it, the engine says.
"""

import gc
import json
from typing import Any

import orjson

from proxy.model import Dialect, Role, Traits
from proxy.protocol.allowlist import ROUTES, Route, RouteClass
from proxy.protocol.prefixes import BLOCK_BYTES, read_conversation, read_prefix, read_state
from proxy.protocol.weights import sampling_params, weigh, weighing

PEEK_MAX_BYTES = 2 * 1024 * 1024
"""Bodies above it are not parsed and weigh 1: parsing holds the event loop (2 MiB of text is two milliseconds, 2 MiB of
nothing but brackets some seventy), and what is larger is one prompt with images in nearly every case. Lower would
miscount long batches of token ids, higher would let one request hold up everybody's streams."""

LENIENT_MAX_BYTES = 256 * 1024
"""What orjson refuses and engines may read all the same (NaN, a lone surrogate, a huge number) is read by the standard
library, which is ten times slower: up to here."""

MAX_MODEL_CHARS = 256
"""Longer model names are not carried along: no engine serves one, and names end in logs."""

MAX_BELIEVED_TOKENS = 1_000_000
"""A higher limit is none: longer than any engine's context, and JSON may hold numbers that no float does."""

COLLECTED_BYTES = 16 * 1024
"""A shorter body is parsed with the garbage collection on, which it can set off a dozen times at most."""

_JSON, _OLLAMA, _DECODE = b"application/json", Dialect.OLLAMA, RouteClass.DECODE
_NO_PREFIX: tuple[int, ...] = ()
# Chat, completions and messages; responses; llama.cpp's own. The newer name goes before the older one, as engines have
# it.
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict")
_GRAMMARS = (
    "regex",
    "ebnf",
    "grammar",
    "json_schema",
    "structural_tag",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_json_object",
)
_BINDING = frozenset({*_GRAMMARS, *("text", "response_format", "tool_choice", "sampling_params", "parameters")})
# By route template: the fields that tell anything but the model and the stream.
_TELLING = {
    row.template: weighing(row.template) | _BINDING | {"format", "session_params", "previous_response_id"}
    for rows in ROUTES.values()
    for row in rows
}


def read_traits(
    route: Route,
    body: bytes,
    content_type: bytes,
    content_encoding: bytes,
    asked: Role | None,
    *,
    prefixed: bool = False,
    key: bytes = b"",
) -> Traits:
    """The traits of one request. Never raises: a body that cannot be read weighs 1 and the engine answers for it.

    `content_type` and `content_encoding` are the fields' values (b"" where absent); `asked` is passed through. Only
    true asks for a stream, but of Ollama, which streams unless told not to. With `prefixed` it is read how the prompt
    begins and which conversation it belongs to, where it may have a block; `key` is what a header calls that.
    """
    value = _peek(body, content_type, content_encoding)
    model, stream = value.get("model"), value.get("stream")
    weight, constrained, session, prefix, conversation = 1, False, False, _NO_PREFIX, 0
    # Most bodies have none of the rest, and are told apart by one look.
    if not value.keys().isdisjoint(_TELLING[route.template]):
        weight = weigh(route.template, value)
        constrained = _constrained(value) or (route.dialect is _OLLAMA and bool(value.get("format")))
        session = value.get("session_params") is not None or value.get("previous_response_id") is not None
    if prefixed and len(body) >= BLOCK_BYTES:
        prefix = read_prefix(value)
        conversation = read_conversation(value, key, prefix)
    return Traits(
        weight,
        stream is True or (stream is not False and route.dialect is _OLLAMA and route.kind is _DECODE),
        model if isinstance(model, str) and len(model) <= MAX_MODEL_CHARS else None,
        len(body),
        constrained,
        session,
        asked,
        _max_tokens(value),
        prefix,
        conversation,
        read_state(value) if session else 0,
    )


def _max_tokens(body: dict[str, Any]) -> int | None:
    """The most that one sequence may generate; None without a limit that is one."""
    for name in _LIMITS:
        if (told := body.get(name)) is not None:
            return _limit(told)
    if "sampling_params" in body or "parameters" in body:
        each = [_limit(params.get("max_new_tokens")) for params in sampling_params(body)]
        return None if None in each else max((limit for limit in each if limit is not None), default=None)
    options = body.get("options")
    return _limit(options.get("num_predict")) if isinstance(options, dict) else None


def _limit(told: object) -> int | None:
    """A limit as engines take it; an odd one says nothing."""
    return min(told, MAX_BELIEVED_TOKENS) if type(told) is int and told > 0 else None


def _peek(body: bytes, content_type: bytes, content_encoding: bytes) -> dict[str, Any]:
    """The parsed object, empty where the body is too long, coded, not JSON or not an object."""
    if len(body) > PEEK_MAX_BYTES:
        return {}
    if content_encoding and content_encoding.strip().lower() not in (b"", b"identity"):
        return {}
    if content_type and content_type != _JSON and b"json" not in content_type.lower():
        return {}
    try:
        value = orjson.loads(body) if len(body) <= COLLECTED_BYTES else _parse_long(body)
    except ValueError:
        value = _parse_leniently(body)
    return value if isinstance(value, dict) else {}


def _parse_long(body: bytes) -> object:
    """Collecting garbage while a million brackets become objects would hold the loop four times as long as the
    parsing. Raises ValueError where a body is no JSON."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        return orjson.loads(body)
    finally:
        if collecting:
            gc.enable()


def _parse_leniently(body: bytes) -> object:
    if len(body) > LENIENT_MAX_BYTES:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _constrained(body: dict[str, Any]) -> bool:
    """Whether the output is bound by a grammar, a schema or a tool that must be called."""
    if body.keys().isdisjoint(_BINDING):
        return False
    text = body.get("text")
    return (
        any(_holds_grammar(place) for place in (body, *sampling_params(body)))
        or _formatted(body.get("response_format"))
        or (isinstance(text, dict) and _formatted(text.get("format")))
        or _tool_required(body.get("tool_choice"))
    )


def _holds_grammar(place: dict[str, Any]) -> bool:
    return any(place.get(name) for name in _GRAMMARS)


def _formatted(value: object) -> bool:
    """`response_format` of chat and `text.format` of responses: anything but plain text binds the output."""
    if not isinstance(value, dict):
        return False
    return value.get("type") not in (None, "text")


def _tool_required(choice: object) -> bool:
    """`tool_choice`: the word required, or an object that names a tool or demands any."""
    if isinstance(choice, dict):
        mode = choice.get("mode", choice.get("type"))
        return mode not in (None, "auto", "none")
    return choice in ("required", "any")
