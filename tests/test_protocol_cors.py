"""What a page of another origin may do and read is said exactly, and nothing to pages that are not let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.cors import (
    EXPOSED,
    MAX_AGE_S,
    allowed_origin,
    answer_headers,
    preflight_headers,
    varies_by_origin,
)

PAGE = "https://page.example"


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), PAGE, None),
        ((PAGE,), PAGE, PAGE),
        ((PAGE,), None, None),
        ((PAGE,), "https://page.example.evil", None),
        ((PAGE,), "http://page.example", None),
        ((PAGE,), "https://page.example:444", None),
        ((PAGE,), "null", None),
        (("*",), PAGE, "*"),
        (("*",), None, "*"),
    ],
)
def test_only_an_origin_on_the_list_is_let_in(
    origins: tuple[str, ...], origin: str | None, allowed: str | None
) -> None:
    assert allowed_origin(origins, origin) == allowed
    assert dict(answer_headers(origins, origin)).get("Access-Control-Allow-Origin") == allowed


@given(st.lists(st.text()), st.text())
def test_an_origin_is_let_in_exactly_when_it_or_any_is_listed(origins: list[str], origin: str) -> None:
    assert (allowed_origin(origins, origin) is not None) is (origin in origins or "*" in origins)


def test_an_answer_lets_a_page_read_the_decision_and_when_to_come_again() -> None:
    said = dict(answer_headers([PAGE], PAGE))
    assert said["Access-Control-Expose-Headers"] == ", ".join(EXPOSED)
    assert {"x-request-id", "x-crossover-backend", "x-crossover-because", "retry-after"} <= set(EXPOSED)


def test_nothing_asks_for_credentials() -> None:
    said = [*answer_headers([PAGE], PAGE), *preflight_headers({"POST"}, "authorization")]
    assert not any(name.lower() == "access-control-allow-credentials" for name, _ in said)


def test_a_preflight_is_told_methods_headers_and_for_how_long() -> None:
    assert dict(preflight_headers({"POST", "GET"}, "authorization,content-type, x-stainless-os")) == {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "authorization,content-type, x-stainless-os",
        "Access-Control-Max-Age": str(MAX_AGE_S),
        "Vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
    }


@pytest.mark.parametrize("asked", [None, "", "a b", "a,,b", "a, b;c", "a\r\nb: c", "a,", "é"])
def test_headers_that_are_no_list_of_names_are_not_echoed(asked: str | None) -> None:
    assert "Access-Control-Allow-Headers" not in dict(preflight_headers({"POST"}, asked))


@pytest.mark.parametrize(
    ("origins", "vary", "added"),
    [
        ((PAGE,), [], True),
        ((PAGE,), ["Accept-Encoding"], True),
        ((PAGE,), ["accept-encoding, ORIGIN"], False),
        ((PAGE,), ["Accept", "Origin"], False),
        ((PAGE,), ["*"], False),
        (("*",), [], False),
    ],
)
def test_a_cache_is_told_that_the_answer_is_one_pages_own(
    origins: tuple[str, ...], vary: list[str], added: bool
) -> None:
    assert varies_by_origin(origins, vary) is added
