"""What the proxy itself says no with: every error of the tree by its status, in the three shapes that clients know.

The shapes are made in protocol/dialects.py. Not here: errors of the engines, which pass as they are.
"""

from collections.abc import Iterator

from proxy.errors import ConfigError, CrossoverError, MethodNotAllowed
from proxy.model import Dialect
from proxy.openapi.words import Schema, answer, header, maybe, record, ref, text

# What an engine may answer with as well, in a shape of its own.
SHARED = frozenset({400, 403, 404, 413, 422, 429, 500, 502, 503, 504})
_OPENAI = "OpenAIError"
_SHAPES = {Dialect.MESSAGES: "AnthropicError", Dialect.OLLAMA: "OllamaError"}
_ALL = (_OPENAI, *_SHAPES.values())
# First digits of the statuses that engines choose as they like.
_ENGINES_OWN = (3, 4, 5)


def kinds() -> tuple[type[CrossoverError], ...]:
    """The errors that a client may be told, each once, in the order of their statuses."""
    return tuple(sorted(_below(CrossoverError), key=lambda kind: (kind.status, kind.code)))


def shapes() -> Schema:
    """The schemas of error bodies, by name."""
    found = kinds()
    told = record(
        "What went wrong.",
        message=text("What happened and what to do; never a word of the request."),
        type=text("Whose side it was, as OpenAI groups errors.", dict.fromkeys(kind.error_type for kind in found)),
        param=maybe(text("Always null.")),
        code=text("The one word to act on.", dict.fromkeys(kind.code for kind in found)),
    )
    anthropic = record(
        "What went wrong.", type=text("Anthropic's word for the status."), message=text("What happened and what to do.")
    )
    return {
        "OpenAIError": record("An error of the proxy in OpenAI's shape.", error=told),
        "AnthropicError": record(
            "An error of the proxy in Anthropic's shape, on its messages.",
            type=text("", ("error",)),
            error=anthropic,
        ),
        "OllamaError": record("An error of the proxy in Ollama's shape.", error=text("What happened and what to do.")),
        "EngineError": {"type": "object", "description": "An engine's own error, byte for byte."},
    }


def answers() -> Schema:
    """Every refusal, by the name that `named` refers to it with."""
    by_status: dict[int, list[type[CrossoverError]]] = {}
    for kind in kinds():
        if kind is not MethodNotAllowed:  # what other methods are told
            by_status.setdefault(kind.status, []).append(kind)
    ours = {f"{shape}{status}": _answer(status, found, shape) for status, found in by_status.items() for shape in _ALL}
    return ours | {f"Engine{digit}XX": answer("An engine's own answer, as it came.") for digit in _ENGINES_OWN}


def named(dialect: Dialect, *, locked: bool) -> Schema:
    """By status: what a forwarded route of this dialect may be refused with. 401 is ours where the port is `locked`."""
    shape = _SHAPES.get(dialect, _OPENAI)
    statuses = sorted({kind.status for kind in kinds() if kind is not MethodNotAllowed})
    told = {str(status): f"{shape}{status}" for status in statuses if status != 401 or locked}
    told |= {f"{digit}XX": f"Engine{digit}XX" for digit in _ENGINES_OWN}
    return {status: {"$ref": f"#/components/responses/{name}"} for status, name in told.items()}


def _answer(status: int, found: list[type[CrossoverError]], shape: str) -> Schema:
    said = "\n".join(f"- `{kind.code}`: {_first_line(kind)}" for kind in found)
    waits = any(kind.retry_after_s is not None for kind in found)
    headers = {"Retry-After": header("Seconds to wait before the next try.", required=False)} if waits else {}
    if status in SHARED:
        either = {"anyOf": [ref(shape), ref("EngineError")]}
        return answer(f"Of an engine, or of the proxy:\n\n{said}", either, headers)
    return answer(f"Of the proxy:\n\n{said}", ref(shape), headers)


def _first_line(kind: type[CrossoverError]) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _below(kind: type[CrossoverError]) -> Iterator[type[CrossoverError]]:
    """A class and all under it, but for the configuration's, which no client is told."""
    if kind is ConfigError:
        return
    yield kind
    for under in kind.__subclasses__():
        yield from _below(under)
