"""Our own errors in each client's dialect: whole bodies and events in mid-stream."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import (
    BackendUnreachable,
    BodyTooLarge,
    CrossoverError,
    FirstByteTimeout,
    InvalidRequest,
    KeyRefused,
    MethodNotAllowed,
    QueueFull,
    QueueTimeout,
    RouteRefused,
    StreamCut,
    UnknownRoute,
)
from proxy.model import Dialect
from proxy.protocol.dialects import error_body, error_event
from proxy.protocol.sse import Scanner

CUT = StreamCut("the backend ended its stream too early")
STREAMED = [dialect for dialect in Dialect if dialect is not Dialect.PLAIN]


@pytest.mark.parametrize(
    "dialect", [Dialect.CHAT, Dialect.COMPLETIONS, Dialect.RESPONSES, Dialect.GENERATE, Dialect.PLAIN]
)
def test_a_body_has_the_openai_shape(dialect: Dialect) -> None:
    assert orjson.loads(error_body(QueueFull("no room; try later"), dialect)) == {
        "error": {"message": "no room; try later", "type": "rate_limit_error", "param": None, "code": "queue_full"}
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("x"), "invalid_request_error"),
        (MethodNotAllowed("x"), "invalid_request_error"),
        (KeyRefused("x"), "authentication_error"),
        (RouteRefused("x"), "permission_error"),
        (UnknownRoute("x"), "not_found_error"),
        (BodyTooLarge("x"), "request_too_large"),
        (QueueFull("x"), "rate_limit_error"),
        (QueueTimeout("x"), "overloaded_error"),
        (BackendUnreachable("x"), "api_error"),
        (FirstByteTimeout("x"), "timeout_error"),
        (CrossoverError("x"), "api_error"),
    ],
)
def test_a_body_on_messages_has_the_anthropic_shape(error: CrossoverError, kind: str) -> None:
    body = orjson.loads(error_body(error, Dialect.MESSAGES))
    assert body == {"type": "error", "error": {"type": kind, "message": "x"}}


def test_a_body_of_ollama_is_its_message() -> None:
    assert orjson.loads(error_body(CUT, Dialect.OLLAMA)) == {"error": CUT.message}


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS, Dialect.GENERATE])
def test_an_event_of_chat_has_the_status_as_its_code_and_no_end_mark(dialect: Dialect) -> None:
    event = error_event(CUT, dialect)
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert b"[DONE]" not in event
    error = orjson.loads(event[6:])["error"]
    assert (error["code"], error["reason"], error["type"]) == (502, "stream_cut", "upstream_error")


def test_an_event_of_messages_is_named() -> None:
    head, _, data = error_event(CUT, Dialect.MESSAGES).partition(b"\n")
    assert head == b"event: error"
    assert orjson.loads(data[6:])["error"] == {"type": "api_error", "message": CUT.message}


def test_an_event_of_responses_is_numbered() -> None:
    head, _, data = error_event(CUT, Dialect.RESPONSES, sequence_number=7).partition(b"\n")
    assert head == b"event: error"
    assert orjson.loads(data[6:]) == {
        "type": "error",
        "code": "stream_cut",
        "message": CUT.message,
        "param": None,
        "sequence_number": 7,
    }


def test_what_does_not_stream_has_no_event() -> None:
    assert error_event(CUT, Dialect.PLAIN) == b""


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_event_is_read_as_an_error_by_our_own_scanner(dialect: Dialect) -> None:
    scanner = Scanner(dialect)
    scanner.feed(error_event(CUT, dialect))
    assert scanner.error is not None
    assert (scanner.events, scanner.at_boundary, scanner.ended) == (1, True, False)


@given(st.sampled_from(STREAMED), st.text())
def test_any_message_makes_one_event(dialect: Dialect, message: str) -> None:
    error = StreamCut(message + "\udce9")
    scanner = Scanner(dialect)
    scanner.feed(error_event(error, dialect))
    assert (scanner.events, scanner.at_boundary) == (1, True)
    assert isinstance(orjson.loads(error_body(error, dialect)), dict)
