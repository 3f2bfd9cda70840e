"""Fields across the proxy: what must not cross does not, and the rest crosses as it is."""

from typing import Any

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.errors import InvalidRequest
from proxy.model import Role
from proxy.protocol import headers
from proxy.protocol.fields import Fields, by_name
from proxy.protocol.headers import (
    HOP_BY_HOP,
    MAX_NAME_BYTES,
    MAX_NAMES,
    OWN_PREFIX,
    downstream_fields,
    keys,
    request_id,
    upstream_head,
)


def head(
    fields: Fields,
    *,
    api_key: bytes | None = None,
    peer: bytes = b"10.0.0.9",
    drop_client_key: bool = False,
    identity: bytes = b"r-1",
) -> bytes:
    return upstream_head(
        "POST",
        "/v1/x?y=z",
        fields,
        host=b"engine:30001",
        api_key=api_key,
        request_id=identity,
        peer=peer,
        drop_client_key=drop_client_key,
    )


def lines(sent: bytes) -> Fields:
    """The fields of a head, split by hand at its line ends."""
    assert sent.endswith(b"\r\n\r\n")
    pairs = (line.partition(b": ") for line in sent[:-4].split(b"\r\n")[1:])
    return [(name, value) for name, _, value in pairs]


def sent(fields: Fields, **options: Any) -> Fields:
    return lines(head(fields, **options))


def named(fields: Fields, name: bytes) -> list[bytes]:
    return [value for key, value in fields if key.lower() == name]


def test_ordinary_fields_keep_their_case_order_and_repetition() -> None:
    fields = [(b"Accept", b"*/*"), (b"X-B", b"1"), (b"x-a", b"2"), (b"X-B", b"3"), (b"Accept-Encoding", b"gzip")]
    assert sent(fields)[1:-2] == fields
    cookies = [(b"Set-Cookie", b"a=1"), (b"content-type", b"text/event-stream"), (b"Set-Cookie", b"b=2")]
    assert downstream_fields(cookies) == cookies


def test_nothing_is_added_but_host_hops_and_id() -> None:
    assert head([]) == (
        b"POST /v1/x?y=z HTTP/1.1\r\nHost: engine:30001\r\nX-Forwarded-For: 10.0.0.9\r\nX-Request-ID: r-1\r\n\r\n"
    )
    assert sent([], peer=b"") == [(b"Host", b"engine:30001"), (b"X-Request-ID", b"r-1")]


@pytest.mark.parametrize("size", [0, 5])
def test_the_attempt_and_the_size_of_the_body_are_said_where_they_are_known(size: int) -> None:
    said = upstream_head(
        "PUT", "/", [], host=b"e", api_key=None, request_id=b"r", peer=b"", attempt=b"2", body_bytes=size
    )
    assert lines(said)[-2:] == [(b"X-Crossover-Attempt", b"2"), (b"Content-Length", b"%d" % size)]


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_a_hop_by_hop_field_crosses_in_neither_direction(name: bytes) -> None:
    for field in ((name, b"x"), (name.title(), b"x")):
        assert named(sent([field]), name) == []
        assert downstream_fields([field]) == []


def test_fields_named_by_connection_do_not_cross() -> None:
    fields = [
        *((b"Connection", b"close, X-Hop"), (b"X-HOP", b"1"), (b"connection", b"x-other ,"), (b"X-Other", b"2")),
        (b"X", b"3"),
    ]
    assert sent(fields)[1:-2] == [(b"X", b"3")]
    assert sent(fields[::-1])[1:-2] == [(b"X", b"3")]
    assert downstream_fields(fields) == [(b"X", b"3")]
    assert downstream_fields(fields[::-1]) == [(b"X", b"3")]


