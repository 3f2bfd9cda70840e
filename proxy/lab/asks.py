"""What one generation request asks of an embedded engine, read from its body. Answers are not here.

Each dialect has a reader that takes the decoded body; whatever a real engine would refuse raises `BadAskError`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.lab.ask_parts import (
    DEFAULT_MAX_TOKENS,
    SCHEMA_ERROR,
    BadAskError,
    Body,
    Prompt,
    arguments,
    chat_text,
    count_of,
    document_of,
    forced_tool,
    max_tokens_of,
    objects_of,
    prompts_of,
    required,
    schema_message,
    text_prompt,
    tool_text,
)
from proxy.model import Dialect

# SGLang's native route has a default of its own.
DEFAULT_MAX_NEW_TOKENS = 128
# As many choices as OpenAI gives. Each is a sequence with a text of its own here: without a limit one request could ask
# for a billion of them.
MAX_CHOICES = 128


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, understood. It makes `len(prompts) * n` sequences.

    `fixed` is text that the answer must consist of (arguments of the tool `tool`, or a document of a schema), None
    for free text. `batched` says that prompts came as a list. `usage` asks for a usage chunk at the end of a stream,
    `continuous_usage` for usage in every chunk. `store` keeps the answer in the engine, `previous` is the id of the one
    kept there that this goes on with, and `said` the conversation as text where it may be gone on with.
    """

    dialect: Dialect
    model: str
    prompts: tuple[Prompt, ...]
    n: int = 1
    stream: bool = False
    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int = 0
    usage: bool = False
    continuous_usage: bool = False
    rid: str | None = None
    batched: bool = False
    tool: str | None = None
    fixed: str | None = None
    said: str = ""
    store: bool = False
    previous: str | None = None


