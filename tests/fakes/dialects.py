"""Streams in every dialect as the engines write them: a first part without an end, and the end."""

from dataclasses import dataclass

import orjson

from proxy.model import Dialect

SSE = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Sample:
    """One dialect's stream. `body` is the request; `events` whole events with content; `end` what finishes it."""

    dialect: Dialect
    target: str
    body: bytes
    events: tuple[bytes, ...]
    end: bytes
    content_type: str = SSE


def _data(**value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


def _named(kind: str, **value: object) -> bytes:
    return b"event: " + kind.encode() + b"\n" + _data(type=kind, **value)


def _chat(text: str, finish: str | None = None) -> bytes:
    delta = {"reasoning_content": None, "content": text}
    return _data(
        id="x", object="chat.completion.chunk", choices=[{"index": 0, "delta": delta, "finish_reason": finish}]
    )


def _text(text: str, finish: str | None = None) -> bytes:
    return _data(id="x", object="text_completion", choices=[{"index": 0, "text": text, "finish_reason": finish}])


def _generate(text: str, finish: dict[str, object] | None = None) -> bytes:
    meta = {"id": "x", "finish_reason": finish, "prompt_tokens": 2, "completion_tokens": 3}
    return _data(text=text, output_ids=[1], meta_info=meta)


def _ollama(text: str, **more: object) -> bytes:
    return orjson.dumps({"model": "m", "message": {"role": "assistant", "content": text}, "done": False} | more) + b"\n"


_DONE = b"data: [DONE]\n\n"
_CHAT_BODY = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}'

SAMPLES = (
    Sample(
        Dialect.CHAT,
        "/v1/chat/completions",
        _CHAT_BODY,
        (_chat("w0"), _chat("w1"), _chat("w2")),
        _chat("", "stop") + _DONE,
    ),
    Sample(
        Dialect.COMPLETIONS,
        "/v1/completions",
        b'{"model":"m","prompt":"hi","stream":true}',
        (_text("w0"), _text("w1"), _text("w2")),
        _text("", "stop") + _DONE,
    ),
    Sample(
        Dialect.RESPONSES,
        "/v1/responses",
        b'{"model":"m","input":"hi","stream":true}',
        tuple(_named("response.output_text.delta", delta=f"w{number}", sequence_number=number) for number in range(3)),
        _named("response.completed", response={"status": "completed"}, sequence_number=3),
    ),
    Sample(
        Dialect.MESSAGES,
        "/v1/messages",
        b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}',
        tuple(
            _named("content_block_delta", index=0, delta={"type": "text_delta", "text": f"w{number}"})
            for number in range(3)
        ),
        _named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}) + _named("message_stop"),
    ),
    Sample(
        Dialect.GENERATE,
        "/generate",
        b'{"text":"hi","stream":true}',
        (_generate("w0"), _generate("w0w1"), _generate("w0w1w2")),
        _generate("w0w1w2", {"type": "stop"}) + _DONE,
    ),
    Sample(
        Dialect.OLLAMA,
        "/api/chat",
        _CHAT_BODY,
        (_ollama("w0"), _ollama("w1"), _ollama("w2")),
        _ollama("", done=True, done_reason="stop", eval_count=3),
        "application/x-ndjson",
    ),
)