@pytest.mark.parametrize("value", [b"", b"close", b"Close", b"keep-alive", b"Keep-Alive", b"CLOSE , keep-alive"])
def test_the_usual_options_of_connection_cost_no_other_field(value: bytes) -> None:
    fields = [(b"X-A", b"1"), (b"Connection", value), (b"Close", b"2"), (b"Keep-Alive", b"3"), (b"X-B", b"4")]
    assert sent(fields)[1:-2] == downstream_fields(fields) == [(b"X-A", b"1"), (b"X-B", b"4")]


def test_connection_cannot_hide_the_hops_nor_cut_the_framing() -> None:
    fields = [(b"Connection", b"X-Forwarded-For, Host, Content-Length"), (b"X-Forwarded-For", b"1.1.1.1")]
    assert named(sent(fields), b"x-forwarded-for") == [b"1.1.1.1, 10.0.0.9"]
    assert named(sent(fields), b"host") == [b"engine:30001"]
    assert downstream_fields([*fields, (b"Content-Length", b"5")])[-1] == (b"Content-Length", b"5")


def test_the_clients_framing_host_and_instructions_to_us_stay_here() -> None:
    fields = [
        (b"Host", b"169.254.169.254"),
        (b"host", b"evil"),
        (b"Content-Length", b"5"),
        (b"Expect", b"100-continue"),
        (b"HTTP2-Settings", b"AAMAAABk"),
        (b"X-Crossover-Backend", b"baseline"),
        (b"x-crossover-anything", b"x"),
    ]
    assert sent(fields) == sent([])


def test_the_clients_key_passes_where_the_engine_has_none_of_ours() -> None:
    fields = [(b"Authorization", b"Bearer client"), (b"x-api-key", b"client")]
    assert sent(fields)[1:3] == fields
    assert b"client" not in head(fields, drop_client_key=True)


@pytest.mark.parametrize("api_key", [None, b"engine-key"])
def test_a_key_that_was_for_the_proxy_goes_no_further_wherever_it_was(api_key: bytes | None) -> None:
    names = (b"Authorization", b"X-API-Key", b"api-key", b"Cookie", b"proxy-authorization")
    fields = [*((name, b"client") for name in names), (b"x-other", b"kept")]
    assert b"client" not in head(fields, api_key=api_key, drop_client_key=True)
    got = sent(fields, api_key=api_key, drop_client_key=True)
    assert named(got, b"x-other") == [b"kept"]
    assert named(got, b"authorization") == ([b"Bearer engine-key"] if api_key else [])


def test_the_engines_key_takes_the_clients_place() -> None:
    fields = [(b"authorization", b"Bearer client"), (b"X-Api-Key", b"client"), (b"AUTHORIZATION", b"Basic client")]
    assert named(sent(fields, api_key=b"engine-key"), b"authorization") == [b"Bearer engine-key"]
    assert b"client" not in head(fields, api_key=b"engine-key")


@pytest.mark.parametrize("name", [b"Api-Key", b"X-Goog-Api-Key", b"Cookie"])
def test_whatever_else_holds_a_clients_key_does_not_cross_beside_the_engines(name: bytes) -> None:
    assert named(sent([(name, b"client")]), name.lower()) == [b"client"]
    assert named(sent([(name, b"client")], api_key=b"engine-key"), name.lower()) == []
    assert named(sent([(name, b"client")], drop_client_key=True), name.lower()) == []


def test_keys_are_what_tells_who_asks() -> None:
    fields = [(b"Authorization", b"Bearer a"), (b"Accept", b"*/*"), (b"COOKIE", b"b=c"), (b"x-api-key", b"d")]
    assert keys(fields) == {(b"authorization", b"Bearer a"), (b"cookie", b"b=c"), (b"x-api-key", b"d")}
    assert keys(fields) == keys(fields[::-1]) != keys(fields[1:])
    assert keys([*fields, (b"Connection", b"cookie")]) == keys([fields[0], fields[3]])


