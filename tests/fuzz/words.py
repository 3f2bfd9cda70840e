"""Words that inputs are made of: what a mutation puts in, so that it gets past the first comparison of a parser."""

from proxy.protocol.allowlist import REFUSED, REFUSED_PREFIXES, ROUTES, EngineKind


def _words(text: str) -> tuple[bytes, ...]:
    """Words written with blanks between, `\\r` and the like as Python has them."""
    return tuple(word.encode().decode("unicode_escape").encode("latin-1") for word in text.split())


STREAM = (
    *_words(r"\n \r \r\n \n\n \r\n\r\n data: data event: : :\x20ping [DONE] \xef\xbb\xbf } { }\n}\n\n"),
    b"event: error\n",
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n',
    b'{"message":{"content":"a"},"done":false}\n',
    *_words('"error" "finish_reason" "finish_reason":null "finish_reason":"stop" "usage" "usage":null "done":true'),
    *_words('"type":"message_stop" "response.completed" "meta_info" "delta" "text" "abort" "prompt_tokens":3'),
)
BODY = _words(
    'null true false 0 -1 1e999 NaN Infinity 4.0 "4" "\\\\u0664" [] {} [[ ]] "n": "model": "prompt": "messages": '
    '"stream":true "text": "input_ids": "sampling_params": "parameters": "input_embeds": "questions": "content": '
    '"regex": "json_schema": "response_format": "type": "tool_choice": "required" "mode": "session_params": '
    '"previous_response_id": "format": "items": "documents": "input": "instances": "usage": "choices": "error": '
    '"code": "status_code": "finish_reason": "meta_info": "delta": "predictions": "response": "message": "done": '
    '"prompt_tokens": "prompt_tokens_details": "cached_tokens": "object":"error" \\\\ud800 \\xff'
)
ENGINE = (
    *_words(
        '"loads": "version": "timestamp": "num_running_reqs": "num_waiting_reqs": "max_running_requests": '
        '"speculative": "accept_length": "decode_moments": "aggregate": "total_running_reqs": "internal_states": '
        '"effective_max_running_requests_per_dp": "context_length": "data": "id": "max_model_len": "api_key": '
        "[1,2,3,4,5,6] 1e308 1e18 -0.0 -1 NaN null true 99999999999999999999 [{ }] vllm:num_requests_running "
        "vllm:num_requests_waiting sglang:num_running_reqs sglang:num_queue_reqs +Inf 1_0"
    ),
    b'{dp_rank="0",tp_rank="1"} 2\n',
    b'{engine="0"} ',
    b'"2026-01-01T00:00:00+00:00"',
)
TARGET = (
    *(row.template.encode() for row in ROUTES[EngineKind.SGLANG]),
    *(path.encode() for kind in EngineKind for path in sorted(REFUSED[kind])[:12]),
    *(path.encode() for path in REFUSED_PREFIXES[EngineKind.SGLANG]),
    *_words(
        r"/v1/models/ /metrics/ /.. /. // \\ %2e%2e %2f %5c %252e %252f ..; ;x=1 ? # %00 %c0%ae %ff /v1/responses/"
    ),
    *_words("http://a/ * /v1/realtime"),
)
HEADER = (
    *_words(r"Connection: close keep-alive , \n \r \t \x00 \x7f Transfer-Encoding:chunked Content-Length:5 Host:a TE:"),
    *_words(r"Upgrade: Trailer: Keep-Alive: Proxy-Authorization: Authorization: X-Api-Key: X-Forwarded-For:1.2.3.4"),
    *_words(
        r"X-Request-ID:abc x-crossover-backend:baseline Expect:100-continue HTTP2-Settings: \xff \xed\xa0\x80 \xc3"
    ),
)
CONFIG = (
    *_words(
        "backends: speculative: baseline: url: engine: api_key: max_in_flight: listen: host: port: admin: routing: "
        "policy: leave_at: enter_at: rules: when: role: queue: max_waiting: timeouts: health: log: level: - [ ] { } "
        "&a *a << ! !!int | > # ${KEY} ${PORT:-1} ${ $${ ' \" ~ null true 0x1 1e400 .inf --- ... %YAML ? :"
    ),
    *_words(r"\n \n\x20\x20 \t \x00 \x85 \xe2\x80\xa8 \xef\xbb\xbf \xff"),
    b"http://a:1",
    b'"\\UFFFFFFFF"',
)
HTTP = (
    *_words(
        r"\r\n \r\n\r\n \n \r HTTP/1.1 HTTP/1.0 HTTP/2.0 GET POST PUT HEAD CONNECT \x00 \x0b \t : , ; 0\r\n\r\n 5\r\n"
    ),
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b" folded\r\n",
    b"http://a/v1/models",
    b"5;ext=1\r\n",
    b"0x5\r\n",
    b"{}",
)
REPLY = (
    *_words(r"\r\n \r\n\r\n \n \r 0\r\n\r\n 0\r\n 5\r\n data: [DONE] \x00"),
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n",
    b"HTTP/1.1 304 Not Modified\r\n",
    b"HTTP/1.1 500 X\r\n",
    b"HTTP/1.1 503 X\r\n",
    b"HTTP/1.1 400 X\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 2\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Type: text/event-stream\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: x\r\n",
    b"Server: a\r\nSet-Cookie: b\r\n",
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    b'data: {"error":{"code":503}}\n\n',
    b"data: [DONE]\n\n",
)
