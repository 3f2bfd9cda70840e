"""What takes the shortest way is what the strict reader of chunks takes for one whole chunk, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import Dialect
from proxy.protocol.chunks import Chunks
from proxy.protocol.sse import Scanner
from proxy.wire.express import Express

WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'


class Behind:
    """The connection that an express stands before."""

    def __init__(self, express: Express) -> None:
        self.came: list[bytes] = []
        self.told: list[str] = []
        self._express: Any = express
        self._express.behind = self

    def undivert(self) -> None:
        self._express.behind = None

    def data_received(self, data: bytes) -> None:
        self.came.append(data)

    def eof_received(self) -> None:
        self.told.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append("lost")


class Client:
    """A client whose transport keeps what is written to it."""

    def __init__(self) -> None:
        self.transport: Client | None = self
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


class Rig:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.lives: list[float] = []
        self.client = Client()
        client: Any = self.client
        self.express = Express(
            client, Dialect.CHAT, clock=lambda: self.now_s, lives=lambda: self.lives.append(self.now_s)
        )
        self.behind = Behind(self.express)

    def takes(self, data: bytes) -> bool:
        self.express.data_received(data)
        return not self.behind.came


def framed(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event_of(size: int) -> bytes:
    return b"data: {" + b"x" * (size - 10) + b"}\n\n"


def test_whole_event_in_one_whole_chunk_is_written_as_it_came() -> None:
    rig = Rig()
    assert rig.takes(framed(WORD))
    assert rig.client.written == [framed(WORD)]


@pytest.mark.parametrize("size", [0xA, 0xF, 0x10, 0x11, 0xFE, 0xFF, 0x100, 0x101, 0xFFF, 0x1000, 0x5000])
def test_events_of_every_size_are_taken(size: int) -> None:
    rig = Rig()
    assert rig.takes(framed(event_of(size)))
    assert rig.client.written == [framed(event_of(size))]


@pytest.mark.parametrize(
    "data",
    [
        framed(b"a\n\n"),
        framed(b": ping\n\n"),
        framed(b"data: [DONE]\n\n"),
        framed(b"event: error\n" + WORD),
        framed(WORD + WORD),
        framed(WORD.replace(b"null", b'"stop"')),
        framed(b'data: {"choices":[],"usage":{"prompt_tokens":5}}\n\n'),
        framed(b"data: {}\rdata: {}\n\n"),
        framed(WORD[:-1]),
        framed(WORD.replace(b"\n", b"\r\n")),
        framed(WORD)[:-1],
        framed(WORD) + b"0\r\n\r\n",
        framed(WORD) + framed(WORD),
        framed(WORD).upper(),
        b"0" + framed(WORD),
        framed(WORD).replace(b"\r\n", b";a=b\r\n", 1),
        b"%x\r\n%b\r\n" % (len(WORD) + 1, WORD),
        b"%x\r\n%b\r\n" % (len(WORD) - 1, WORD),
        b"ff\r\n" + event_of(0x100) + b"\r\n",
        b"+f\r\n" + event_of(0x0F) + b"\r\n",
        b"0f\r\n" + event_of(0x0F) + b"\r\n",
        framed(b'data: {"error":{"message":"m"}}\n\n'),
        b"",
        b"\n\n\r\n",
        b"0\r\n\r\n",
    ],
)
def test_everything_else_is_the_connections(data: bytes) -> None:
    rig = Rig()
    assert not rig.takes(data)
    assert (rig.behind.came, rig.client.written, rig.express.behind) == ([data], [], None)


@given(
    st.sampled_from([b"data:", b"data: {", b"event: x\ndata: {", b": {", b""]),
    st.binary(max_size=40),
    st.integers(0, 0x120),
    st.booleans(),
    st.sampled_from([b"", b"", b"0\r\n\r\n", b"x"]),
)
def test_what_is_taken_is_one_chunk_and_one_event_to_the_strict_readers(
    begin: bytes, middle: bytes, size: int, counted: bool, behind: bytes
) -> None:
    payload = begin + middle + b"x" * size + b"}\n\n"
    data = (b"%x" % len(payload) if counted else middle[:3]) + b"\r\n" + payload + b"\r\n" + behind
    rig = Rig()
    if rig.takes(data):
        assert Chunks().feed(data) == (data, payload)
        scanner = Scanner(Dialect.CHAT)
        scanner.feed(WORD)
        before = facts(scanner)
        scanner.feed(payload)
        assert (facts(scanner), scanner.events, scanner.at_boundary) == (before, 2, True)


def facts(scanner: Scanner) -> tuple[object, ...]:
    return scanner.finished, scanner.ended, scanner.aborted, scanner.error, scanner.usage, scanner.gave_up


def test_backend_is_said_to_live_now_and_then() -> None:
    rig = Rig()
    for _ in range(100):
        rig.now_s += 0.01
        rig.takes(framed(WORD))
    assert rig.express.at_s == rig.now_s
    assert 9 <= len(rig.lives) <= 11


def test_nothing_is_written_to_a_client_that_is_gone() -> None:
    rig = Rig()
    rig.client.transport = None
    assert rig.takes(framed(WORD))
    assert rig.client.written == []


def test_the_end_of_the_connection_is_told_to_it() -> None:
    rig = Rig()
    rig.express.eof_received()
    rig.behind = Behind(rig.express)
    rig.express.connection_lost(None)
    assert rig.behind.told == ["lost"]
