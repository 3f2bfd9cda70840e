"""Python SDKs against a proxy: sdks.py NAME BASE, with the python of .venv-clients.

Prints {scene: what was seen} as JSON. What is right is asserted in test_client_sdks.py. Every SDK plays the same scenes
with its own means.
"""

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

SAID = [{"role": "user", "content": "Tell me of the sea."}]
FIELDS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
TOOL = {"type": "function", "function": {"name": "find_weather", "description": "Weather.", "parameters": FIELDS}}
FAULTS = {"busy": "429", "failed": "500", "broken": "reset", "full": "503"}
DYING = {"x-engine-fault": "die-mid-line=2"}
TOO_MANY = 10_000_000
WITHIN_S = 60.0


def errors(ask: Callable[[dict[str, str]], object], **others: Callable[[], object]) -> dict[str, list[str]]:
    """The SDK's class of each failure and those it is a kind of; `ask` sends one request with further headers."""
    acts = {name: lambda fault=fault: ask({"x-engine-fault": fault}) for name, fault in FAULTS.items()} | others
    seen = {}
    for name, act in acts.items():
        try:
            act()
        except Exception as error:  # noqa: BLE001 - which one is what is looked at
            seen[name] = [kind.__name__ for kind in type(error).__mro__]
    return seen


def with_anthropic(base: str) -> dict[str, Any]:
    import anthropic  # noqa: PLC0415 - one of them at a time; each takes seconds

    client = anthropic.Anthropic(base_url=base, api_key="key", max_retries=0, timeout=WITHIN_S)
    asked: dict[str, Any] = {"model": "any", "messages": SAID, "max_tokens": 12}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        ended = stream.get_final_message()
    with client.messages.stream(**{**asked, "max_tokens": 4000}) as left:
        first = next(iter(left.text_stream))
    tooled = asked | {
        "max_tokens": 200,
        "tools": [{"name": "find_weather", "description": "Weather.", "input_schema": FIELDS}],
        "tool_choice": {"type": "any"},
    }
    called = client.messages.create(**tooled).content[0]
    with client.messages.stream(**tooled) as calling:
        called_later = calling.get_final_message().content[0]

    def drained() -> None:
        with client.messages.stream(**{**asked, "max_tokens": 60}, extra_headers=DYING) as dying:
            list(dying)

    return {
        "tool": [called.name, sorted(called.input)],
        "tool_streamed": [called_later.name, sorted(called_later.input)],
        "whole": whole.content[0].text,
        "usage": whole.usage.output_tokens,
        "streamed": text,
        "streamed_usage": ended.usage.output_tokens,
        "finish": ended.stop_reason,
        "left": first,
        "after": client.messages.create(**asked).content[0].text,
        "counted": client.messages.count_tokens(model="any", messages=SAID).input_tokens,
        "errors": errors(
            lambda headers: client.messages.create(**asked, extra_headers=headers),
            bad=lambda: client.messages.create(**{**asked, "max_tokens": TOO_MANY}),
            died=drained,
        ),
    }


def with_langchain(base: str) -> dict[str, Any]:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415

    def model(max_tokens: int = 12, headers: dict[str, str] | None = None) -> ChatOpenAI:
        return ChatOpenAI(
            base_url=f"{base}/v1",
            api_key="key",
            model="any",
            max_retries=0,
            timeout=WITHIN_S,
            max_tokens=max_tokens,
            stream_usage=True,
            default_headers=headers,
        )

    whole = model().invoke(SAID)
    pieces = list(model().stream(SAID))
    calling = model(200).bind_tools([TOOL], tool_choice="any")
    called = calling.invoke(SAID)
    first, *later = calling.stream(SAID)
    called_later = sum(later, first).tool_calls[0]
    return {
        "tool_streamed": [called_later["name"], sorted(called_later["args"])],
        "whole": whole.content,
        "usage": whole.usage_metadata["output_tokens"],
        "streamed": "".join(str(piece.content) for piece in pieces),
        "streamed_usage": sum((piece.usage_metadata or {}).get("output_tokens", 0) for piece in pieces),
        "finish": next(found for piece in pieces if (found := piece.response_metadata.get("finish_reason"))),
        "tool": [called.tool_calls[0]["name"], sorted(called.tool_calls[0]["args"])],
        "left": next(str(piece.content) for piece in model(4000).stream(SAID) if piece.content),
        "after": model().invoke(SAID).content,
        "errors": errors(
            lambda headers: model(headers=headers).invoke(SAID),
            bad=lambda: model(TOO_MANY).invoke(SAID),
            died=lambda: list(model(60, DYING).stream(SAID)),
        ),
    }


def with_litellm(base: str) -> dict[str, Any]:
    import litellm  # noqa: PLC0415

    litellm.suppress_debug_info = True

    def ask(**more: Any) -> Any:
        asked = {"model": "openai/any", "messages": SAID, "max_tokens": 12, "num_retries": 0, "timeout": WITHIN_S}
        return litellm.completion(**(asked | more), api_base=f"{base}/v1", api_key="key")

    whole = ask()
    pieces = list(ask(stream=True, stream_options={"include_usage": True}))
    tooled = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
    called = ask(**tooled).choices[0].message.tool_calls[0].function
    calling = litellm.stream_chunk_builder(list(ask(**tooled, stream=True))).choices[0].message.tool_calls[0].function
    left = next(text for one in ask(stream=True, max_tokens=4000) if (text := one.choices[0].delta.content))
    gc.collect()
    return {
        "tool_streamed": [calling.name, sorted(json.loads(calling.arguments))],
        "whole": whole.choices[0].message.content,
        "usage": whole.usage.completion_tokens,
        "streamed": "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices),
        "streamed_usage": next(piece.usage for piece in pieces if getattr(piece, "usage", None)).completion_tokens,
        "finish": next(one.choices[0].finish_reason for one in pieces if one.choices and one.choices[0].finish_reason),
        "tool": [called.name, sorted(json.loads(called.arguments))],
        "left": left,
        "after": ask().choices[0].message.content,
        "errors": errors(
            lambda headers: ask(extra_headers=headers),
            bad=lambda: ask(max_tokens=TOO_MANY),
            died=lambda: list(ask(max_tokens=60, stream=True, extra_headers=DYING)),
        ),
    }


if __name__ == "__main__":
    # litellm leaves a stream in a cycle, and what closes it then is the collector: within a call that holds httpcore's
    # pool it would wait for that call's own lock for ever. It runs where no call does, or not at all.
    gc.disable()
    name, where = sys.argv[1:]
    play = {"anthropic": with_anthropic, "langchain": with_langchain, "litellm": with_litellm}[name]
    print(json.dumps(play(where)))
