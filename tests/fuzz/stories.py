"""Streams whose meaning is known because they are told from it: the scanner must find exactly what was put in.

Bytes choose the dialect, the events, the line ends, comments and cuts. Events are written as the engines write them.
"""

from dataclasses import dataclass, field

import orjson
from fuzz.draws import Draws, require

from proxy.model import Dialect, Usage
from proxy.protocol.sse import Scanner

STREAMED = tuple(dialect for dialect in Dialect if dialect is not Dialect.PLAIN)
LINE_ENDS = (b"\n", b"\n", b"\r\n", b"\r")
MAX_EVENTS = 40


@dataclass
class Truth:
    """What was put into a stream."""

    events: int = 0
    content: bool = False
    finished: bool = False
    ended: bool = False
    aborted: bool = False
    failed: bool = False
    usage: Usage = field(default_factory=Usage)


def told(data: bytes) -> None:
    """The facts that a stream was told from are the facts that are found in it, however it is cut."""
    draws = Draws(data)
    dialect = draws.one_of(STREAMED)
    end = b"\n" if dialect is Dialect.OLLAMA else draws.one_of(LINE_ENDS)
    truth, pieces = Truth(), []
    for _ in range(draws.byte() % MAX_EVENTS):
        pieces += _event(draws, dialect, truth, end)
    scanner = Scanner(dialect)
    for piece in _cut(b"".join(pieces), pieces, draws):
        scanner.feed(piece)
    scanner.close()
    found = Truth(
        scanner.events,
        scanner.first_content,
        scanner.finished,
        scanner.ended,
        scanner.aborted,
        scanner.error is not None,
        scanner.usage,
    )
    require(found == truth, f"{dialect}: found {found} where {truth} was told")


def _cut(stream: bytes, pieces: list[bytes], draws: Draws) -> list[bytes]:
    """Event by event, as an engine flushes them, or anywhere."""
    size = draws.byte()
    return [stream[at : at + size] for at in range(0, len(stream), size)] if size else pieces


def _event(draws: Draws, dialect: Dialect, truth: Truth, end: bytes) -> list[bytes]:
    kind = draws.byte() % 8
    if kind == 0 and dialect is not Dialect.OLLAMA:
        return [b": ping" + end + end]
    if kind == 1 and dialect in (Dialect.CHAT, Dialect.COMPLETIONS, Dialect.GENERATE):
        truth.events, truth.ended, truth.finished = truth.events + 1, True, True
        return [b"data: [DONE]" + end + end]
    if kind == 2:
        truth.failed = True
        return [_framed({"error": {"type": "server_error", "code": 500, "message": "x"}}, dialect, truth, end)]
    value = _WRITERS[dialect](draws, kind, truth)
    return [_framed(value, dialect, truth, end)]


def _framed(value: object, dialect: Dialect, truth: Truth, end: bytes) -> bytes:
    truth.events += 1
    text = orjson.dumps(value)
    return text + b"\n" if dialect is Dialect.OLLAMA else b"data: " + text + end + end


def _text(draws: Draws) -> str:
    """A word; now and then one that looks like what the scanner looks for."""
    words = ("", "a", "word", 'say "error"', '"finish_reason":"stop"', "data: [DONE]\n\n", "é€", '{"done":true}', "}\n")
    return draws.one_of(words)


def _finish(draws: Draws, truth: Truth) -> str:
    reason = draws.one_of(("stop", "length", "abort", "tool_calls"))
    truth.finished, truth.aborted = True, truth.aborted or reason == "abort"
    return reason


def _counts(draws: Draws) -> tuple[int, int]:
    return draws.byte(), draws.byte()


def _latest(truth: Truth, prompt: int, completion: int) -> None:
    truth.usage = Usage(prompt or truth.usage.prompt_tokens, completion or truth.usage.completion_tokens)


def _chat(draws: Draws, kind: int, truth: Truth) -> object:
    text = _text(draws)
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    value: dict[str, object] = {"id": "x", "choices": [choice], "usage": None}
    truth.content = truth.content or bool(text)
    if kind == 3:
        choice["finish_reason"] = _finish(draws, truth)
    if kind == 4:
        prompt, completion = _counts(draws)
        value["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        _latest(truth, prompt, completion)
    return value


def _completions(draws: Draws, kind: int, truth: Truth) -> object:
    text = _text(draws)
    choice = {"index": 0, "text": text, "finish_reason": _finish(draws, truth) if kind == 3 else None}
    truth.content = truth.content or bool(text)
    return {"id": "x", "choices": [choice]}


def _generate(draws: Draws, kind: int, truth: Truth) -> object:
    text = _text(draws)
    truth.content = truth.content or bool(text)
    prompt, completion = _counts(draws)
    reason = {"type": _finish(draws, truth)} if kind == 3 else None
    if reason:
        former = truth.usage
        truth.usage = Usage(former.prompt_tokens + prompt, former.completion_tokens + completion)
    meta = {"finish_reason": reason, "prompt_tokens": prompt, "completion_tokens": completion}
    return {"text": text, "meta_info": meta}


def _messages(draws: Draws, kind: int, truth: Truth) -> object:
    if kind == 3:
        reason = _finish(draws, truth)
        prompt, completion = _counts(draws)
        _latest(truth, prompt, completion)
        usage = {"input_tokens": prompt, "output_tokens": completion}
        return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    if kind == 4:
        truth.ended = truth.finished = True
        return {"type": "message_stop"}
    text = _text(draws)
    truth.content = truth.content or bool(text)
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _responses(draws: Draws, kind: int, truth: Truth) -> object:
    if kind == 3:
        truth.ended = truth.finished = True
        prompt, completion = _counts(draws)
        _latest(truth, prompt, completion)
        usage = {"input_tokens": prompt, "output_tokens": completion}
        return {"type": "response.completed", "response": {"status": "completed", "usage": usage}}
    text = _text(draws)
    truth.content = truth.content or bool(text)
    return {"type": "response.output_text.delta", "delta": text, "sequence_number": 1}


def _ollama(draws: Draws, kind: int, truth: Truth) -> object:
    text = _text(draws)
    truth.content = truth.content or bool(text)
    value: dict[str, object] = {"model": "m", "message": {"role": "assistant", "content": text}, "done": kind == 3}
    if kind == 3:
        truth.ended = truth.finished = True
        prompt, completion = _counts(draws)
        _latest(truth, prompt, completion)
        value |= {"done_reason": "stop", "prompt_eval_count": prompt, "eval_count": completion}
    return value


_WRITERS = {
    Dialect.CHAT: _chat,
    Dialect.COMPLETIONS: _completions,
    Dialect.GENERATE: _generate,
    Dialect.MESSAGES: _messages,
    Dialect.RESPONSES: _responses,
    Dialect.OLLAMA: _ollama,
}
