"""The bytes that fake engine and load client agree on, made once: requests, a plain answer, the pieces of a stream.

Shape and size are those of SGLang's chat answers. MARK stands once in each event and in each plain answer and nowhere
else, heads and chunk sizes included: both sides count by counting one byte, wherever reads are cut. Behind it stand
STAMP_BYTES of the engine's monotonic clock at the moment of its send, or zeros.
"""

import json

MARK = b"~"
STAMP_BYTES = 16
UNSTAMPED = b"0" * STAMP_BYTES
PATH = "/v1/chat/completions"
# How the engine answers: events of all streams spread over an interval, or all on one tick; the first event and then
# silence; blocks as fast as they go at a rate; one JSON body; nothing at all.
SHAPES = ("spread", "tick", "idle", "flood", "whole", "silent")
# The engine finds its order in the prompt, since not every proxy passes headers or fields that it does not know: the
# shape, the nanoseconds between events, and how many there are.
ORDER = rb"@@(\w+) (\d+) (\d+)@@"
# Events that leave together: the role with the first text at a stream's head, finish reason and usage at its end.
FRAME_EVENTS = 4
# Asked of the engine itself: how things stand, and the same after telling all streams to end.
STATE_PATH = "/bench/state"
END_PATH = "/bench/end"
# Answered once the state is another than that whose number stands behind it.
CHANGED_PATH = "/bench/changed"

# The stamp takes the place of half an id, so that a stamped event is as long as one of SGLang's.
_ANSWER_ID = "963b5db4a288469" + MARK.decode() + UNSTAMPED.decode()
_PROMPT = "Write a function that merges two sorted lists without using a library, and say why it is linear. " * 4
_TEXT = "Walk both lists with one index each and always take the smaller head; every step takes one element. " * 6


def request(*, stream: bool, port: int, shape: str = "whole", interval_s: float = 0.0, events: int = 0) -> bytes:
    """One chat request of about 700 bytes, head and body, with its order to the engine."""
    order = f"@@{shape} {round(interval_s * 1e9)} {events}@@ "
    value: dict[str, object] = {
        "model": "bench",
        "messages": [{"role": "system", "content": "You are brief."}, {"role": "user", "content": order + _PROMPT}],
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


def _head(content_type: str, framing: str) -> bytes:
    return (
        "HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
        f"content-type: {content_type}\r\n{framing}\r\n\r\n"
    ).encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stamped(at_ns: int) -> bytes:
    """The chunk of one event that leaves now."""
    return _EVENT_BEFORE + b"%016x" % at_ns + _EVENT_AFTER


def payload_bytes(events: int, shape: str) -> int:
    """The length of a whole stream's body, framing taken off."""
    body = FLOOD_PAYLOAD if shape == "flood" else EVENT
    return len(_BEGIN_PAYLOAD) + (events - FRAME_EVENTS) * len(body) + len(_TAIL_PAYLOAD)


def _event(**fields: object) -> bytes:
    frame = {"id": _ANSWER_ID, "object": "chat.completion.chunk", "created": 1704067200, "model": "bench"}
    return b"data: " + _dumps({**frame, **fields}) + b"\n\n"


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

EVENT = _event(choices=_choice({"content": " element"}))
EVENT_CHUNK = chunk(EVENT)
_EVENT_BEFORE, _EVENT_AFTER = EVENT_CHUNK.split(UNSTAMPED)
# SGLang says the role when the first token is there, not before.
_ROLE = _event(choices=_choice({"role": "assistant", "content": ""}))
_BEGIN_PAYLOAD = _ROLE + EVENT
_TAIL = (_event(choices=_choice({}, "stop")), _event(choices=[], usage=_USAGE), b"data: [DONE]\n\n")
_TAIL_PAYLOAD = b"".join(_TAIL)
STREAM_BEGIN = _head("text/event-stream; charset=utf-8", "transfer-encoding: chunked") + chunk(_ROLE) + chunk(EVENT)
STREAM_TAIL = b"".join(map(chunk, _TAIL)) + b"0\r\n\r\n"
# A block of 64 KiB of long events, as of a reasoning model that an engine gathered; one MARK a block.
_LONG = _event(choices=_choice({"content": "x" * 3840})).replace(MARK, b"0")
FLOOD_PAYLOAD = EVENT + _LONG * 16
FLOOD_BLOCK = chunk(EVENT) + chunk(_LONG) * 16

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
                    "max_running_requests": 65536,
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
            "max_running_requests": 65536,
            "internal_states": [],
        }
    )
)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
# What a healthy engine answers to the questions of proxies, by path.
CONTROL = {
    "/ready": READY,
    "/health": READY,
    "/health_generate": READY,
    "/v1/loads": LOADS,
    "/server_info": SERVER_INFO,
    "/get_server_info": SERVER_INFO,
    "/v1/models": json_answer(_dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]})),
    "/model_info": json_answer(_dumps({"model_path": "bench", "is_generation": True})),
    "/get_model_info": json_answer(_dumps({"model_path": "bench", "is_generation": True})),
}
