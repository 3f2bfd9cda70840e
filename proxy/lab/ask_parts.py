"""The parts of request bodies that several dialects share: sizes, prompts, tools. Whole requests are in asks.py."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.lab.invent import invent
from proxy.lab.prefix_cache import BLOCK_TOKENS
from proxy.lab.text import BYTES_PER_TOKEN, count_tokens

# What an answer may grow to when the client does not say: short enough for a demonstration.
DEFAULT_MAX_TOKENS = 256

# The error type of a body that does not fit the schema.
SCHEMA_ERROR = "Bad Request"

Body = Mapping[str, Any]


class BadAskError(Exception):
    """A request that the engine refuses with `status`. `kind` is the error's type; `message` quotes nothing of the body
    but ids."""

    def __init__(self, message: str, kind: str = "BadRequestError", status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.status = status


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its size in tokens, the fingerprints of its 512-token prefixes, and one of it as a whole."""

    tokens: int
    blocks: tuple[int, ...]
    fingerprint: int


def text_prompt(text: str) -> Prompt:
    """A prompt from its text."""
    raw = text.encode("utf-8", "surrogatepass")
    return _prompt(raw, BLOCK_TOKENS * BYTES_PER_TOKEN, count_tokens(text))


def id_prompt(ids: list[int]) -> Prompt:
    """A prompt from token ids."""
    # Four bytes an id keep the blocks at 512 tokens.
    raw = b"".join((number & 0xFFFFFFFF).to_bytes(4, "little") for number in ids)
    return _prompt(raw, BLOCK_TOKENS * 4, len(ids))


def chat_text(messages: Any) -> str:
    """The text that a chat template would make: what counts as prompt. Raises `BadAskError` when it is no chat."""
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise BadAskError(
            schema_message("list_type", "('body', 'messages')", "Input should be a list of messages"), SCHEMA_ERROR
        )
    return "".join(f"<|{one.get('role', 'user')}|>\n{_content(one)}\n" for one in messages) + "<|assistant|>\n"


def max_tokens_of(body: Body, *names: str, default: int = DEFAULT_MAX_TOKENS) -> int:
    """The first of the named fields that is there, at least 1. Raises `BadAskError`."""
    for name in names:
        if body.get(name) is not None:
            value = body[name]
            if not isinstance(value, int) or isinstance(value, bool):
                where = f"('body', '{name}')"
                raise BadAskError(schema_message("int_type", where, "Input should be a valid integer"), SCHEMA_ERROR)
            if value < 0:
                raise BadAskError(f"max_new_tokens must be at least 0, got {value}.")
            return max(1, value)
    return default


def count_of(body: Body, name: str, default: int, least: int = 0) -> int:
    """A whole number of at least `least`. Raises `BadAskError`."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        where = f"('body', '{name}')"
        raise BadAskError(
            schema_message("greater_than_equal", where, f"Input should be at least {least}"), SCHEMA_ERROR
        )
    return value


def prompts_of(given: Any) -> tuple[tuple[Prompt, ...], bool]:
    """The prompts, and whether they came as a list: a flat list of ids is one prompt. Raises `BadAskError`."""
    if isinstance(given, str):
        return (text_prompt(given),), False
    if isinstance(given, list) and given:
        if all(isinstance(one, int) for one in given):
            return (id_prompt(given),), False
        if all(isinstance(one, str) for one in given):
            return tuple(text_prompt(one) for one in given), True
        if all(isinstance(one, list) and one and all(isinstance(i, int) for i in one) for one in given):
            return tuple(id_prompt(one) for one in given), True
    raise BadAskError(
        schema_message("value_error", "('body', 'prompt')", "Input should be text or token ids"), SCHEMA_ERROR
    )


def required(body: Body, name: str) -> Any:
    """A field that must be there and not null. Raises `BadAskError`."""
    if body.get(name) is None:
        raise BadAskError(schema_message("missing", f"('body', '{name}')", "Field required"), SCHEMA_ERROR)
    return body[name]


def objects_of(value: Any) -> list[Any]:
    """The objects in a list, and nothing else of it."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _content(message: Body) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "<|part|>")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def tool_text(body: Body) -> str:
    """What tool definitions add to the prompt."""
    tools = body.get("tools")
    return f"<|tools|>\n{orjson.dumps(tools).decode()}\n" if tools else ""


def forced_tool(tools: Any, choice: Any) -> tuple[str, Any] | None:
    """Name and schema of the tool that must be called: the named one, or the first where any is required.

    None where the model may choose. Raises `BadAskError` for a name that no tool has.
    """
    named = choice["function"].get("name") if isinstance(choice, dict) and "function" in choice else None
    if named is None and choice != "required":
        return None
    for tool in objects_of(tools):
        function = tool.get("function") or {}
        if named is None or function.get("name") == named:
            return str(function.get("name")), function.get("parameters")
    raise BadAskError("tool_choice names a tool that is not in tools")


def arguments(schema: Any) -> str:
    """A JSON document that fits a schema, as text."""
    return orjson.dumps(invent(schema or {"type": "object"})).decode()


def document_of(response_format: Any) -> str | None:
    """The JSON text that a `response_format` asks for; None for free text."""
    if not isinstance(response_format, dict) or response_format.get("type") in (None, "text"):
        return None
    return arguments((response_format.get("json_schema") or {}).get("schema"))


def _prompt(raw: bytes, block_bytes: int, tokens: int) -> Prompt:
    blocks = []
    chain = 0
    full = len(raw) // block_bytes * block_bytes
    for start in range(0, full, block_bytes):
        # A running checksum stands for the whole prefix, not for the block alone.
        chain = zlib.crc32(raw[start : start + block_bytes], chain)
        blocks.append(chain)
    return Prompt(max(1, tokens), tuple(blocks), zlib.crc32(raw[full:], chain))


def schema_message(kind: str, where: str, text: str) -> str:
    """The message of a schema error, in the form of the real engine, without the input that it would quote."""
    return f"[{{'type': '{kind}', 'loc': {where}, 'msg': '{text}', 'input': {{}}}}]"
