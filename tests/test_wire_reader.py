"""Requests are found in a client's bytes the same however these are cut."""

import asyncio
import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fakes.serving import front_of
from fakes.until import turns
from fuzz.pipes import Pipe
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import CrossoverError
from proxy.protocol.fields import Fields
from proxy.wire.arrivals import ConnectionRules
from proxy.wire.downstream import Reply
from proxy.wire.reader import Reader
from proxy.wire.request import Request

HOST = SimpleNamespace(rules=ConnectionRules(max_head_bytes=4096, max_headers=30))


@dataclass
class Hearer:
    """A client that notes what its reader finds."""

    requests: list[Request] = field(default_factory=list)
    refusals: list[CrossoverError] = field(default_factory=list)
    peer: str = ""
    host: Any = field(default_factory=lambda: HOST)

    def asked(self, request: Request) -> None:
        assert not self.refusals
        self.requests.append(request)

    def refuse(self, error: CrossoverError, *, bodiless: bool) -> None:
        self.refusals.append(error)

    def pause(self) -> None:
        """Nothing is read from anywhere."""

    def resume(self) -> None:
        """See pause."""


Found = tuple[str, str, Fields, bool, bytes, bool]


def found_in(pieces: list[bytes]) -> tuple[list[Found], list[str], bool]:
    """The requests with their bodies, how it ended, and whether more would be read."""
    hearer: Any = Hearer()
    reader = Reader(hearer)
    for piece in pieces:
        if not reader.closed:
            reader.feed(piece)
    requests = [
        (each.method, each.target, each.fields, each.keeps, each.incoming.take(), each.incoming.ended)
        for each in hearer.requests
    ]
    return requests, [error.code for error in hearer.refusals], reader.closed


NAMES = st.sampled_from([b"Accept", b"accept", b"X-A", b"x-a", b"Content-Type"])
VALUES = st.sampled_from([b"", b"x", b"a  b", b"\xc3\xa9", b"b" * 300])
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
BODY = st.binary(max_size=200)
H2C = [(b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAA")]


def spelt(method: bytes, target: bytes, fields: Fields, rest: bytes) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % each for each in fields)
    return b"%b %b HTTP/1.1\r\n%b%b" % (method, target, lines, rest)


@st.composite
def requests_of(draw: st.DrawFn) -> tuple[bytes, Found]:
    """One request as it is sent, and as it is to be found."""
    method, target = draw(st.sampled_from(["GET", "POST", "PUT"])), draw(st.sampled_from(["/", "/v1/x?a=%2F", "*"]))
    target = "/" if target == "*" and method != "OPTIONS" else target
    fields, body = [*draw(FIELDS), (b"Host", b"x")], draw(BODY)
    if draw(st.integers(0, 4)) == 0:
        fields = fields + H2C
    framing = draw(st.sampled_from(["none", "length", "chunked"]))
    if framing == "none":
        body, rest = b"", b"\r\n"
    elif framing == "length":
        fields, rest = [*fields, (b"Content-Length", b"%d" % len(body))], b"\r\n" + body
    else:
        fields = [*fields, (b"Transfer-Encoding", b"chunked")]
        size = draw(st.integers(1, 50))
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        trailer = draw(st.sampled_from([b"", b"x-t: 1\r\n"]))
        framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        rest = b"\r\n" + framed + b"0\r\n" + trailer + b"\r\n"
    sent = draw(st.sampled_from([b"", b"\r\n"])) + spelt(method.encode(), target.encode(), fields, rest)
    return sent, (method, target, fields, True, body, True)


STREAMS = st.lists(requests_of(), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 4000), max_size=12)
ENDINGS = st.sampled_from(
    [b"", b"nonsense\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"GET / HTTP/1.1\r\na: " + b"b" * 5000 + b"\r\n\r\n", b"GET"]
)


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(each, len(whole)) for each in cuts} | {0, len(whole)})
    return [whole[begin:end] for begin, end in itertools.pairwise(places)]


@given(STREAMS, CUTS)
def test_valid_stream_gives_the_same_requests_however_it_is_cut(
    stream: list[tuple[bytes, Found]], cuts: list[int]
) -> None:
    whole = b"".join(sent for sent, _ in stream)
    assert found_in(cut(whole, cuts)) == ([found for _, found in stream], [], False)


@given(STREAMS)
def test_valid_stream_gives_the_same_requests_byte_by_byte(stream: list[tuple[bytes, Found]]) -> None:
    whole = b"".join(sent for sent, _ in stream)
    assert found_in([whole[at : at + 1] for at in range(len(whole))])[0] == [found for _, found in stream]


@given(STREAMS, ENDINGS, CUTS)
def test_what_is_no_request_is_refused_once_and_behind_the_same_requests_however_it_is_cut(
    stream: list[tuple[bytes, Found]], ending: bytes, cuts: list[int]
) -> None:
    whole = b"".join(sent for sent, _ in stream) + ending
    assert found_in(cut(whole, cuts)) == found_in([whole])


@given(st.binary(max_size=300), CUTS)
def test_any_bytes_are_refused_at_most_once_and_never_break_the_reader(data: bytes, cuts: list[int]) -> None:
    _, refusals, closed = found_in(cut(data, cuts))
    assert len(refusals) <= 1
    assert closed or not refusals


async def echo(asked: Request) -> Reply:
    body = b""
    while piece := await asked.incoming.more():
        body += piece
    return Reply(200, [(b"Date", b"today")], f"{asked.method} {asked.target} ".encode() + body)


async def answers_to(pieces: list[bytes], turns_between: int) -> bytes:
    front, _ = front_of(echo)
    client = front()
    pipe = Pipe(client)
    client.connection_made(pipe)
    for piece in pieces:
        pipe.give(piece)
        await turns(turns_between)
    await turns(60)
    pipe.end()
    await front.close(5.0)
    return bytes(pipe.written)


@given(STREAMS, CUTS, st.integers(0, 3))
def test_answers_are_the_same_however_the_requests_are_cut(
    stream: list[tuple[bytes, Found]], cuts: list[int], turns_between: int
) -> None:
    whole = b"".join(sent for sent, _ in stream)
    expected = b""
    for _, (method, target, _, _, body, _) in stream:
        told = f"{method} {target} ".encode() + body
        head = b"HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: %d\r\nServer: crossover\r\n\r\n"
        expected += head % len(told) + told
    assert asyncio.run(answers_to(cut(whole, cuts), turns_between)) == expected
