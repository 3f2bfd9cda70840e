"""Headers across the proxy: what must not cross does not, and the rest crosses as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.headers import HOP_BY_HOP, downstream_headers, keys, request_id, upstream_headers

Pairs = list[tuple[str, str]]


def sent(
    pairs: Pairs, *, api_key: str | None = None, peer: str | None = "10.0.0.9", drop_client_key: bool = False
) -> Pairs:
    return upstream_headers(
        pairs, host="engine:30001", api_key=api_key, request_id="r-1", peer=peer, drop_client_key=drop_client_key
    )


def named(pairs: Pairs, name: str) -> list[str]:
    return [value for key, value in pairs if key.lower() == name]


def test_ordinary_headers_keep_their_case_order_and_repetition() -> None:
    pairs = [("Accept", "*/*"), ("X-B", "1"), ("x-a", "2"), ("X-B", "3"), ("Accept-Encoding", "gzip")]
    assert sent(pairs)[1:-2] == pairs
    cookies = [("Set-Cookie", "a=1"), ("content-type", "text/event-stream"), ("Set-Cookie", "b=2")]
    assert downstream_headers(cookies) == cookies


def test_nothing_is_added_but_host_hops_and_id() -> None:
    assert sent([]) == [("Host", "engine:30001"), ("X-Forwarded-For", "10.0.0.9"), ("X-Request-ID", "r-1")]
    assert sent([], peer=None) == [("Host", "engine:30001"), ("X-Request-ID", "r-1")]


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_a_hop_by_hop_header_crosses_in_neither_direction(name: str) -> None:
    for pair in ((name, "x"), (name.title(), "x")):
        assert named(sent([pair]), name) == []
        assert downstream_headers([pair]) == []


def test_headers_named_by_connection_do_not_cross() -> None:
    pairs = [("Connection", "close, X-Hop"), ("X-HOP", "1"), ("connection", "x-other ,"), ("X-Other", "2"), ("X", "3")]
    assert sent(pairs)[1:-2] == [("X", "3")]
    assert downstream_headers(pairs) == [("X", "3")]


def test_connection_cannot_hide_the_hops_nor_cut_the_framing() -> None:
    pairs = [("Connection", "X-Forwarded-For, Host, Content-Length"), ("X-Forwarded-For", "1.1.1.1")]
    assert named(sent(pairs), "x-forwarded-for") == ["1.1.1.1, 10.0.0.9"]
    assert named(sent(pairs), "host") == ["engine:30001"]
    assert downstream_headers([*pairs, ("Content-Length", "5")])[-1] == ("Content-Length", "5")


def test_the_clients_framing_host_and_instructions_to_us_stay_here() -> None:
    pairs = [
        ("Host", "169.254.169.254"),
        ("host", "evil"),
        ("Content-Length", "5"),
        ("Expect", "100-continue"),
        ("HTTP2-Settings", "AAMAAABk"),
        ("X-Crossover-Backend", "baseline"),
        ("x-crossover-anything", "x"),
    ]
    assert sent(pairs) == sent([])


def test_the_clients_key_passes_where_the_engine_has_none_of_ours() -> None:
    pairs = [("Authorization", "Bearer client"), ("x-api-key", "client")]
    assert sent(pairs)[1:3] == pairs
    assert "client" not in str(sent(pairs, drop_client_key=True))


@pytest.mark.parametrize("api_key", [None, "engine-key"])
def test_a_key_that_was_for_the_proxy_goes_no_further_wherever_it_was(api_key: str | None) -> None:
    names = ("Authorization", "X-API-Key", "api-key", "Cookie", "proxy-authorization")
    got = sent([*((name, "client") for name in names), ("x-other", "kept")], api_key=api_key, drop_client_key=True)
    assert "client" not in str(got)
    assert named(got, "x-other") == ["kept"]
    assert named(got, "authorization") == ([f"Bearer {api_key}"] if api_key else [])


def test_the_engines_key_takes_the_clients_place() -> None:
    pairs = [("authorization", "Bearer client"), ("X-Api-Key", "client"), ("AUTHORIZATION", "Basic client")]
    got = sent(pairs, api_key="engine-key")
    assert named(got, "authorization") == ["Bearer engine-key"]
    assert "client" not in str(got)


@pytest.mark.parametrize("name", ["Api-Key", "X-Goog-Api-Key", "Cookie"])
def test_whatever_else_holds_a_clients_key_does_not_cross_beside_the_engines(name: str) -> None:
    assert named(sent([(name, "client")]), name.lower()) == ["client"]
    assert named(sent([(name, "client")], api_key="engine-key"), name.lower()) == []
    assert named(sent([(name, "client")], drop_client_key=True), name.lower()) == []


def test_keys_are_what_tells_who_asks() -> None:
    pairs = [("Authorization", "Bearer a"), ("Accept", "*/*"), ("COOKIE", "b=c"), ("x-api-key", "d")]
    assert keys(pairs) == {("authorization", "Bearer a"), ("cookie", "b=c"), ("x-api-key", "d")}
    assert keys(pairs) == keys(reversed(pairs)) != keys(pairs[1:])


def test_hops_become_one_line_with_our_peer_last() -> None:
    pairs = [("X-Forwarded-For", "1.1.1.1"), ("Via", "1.1 edge"), ("x-forwarded-for", " 2.2.2.2, 3.3.3.3 ")]
    assert named(sent(pairs), "x-forwarded-for") == ["1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.9"]
    assert named(sent(pairs), "via") == ["1.1 edge"]


def test_the_request_id_is_ours_alone() -> None:
    assert named(sent([("X-Request-ID", "forged"), ("x-request-id", "again")]), "x-request-id") == ["r-1"]


@pytest.mark.parametrize(
    "pair", [("X", "a\r\nEvil: 1"), ("X", "a\n"), ("X", "a\x00"), ("X Y", "a"), ("", "a"), ("X\r", "a")]
)
def test_what_would_become_another_header_is_not_sent(pair: tuple[str, str]) -> None:
    assert sent([pair]) == sent([])
    assert downstream_headers([pair]) == []


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([("X-Request-Id", "a")], "a"),
        ([("request-id", "d"), ("x-trace-id", "c"), ("x-correlation-id", "b"), ("x-request-id", "a")], "a"),
        ([("request-id", "d"), ("X-Trace-Id", "c")], "c"),
        ([("x-request-id", ""), ("x-correlation-id", "b")], "b"),
        ([("x-request-id", "a b"), ("x-request-id", "a")], "a"),
        ([("x-request-id", "a" * 129)], None),
        ([("x-request-id", "a" * 128)], "a" * 128),
        ([("x-request-id", "a\n")], None),
        ([("x-request-id", "ä")], None),
        ([("id", "a")], None),
    ],
)
def test_the_first_usable_request_id_counts(pairs: Pairs, found: str | None) -> None:
    assert request_id(pairs) == found


NAMES = st.sampled_from(
    ["Connection", "X-Hop", "Host", "Authorization", "x-api-key", "X-Forwarded-For", "Content-Length", "TE", "Accept"]
) | st.text(max_size=8)
VALUES = st.sampled_from(["close, x-hop", "authorization", "keep-alive"]) | st.text(max_size=12)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@given(HEADERS, st.none() | st.text(max_size=8), st.text(max_size=8), st.none() | st.text(max_size=8))
def test_nothing_forbidden_goes_upstream(pairs: Pairs, key: str | None, identity: str, peer: str | None) -> None:
    got = upstream_headers(pairs, host="engine", api_key=key, request_id=identity, peer=peer)
    names = [name.lower() for name, _ in got]
    assert not HOP_BY_HOP & set(names)
    assert not any(mark in name + value for name, value in got for mark in "\r\n\x00")
    assert names.count("host") == 1
    assert names.count("x-forwarded-for") <= 1
    assert names.count("x-request-id") <= 1
    assert not {"content-length", "expect"} & set(names)
    assert not key or names.count("authorization") <= 1


@given(HEADERS)
def test_what_goes_downstream_came_in_that_order(pairs: Pairs) -> None:
    got = downstream_headers(pairs)
    rest = iter(pairs)
    assert all(pair in rest for pair in got)
    assert not HOP_BY_HOP & {name.lower() for name, _ in got}


@given(HEADERS)
def test_a_request_id_is_safe_to_write_anywhere(pairs: Pairs) -> None:
    found = request_id([*pairs, *(("x-request-id", value) for _, value in pairs)])
    assert found is None or (found.isascii() and found.isprintable() and " " not in found and 1 <= len(found) <= 128)
