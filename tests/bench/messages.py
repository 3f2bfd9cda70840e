"""The bytes that fake engine and load client agree on, made once: requests, a plain answer, the pieces of a stream.

Shape and size are those of SGLang's chat answers. MARK stands once in each event and in each plain answer and nowhere
else, heads and chunk sizes included: both sides count by counting one byte, wherever reads are cut.
"""

import json

MARK = b"~"
PATH = "/v1/chat/completions"
STREAM_WORD = b'"stream": true'
# Events that leave together: the role with the first text at a stream's head, finish reason and usage at its end.
FRAME_EVENTS = 4
STREAM_END = b"0\r\n\r\n"

_ANSWER_ID = "963b5db4a2884691~ae02414117d77ac9"
_PROMPT = "Write a function that merges two sorted lists without using a library, and say why it is linear. " * 4
_TEXT = "Walk both lists with one index each and always take the smaller head; every step takes one element. " * 6


def request(*, stream: bool, port: int) -> bytes:
    """One chat request of about 700 bytes, head and body."""
    value: dict[str, object] = {
        "model": "bench",
        "messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": _PROMPT}],
        "max_tokens": 512,
        "temperature": 0.7,
        "stream": stream,
    }
    if stream:
        value["stream_options"] = {"include_usage": True}
    body = json.dumps(value).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer none\r\nAccept: */*\r\n"
        f"User-Agent: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def json_answer(body: bytes) -> bytes:
    """A whole 200 answer around a JSON body."""
    return _head("application/json", f"content-length: {len(body)}") + body


def events_of(seconds: float, rate: float) -> int:
    """How many events a stream of at least `seconds` has, its frame included."""
    return int(seconds * rate) + 1 + FRAME_EVENTS


def _head(content_type: str, framing: str) -> bytes:
    return (
        "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
        f"content-type: {content_type}\r\n{framing}\r\n\r\n"
    ).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(**fields: object) -> bytes:
    frame = {"id": _ANSWER_ID, "object": "chat.completion.chunk", "created": 1704067200, "model": "bench"}
    return _chunk(b"data: " + _dumps({**frame, **fields}) + b"\n\n")


def _choice(delta: dict[str, object], finish_reason: str | None = None) -> list[dict[str, object]]:
    rest = {"logprobs": None, "finish_reason": finish_reason, "matched_stop": None}
    return [{"index": 0, "delta": {"reasoning_content": None, **delta}, **rest}]


def _dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_USAGE = {"prompt_tokens": 96, "completion_tokens": 100, "total_tokens": 196, "prompt_tokens_details": None}

PLAIN_BODY = _dumps(
    {
        "id": _ANSWER_ID,
        "object": "chat.completion",
        "created": 1704067200,
        "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
)
PLAIN_ANSWER = json_answer(PLAIN_BODY)
PLAIN_LENGTH_LINE = b"content-length: %d\r\n" % len(PLAIN_BODY)

STREAM_EVENT = _event(choices=_choice({"content": " element"}))
# SGLang says the role when the first token is there, not before.
STREAM_BEGIN = (
    _head("text/event-stream; charset=utf-8", "transfer-encoding: chunked")
    + _event(choices=_choice({"role": "assistant", "content": ""}))
    + STREAM_EVENT
)
STREAM_TAIL = (
    _event(choices=_choice({}, "stop")) + _event(choices=[], usage=_USAGE) + _chunk(b"data: [DONE]\n\n") + STREAM_END
)

READY = json_answer(b"{}")
LOADS = json_answer(
    _dumps(
        {
            "version": "0.5.23",
            "loads": [
                {
                    "dp_rank": 0,
                    "timestamp": 1704067200.0,
                    "num_running_reqs": 0,
                    "num_waiting_reqs": 0,
                    "max_running_requests": 8192,
                }
            ],
        }
    )
)
SERVER_INFO = json_answer(
    _dumps(
        {
            "served_model_name": "bench",
            "version": "0.5.23",
            "context_length": 8192,
            "weight_version": "default",
            "max_running_requests": 8192,
            "internal_states": [],
        }
    )
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