def read_ask(dialect: Dialect, body: bytes, content_type: str, model: str, context_length: int) -> Ask:
    """Understand a request body. Raises `BadAskError`.

    `model` is the engine's own name, used where the body names none; `context_length` bounds prompt and output.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise BadAskError(
            schema_message("value_error", "('header', 'content-type')", "must be application/json"), SCHEMA_ERROR
        )
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"('body', {error.pos})"
        raise BadAskError(schema_message("json_invalid", where, "JSON decode error"), SCHEMA_ERROR) from error
    if not isinstance(decoded, dict):
        raise BadAskError(
            schema_message("model_attributes_type", "('body',)", "Input should be an object"), SCHEMA_ERROR
        )
    try:
        ask = _READERS[dialect](decoded, model)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadAskError(schema_message("value_error", "('body',)", "Input has a wrong type"), SCHEMA_ERROR) from error
    check_sizes(ask, context_length)
    return ask


def _chat(body: Body, model: str) -> Ask:
    text = tool_text(body) + chat_text(required(body, "messages"))
    tool = forced_tool(body.get("tools"), body.get("tool_choice"))
    fixed = arguments(tool[1]) if tool else document_of(body.get("response_format"))
    return Ask(
        dialect=Dialect.CHAT,
        prompts=(text_prompt(text),),
        max_tokens=max_tokens_of(body, "max_completion_tokens", "max_tokens"),
        tool=tool[0] if tool else None,
        fixed=fixed,
        **_openai(body, model),
    )


def _completions(body: Body, model: str) -> Ask:
    prompts, batched = prompts_of(required(body, "prompt"))
    return Ask(
        dialect=Dialect.COMPLETIONS,
        prompts=prompts,
        batched=batched,
        max_tokens=max_tokens_of(body, "max_tokens"),
        **_openai(body, model),
    )


def _generate(body: Body, model: str) -> Ask:
    given = body.get("text") if body.get("text") is not None else body.get("input_ids")
    if given is None:
        raise BadAskError("Either text, input_ids or input_embeds should be provided.")
    prompts, batched = prompts_of(given)
    sampling = body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise BadAskError("sampling_params should be an object")
    return Ask(
        dialect=Dialect.GENERATE,
        model=model,
        prompts=prompts,
        batched=batched,
        n=count_of(sampling, "n", 1, least=1),
        stream=bool(body.get("stream")),
        max_tokens=max_tokens_of(sampling, "max_new_tokens", default=DEFAULT_MAX_NEW_TOKENS),
        min_tokens=count_of(sampling, "min_new_tokens", 0),
        ignore_eos=bool(sampling.get("ignore_eos")),
        rid=body.get("rid") if isinstance(body.get("rid"), str) else None,
    )


def _messages(body: Body, model: str) -> Ask:
    system = {"role": "system", "content": body.get("system") or ""}
    text = tool_text(body) + chat_text([system, *objects_of(required(body, "messages"))])
    required(body, "max_tokens")
    choice = body.get("tool_choice") or {}
    named = choice.get("name") if isinstance(choice, dict) else None
    forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    tools = [{"function": {**one, "parameters": one.get("input_schema")}} for one in objects_of(body.get("tools"))]
    tool = forced_tool(tools, {"function": {"name": named}} if named else "required") if forced else None
    return Ask(
        dialect=Dialect.MESSAGES,
        model=str(body.get("model") or model),
        prompts=(text_prompt(text),),
        stream=bool(body.get("stream")),
        max_tokens=max_tokens_of(body, "max_tokens"),
        tool=tool[0] if tool else None,
        fixed=arguments(tool[1]) if tool else None,
    )


def _responses(body: Body, model: str) -> Ask:
    given = required(body, "input")
    said = [{"role": "user", "content": given}] if isinstance(given, str) else objects_of(given)
    text = chat_text([{"role": "system", "content": body.get("instructions") or ""}, *said])
    return Ask(
        dialect=Dialect.RESPONSES,
        model=str(body.get("model") or model),
        prompts=(text_prompt(text),),
        stream=bool(body.get("stream")),
        max_tokens=max_tokens_of(body, "max_output_tokens"),
        said=text,
        store=body.get("store") is not False,
        previous=None if (previous := body.get("previous_response_id")) is None else str(previous),
    )


def _ollama(body: Body, model: str) -> Ask:
    text = chat_text(body["messages"]) if "messages" in body else str(body.get("prompt") or "")
    options = body.get("options") or {}
    return Ask(
        dialect=Dialect.OLLAMA,
        model=str(body.get("model") or model),
        prompts=(text_prompt(text),),
        stream=bool(body.get("stream", True)),
        max_tokens=max_tokens_of(options if isinstance(options, dict) else {}, "num_predict"),
    )


def _embeddings(body: Body, model: str) -> Ask:
    prompts, batched = prompts_of(required(body, "input"))
    return Ask(Dialect.PLAIN, str(body.get("model") or model), prompts, batched=batched, max_tokens=1, ignore_eos=True)


_READERS: dict[Dialect, Callable[[Body, str], Ask]] = {
    Dialect.CHAT: _chat,
    Dialect.COMPLETIONS: _completions,
    Dialect.GENERATE: _generate,
    Dialect.MESSAGES: _messages,
    Dialect.RESPONSES: _responses,
    Dialect.OLLAMA: _ollama,
    Dialect.PLAIN: _embeddings,
}


def _openai(body: Body, model: str) -> dict[str, Any]:
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadAskError(
            schema_message("model_type", "('body', 'stream_options')", "Input should be an object"), SCHEMA_ERROR
        )
    seed = body.get("seed")
    return {
        "model": str(body.get("model") or model),
        "n": count_of(body, "n", 1, least=1),
        "stream": bool(body.get("stream")),
        "min_tokens": count_of(body, "min_tokens", 0),
        "ignore_eos": bool(body.get("ignore_eos")),
        "seed": seed if isinstance(seed, int) else 0,
        "usage": bool(options.get("include_usage")),
        "continuous_usage": bool(options.get("continuous_usage_stats")),
        "rid": body.get("rid") if isinstance(body.get("rid"), str) else None,
    }


def check_sizes(ask: Ask, context_length: int) -> None:
    """Raise `BadAskError` where there are too many choices, or prompt and output do not fit into a context."""
    if ask.n > MAX_CHOICES:
        message = f"Input should be less than or equal to {MAX_CHOICES}"
        raise BadAskError(schema_message("less_than_equal", "('body', 'n')", message), SCHEMA_ERROR)
    longest = max(prompt.tokens for prompt in ask.prompts)
    if longest >= context_length:
        raise BadAskError(
            f"The input ({longest} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    if ask.max_tokens > context_length:
        raise BadAskError(
            f"max_completion_tokens is too large: {ask.max_tokens}."
            f"This model supports at most {context_length} completion tokens."
        )
    if longest + ask.max_tokens > context_length:
        raise BadAskError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. You asked "
            f"for {longest + ask.max_tokens} tokens: {longest} in the input and {ask.max_tokens} for the completion."
        )