def test_hops_become_one_line_with_our_peer_last() -> None:
    fields = [
        (b"X-Forwarded-For", b"1.1.1.1"),
        (b"Via", b"1.1 edge"),
        (b"x-forwarded-for", b" 2.2.2.2, 3.3.3.3 "),
        (b"x-forwarded-for", b" "),
        (b"x-forwarded-for", b"4\r\n"),
        (b"x-forwarded-for", b"5\n6"),
    ]
    assert named(sent(fields), b"x-forwarded-for") == [b"1.1.1.1, 2.2.2.2, 3.3.3.3, 4, 10.0.0.9"]
    assert named(sent(fields, peer=b""), b"x-forwarded-for") == [b"1.1.1.1, 2.2.2.2, 3.3.3.3, 4"]
    assert named(sent(fields), b"via") == [b"1.1 edge"]


def test_the_request_id_is_ours_alone() -> None:
    assert named(sent([(b"X-Request-ID", b"forged"), (b"x-request-id", b"again")]), b"x-request-id") == [b"r-1"]


UNSENDABLE = [bytes([code]) for code in (*range(0x09), *range(0x0A, 0x20), 0x7F)]


@pytest.mark.parametrize("mark", UNSENDABLE)
def test_a_value_with_a_control_character_is_not_sent_and_the_others_are(mark: bytes) -> None:
    fields = [(b"X", b"a" + mark + b"Evil: 1"), (b"Y", b"b")]
    assert sent(fields) == sent([(b"Y", b"b")])
    assert downstream_fields(fields) == [(b"Y", b"b")]


@pytest.mark.parametrize("field", [(b"X Y", b"a"), (b"", b"a"), (b"X\r", b"a"), (b"X:", b"a"), (b"\xc3\xa4", b"a")])
def test_a_name_that_is_none_is_not_sent(field: tuple[bytes, bytes]) -> None:
    assert sent([field]) == sent([])
    assert downstream_fields([field]) == []


def test_bytes_that_are_no_text_pass_as_they_are() -> None:
    fields = [(b"X", b"\xff\xfe \xe4\tb"), (b"Y", "é".encode())]
    assert sent(fields)[1:-2] == fields
    assert downstream_fields(fields) == fields


@pytest.mark.parametrize("line", [("GET\r\n", "/"), ("GET", "/a\r\nHost: evil"), ("GET", "/\x00")])
def test_a_request_line_that_would_become_two_is_refused(line: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        upstream_head(*line, [], host=b"e", api_key=None, request_id=b"r", peer=b"")


def test_what_is_remembered_of_names_has_a_bound() -> None:
    for number in range(3 * MAX_NAMES):
        assert named(sent([(b"x-%d" % number, b"1")]), b"x-%d" % number) == [b"1"]
        assert len(headers._NAMES) <= MAX_NAMES
    downstream_fields([(b"y" * (MAX_NAME_BYTES + 1), b"1")])
    assert max(map(len, headers._NAMES)) <= MAX_NAME_BYTES


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ([(b"X-Request-Id", b"a")], b"a"),
        ([(b"request-id", b"d"), (b"x-trace-id", b"c"), (b"x-correlation-id", b"b"), (b"x-request-id", b"a")], b"a"),
        ([(b"request-id", b"d"), (b"X-Trace-Id", b"c")], b"c"),
        ([(b"x-request-id", b""), (b"x-correlation-id", b"b")], b"b"),
        ([(b"x-request-id", b"a b"), (b"x-request-id", b"a")], b"a"),
        ([(b"x-request-id", b"a"), (b"x-request-id", b"b")], b"a"),
        ([(b"x-request-id", b"a" * 129)], None),
        ([(b"x-request-id", b"a" * 128)], b"a" * 128),
        ([(b"x-request-id", b"a\n")], None),
        ([(b"x-request-id", "ä".encode())], None),
        ([(b"id", b"a")], None),
    ],
)
def test_the_first_usable_request_id_counts(fields: Fields, found: bytes | None) -> None:
    assert request_id(by_name(fields)) == found


