"""Counts the sequences that one request body will occupy on an engine.

Not here: parsing the body and everything else that is read from it (openai.py).
"""

from typing import Any

MAX_CHOICES = 1024
"""The largest `n` that is believed: above what any engine runs at once, so that one absurd number, which the engine
answers with 400 anyway, cannot fill the count."""

MAX_DIGITS = 12
"""A number written in more characters than this is none that means anything here."""

MAX_WEIGHT = 65_536
"""The largest weight of one request, prompts x n: ten times the largest running batch of any engine; more would only
make the counts unreadable, fewer could be a real batch."""

MAX_LOOKED_AT = 1024
"""The sampling parameters that are looked at, of a list of them: one for each prompt, and no engine runs more prompts
at once. A body of 2 MiB can hold 700,000, and to look at them all would hold everybody up for a second."""

_INPUTS = ("input", "text", "input_ids", "inputs", "texts", "images")
_SCORED = ("items", "text_1", "text_2", "queries", "documents", "data_1", "data_2")
_GENERATED = ("text", "input_ids", "input_embeds")
_ASKED = ("questions",)

_LISTS: dict[str, tuple[str, ...]] = {
    "/v1/completions": ("prompt",),
    "/completions": ("prompt",),
    "/completion": ("prompt",),
    "/v1/chat/completions/batch": ("messages",),
    "/generate": _GENERATED,
    "/vertex_generate": ("instances",),
    "/v1/embeddings": _INPUTS,
    "/embeddings": _INPUTS,
    "/embedding": ("input", "content"),
    "/v2/embed": _INPUTS,
    "/pooling": _INPUTS,
    "/classify": _INPUTS,
    "/v1/classify": _INPUTS,
    "/encode": _INPUTS,
    "/score": _SCORED,
    "/v1/score": _SCORED,
    "/rerank": _SCORED,
    "/v1/rerank": _SCORED,
    "/reranking": _SCORED,
    "/v1/reranking": _SCORED,
    "/v2/rerank": _SCORED,
    "/generative_scoring": _SCORED,
    "/v1/decisions": _ASKED,
    "/v1/systemone": _ASKED,
}
"""By route template: the fields of which the longest says how many prompts there are."""

_CHOICES_IN_BODY = frozenset(
    {
        *("/v1/chat/completions", "/invocations", "/v1/completions", "/v1/chat/completions/batch"),
        *("/chat/completions", "/completions", "/completion", "/infill"),
    }
)


def weighing(template: str) -> frozenset[str]:
    """The fields that `weigh` looks at: a body without any of them weighs 1."""
    return frozenset({"n", "sampling_params", "parameters", *_LISTS.get(template, ())})


def weigh(template: str, body: dict[str, Any]) -> int:
    """Sequences of one request, 1 to MAX_WEIGHT: prompts x n. `body` is the parsed object; never raises."""
    prompts = 1
    for field in _LISTS.get(template, ()):
        prompts = max(prompts, _prompts(field, body.get(field)))
    weight = prompts * _choices(template, body)
    return weight if weight < MAX_WEIGHT else MAX_WEIGHT


def _prompts(field: str, value: object) -> int:
    """How many prompts one field holds: a flat list of numbers is one prompt of token ids."""
    if field == "questions" and isinstance(value, dict):
        return max(len(value), 1)
    if isinstance(value, dict):
        value = value.get("content")  # multimodal documents: {"content": [...]}
    if not isinstance(value, list) or not value:
        return 1
    first = value[0]
    if field == "input_embeds":  # one prompt is already a list of vectors
        first = first[0] if isinstance(first, list) and first else 0
    return 1 if isinstance(first, int | float) else len(value)


def _choices(template: str, body: dict[str, Any]) -> int:
    """Answers asked for each prompt."""
    if template in _CHOICES_IN_BODY:
        return _believed(body.get("n"))
    return max((_believed(params.get("n")) for params in sampling_params(body)), default=1)


def sampling_params(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The sampling parameters of a native body, which may give one object, one for each prompt, or hold them deeper:
    the first MAX_LOOKED_AT of them."""
    value = body.get("sampling_params")
    parameters = body.get("parameters")
    if value is None and isinstance(parameters, dict):
        value = parameters.get("sampling_params")
    several = value[:MAX_LOOKED_AT] if isinstance(value, list) else [value]
    return [params for params in several if isinstance(params, dict)]


def _believed(n: object) -> int:
    """`n` where it is a whole number of at least 1, also as 4.0 or "4", which engines take for 4; true and false are
    not numbers here."""
    if n is None:
        return 1
    if isinstance(n, str) and len(n) < MAX_DIGITS and n.strip().isdecimal():
        n = int(n)
    if isinstance(n, float) and n.is_integer():
        n = int(n)
    if type(n) is int and n >= 1:
        return min(n, MAX_CHOICES)
    return 1
