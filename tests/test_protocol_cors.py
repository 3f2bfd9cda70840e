"""What a page of another origin may do and read is said exactly, and nothing to pages that are not let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.cors import (
    EXPOSED,
    MAX_AGE_S,
    allowed_origin,
    answer_fields,
    preflight_fields,
    varies_by_origin,
)

PAGE = b"https://page.example"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), PAGE, None),
        ((PAGE,), PAGE, PAGE),
        ((PAGE,), None, None),
        ((PAGE,), b"https://page.example.evil", None),
        ((PAGE,), b"http://page.example", None),
        ((PAGE,), b"https://page.example:444", None),
        ((PAGE,), b"null", None),
        ((b"*",), PAGE, b"*"),
        ((b"*",), None, b"*"),
    ],
)
def test_only_an_origin_on_the_list_is_let_in(
    origins: tuple[bytes, ...], origin: bytes | None, allowed: bytes | None
) -> None:
    assert allowed_origin(origins, origin) == allowed
    assert dict(answer_fields(origins, origin)).get(b"Access-Control-Allow-Origin") == allowed


@given(st.lists(st.binary()), st.binary())
def test_an_origin_is_let_in_exactly_when_it_or_any_is_listed(origins: list[bytes], origin: bytes) -> None:
    assert (allowed_origin(origins, origin) is not None) is (origin in origins or b"*" in origins)


def test_an_answer_lets_a_page_read_the_decision_and_when_to_come_again() -> None:
    said = dict(answer_fields([PAGE], PAGE))
    assert said[b"Access-Control-Expose-Headers"] == ", ".join(EXPOSED).encode()
    assert {"x-request-id", "x-crossover-backend", "x-crossover-because", "retry-after"} <= set(EXPOSED)


def test_nothing_asks_for_credentials() -> None:
    said = [*answer_fields([PAGE], PAGE), *preflight_fields({"POST"}, b"authorization")]
    assert not any(name.lower() == b"access-control-allow-credentials" for name, _ in said)


def test_a_preflight_is_told_methods_headers_and_for_how_long() -> None:
    assert dict(preflight_fields({"POST", "GET"}, b"authorization,content-type, x-stainless-os")) == {
        b"Access-Control-Allow-Methods": b"GET, POST",
        b"Access-Control-Allow-Headers": b"authorization,content-type, x-stainless-os",
        b"Access-Control-Max-Age": b"%d" % MAX_AGE_S,
        b"Vary": b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }


@pytest.mark.parametrize("asked", [None, b"", b"a b", b"a,,b", b"a, b;c", b"a\r\nb: c", b"a,", b"a\n", b"\xe9"])
def test_headers_that_are_no_list_of_names_are_not_echoed(asked: bytes | None) -> None:
    assert b"Access-Control-Allow-Headers" not in dict(preflight_fields({"POST"}, asked))


@pytest.mark.parametrize(
    ("origins", "vary", "added"),
    [
        ((PAGE,), [], True),
        ((PAGE,), [b"Accept-Encoding"], True),
        ((PAGE,), [b"accept-encoding, ORIGIN"], False),
        ((PAGE,), [b"Accept", b"Origin"], False),
        ((PAGE,), [b"*"], False),
        ((b"*",), [], False),
    ],
)
def test_a_cache_is_told_that_the_answer_is_one_pages_own(
    origins: tuple[bytes, ...], vary: list[bytes], added: bool
) -> None:
    assert varies_by_origin(origins, vary) is added