NAMES = st.sampled_from(
    [
        *(b"Connection", b"X-Hop", b"Host", b"Authorization", b"x-api-key", b"X-Forwarded-For", b"Content-Length"),
        *(b"TE", b"Accept", b"cookie", b"X-Crossover-Backend", b"x-request-id", b"X-A", b"x-b"),
    ]
) | st.binary(max_size=8)
VALUES = st.sampled_from([b"close, x-hop", b"authorization", b"keep-alive", b"\xff\xfe", b"a\r\nb: c"]) | st.binary(
    max_size=12
)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=12)


@given(FIELDS, st.none() | st.binary(max_size=8), st.binary(max_size=8), st.binary(max_size=8))
@example([(b"X", b"a\r\nEvil: 1")], b"k\n", b"r\r", b"p\x00")
def test_nothing_forbidden_goes_upstream(fields: Fields, key: bytes | None, identity: bytes, peer: bytes) -> None:
    got = sent(fields, api_key=key, identity=identity, peer=peer)
    names = [name.lower() for name, _ in got]
    assert not HOP_BY_HOP & set(names)
    assert not any(mark in name + value for name, value in got for mark in UNSENDABLE)
    assert names.count(b"host") == 1
    assert names.count(b"x-forwarded-for") <= 1
    assert names.count(b"x-request-id") <= 1
    assert not {b"content-length", b"expect"} & set(names)
    assert not key or names.count(b"authorization") <= 1
    assert not any(name.startswith(OWN_PREFIX) for name in names)


@given(FIELDS, st.booleans())
def test_no_key_of_the_clients_leaks_where_it_is_not_for_the_engine(fields: Fields, ours: bool) -> None:
    secret = b"a client's secret"
    secrets = [(name, secret) for name in (b"Authorization", b"COOKIE", b"Api-Key", b"x-api-key", b"x-goog-api-key")]
    got = head([*fields, *secrets, *fields], api_key=b"k" if ours else None, drop_client_key=not ours)
    assert secret not in got


class Read:
    """What httptools, with which the wire parses heads, makes of one."""

    def __init__(self, head: bytes) -> None:
        self.fields: Fields = []
        self.url = b""
        self.complete = False
        httptools.HttpRequestParser(self).feed_data(head)

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


@given(FIELDS, st.none() | st.just(b"engine-key"))
def test_a_parser_reads_exactly_the_fields_that_were_kept(fields: Fields, key: bytes | None) -> None:
    fields = [(name, value.strip(b" \t")) for name, value in fields]
    read = Read(head(fields, api_key=key))
    assert (read.url, read.complete) == (b"/v1/x?y=z", True)
    assert read.fields == sent(fields, api_key=key)
    ours = {b"host", b"authorization", b"x-forwarded-for", b"x-request-id"}
    rest = iter(fields)
    assert all(field in rest for field in read.fields if field[0].lower() not in ours)


@given(FIELDS)
def test_what_goes_downstream_came_in_that_order(fields: Fields) -> None:
    got = downstream_fields(fields)
    rest = iter(fields)
    assert all(field in rest for field in got)
    assert not HOP_BY_HOP & {name.lower() for name, _ in got}
    assert not any(mark in name + value for name, value in got for mark in UNSENDABLE)
    assert downstream_fields(got) == got


@given(FIELDS)
def test_a_request_id_is_safe_to_write_anywhere(fields: Fields) -> None:
    found = request_id(by_name([*fields, *((b"x-request-id", value) for _, value in fields)]))
    if found is not None:
        assert found.isascii()
        assert found.decode().isprintable()
        assert b" " not in found
        assert 1 <= len(found) <= 128


@pytest.mark.parametrize(
    ("word", "role"),
    [(None, None), (b"speculative", Role.SPECULATIVE), (b"baseline", Role.BASELINE), (b"Baseline", None), (b"", None)],
)
def test_role_that_a_client_asks_for_is_a_word_of_ours_or_none(word: bytes | None, role: Role | None) -> None:
    assert headers.asked_role(word) is role
