"""A collector that answers without end, by drops, packed or with a redirect: the sender reads little and goes on."""

import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import requests
from fakes.threaded import Quiet, in_a_thread

from proxy.traces import session
from proxy.traces.session import CREDENTIALS, MAX_ANSWER_BYTES, Bounded

# What is sent without end ends here all the same: far above what sockets hold.
ENOUGH_BYTES = 64 << 20


class Peer:
    """Where a collector is, what it has sent, and how many connections came."""

    def __init__(self) -> None:
        self.url = ""
        self.sent_bytes = 0
        self.connections: set[Any] = set()
        self.over = threading.Event()

    def send(self, handler: BaseHTTPRequestHandler, piece: bytes) -> None:
        self.sent_bytes += len(piece)  # before whoever reads it can look
        handler.wfile.write(piece)


@contextlib.contextmanager
def answering(answer: Callable[[Peer, BaseHTTPRequestHandler], None]) -> Iterator[Peer]:
    peer = Peer()

    class Handler(Quiet, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            peer.connections.add(self.client_address)
            with contextlib.suppress(OSError):
                answer(peer, self)

    with in_a_thread(Handler, "peer") as port:
        peer.url = f"http://127.0.0.1:{port}/v1/traces"
        try:
            yield peer
        finally:
            peer.over.set()


@pytest.fixture
def sender() -> Iterator[Bounded]:
    with Bounded() as made:
        made.trust_env = False
        yield made


def head(handler: BaseHTTPRequestHandler, *fields: tuple[str, str], status: int = 200) -> None:
    handler.send_response(status)
    for name, value in fields:
        handler.send_header(name, value)
    handler.end_headers()


def endless(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
    head(handler, ("Connection", "close"))
    while peer.sent_bytes < ENOUGH_BYTES:
        peer.send(handler, b"x" * 65536)


def bomb(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
    packed = gzip.compress(b"x" * ENOUGH_BYTES)
    head(handler, ("Content-Encoding", "gzip"), ("Content-Length", str(len(packed))))
    peer.send(handler, packed)


def usual(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
    head(handler, ("Content-Length", "3"))
    peer.send(handler, b"{} ")


def dripping(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
    head(handler, ("Content-Length", "200"))
    for _ in range(200):
        peer.send(handler, b"x")
        if peer.over.wait(0.02):
            break


def test_an_endless_answer_is_left_after_little_of_it(sender: Bounded) -> None:
    with answering(endless) as peer, pytest.raises(requests.RequestException, match="too long"):
        sender.post(peer.url, data=b"spans", timeout=30)
    assert peer.sent_bytes < ENOUGH_BYTES


def test_a_packed_answer_is_not_unpacked(sender: Bounded, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    drain = session._drain

    def noted(answer: requests.Response) -> None:
        read1 = answer.raw.read1

        def counted(*wanted: Any, **more: Any) -> bytes:
            piece: bytes = read1(*wanted, **more)
            read.append(len(piece))
            return piece

        answer.raw.read1 = counted
        drain(answer)

    monkeypatch.setattr(session, "_drain", noted)
    with answering(bomb) as peer, contextlib.suppress(requests.RequestException):
        sender.post(peer.url, data=b"spans", timeout=30)
    assert sum(read) <= min(peer.sent_bytes, MAX_ANSWER_BYTES + session.PIECE_BYTES)


def test_an_answer_by_drops_has_one_deadline(sender: Bounded) -> None:
    with answering(dripping) as peer:
        with pytest.raises(requests.ReadTimeout):
            sender.post(peer.url, data=b"spans", timeout=0.3)
        assert peer.sent_bytes < 200


def dripping_head(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
    peer.send(handler, b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(200):
        peer.send(handler, b"x")
        if peer.over.wait(0.02):
            break


def test_a_head_by_drops_has_the_same_deadline(sender: Bounded) -> None:
    with answering(dripping_head) as peer:
        with pytest.raises(requests.ReadTimeout):
            sender.post(peer.url, data=b"spans", timeout=0.3)
        assert peer.sent_bytes < 200


def test_the_deadline_holds_on_a_connection_that_was_kept(sender: Bounded) -> None:
    answers = iter((usual, dripping_head, usual))

    def in_turn(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
        next(answers)(peer, handler)

    with answering(in_turn) as peer:
        assert sender.post(peer.url, data=b"spans", timeout=30).status_code == 200
        with pytest.raises(requests.ReadTimeout):
            sender.post(peer.url, data=b"spans", timeout=0.3)
        assert len(peer.connections) == 1
        assert sender.post(peer.url, data=b"spans", timeout=30).status_code == 200


def test_a_handshake_by_drops_has_the_same_deadline(sender: Bounded) -> None:
    """A plain listener that sends the bytes of a record of TLS, one now and then."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        with connected, contextlib.suppress(OSError):
            connected.sendall(b"\x16\x03\x03\x40\x00")
            for _ in range(200):
                connected.sendall(b"x")
                if over.wait(0.02):
                    break

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,), daemon=True)
        thread.start()
        with pytest.raises(requests.ReadTimeout):
            sender.post(f"https://127.0.0.1:{listener.getsockname()[1]}/", data=b"spans", timeout=0.3)
        over.set()
        thread.join(10)


def test_interim_heads_without_end_are_left_after_few(sender: Bounded) -> None:
    def hints(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
        while peer.sent_bytes < ENOUGH_BYTES:
            peer.send(handler, b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with answering(hints) as peer, pytest.raises(requests.RequestException, match="more heads"):
        sender.post(peer.url, data=b"spans", timeout=30)
    assert peer.sent_bytes < ENOUGH_BYTES


def test_an_answer_that_is_cut_is_told_as_a_failure_to_be_tried_again(sender: Bounded) -> None:
    def cut(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
        head(handler, ("Content-Length", "200"), ("Connection", "close"))
        peer.send(handler, b"x")

    with answering(cut) as peer, pytest.raises(requests.ReadTimeout):
        sender.post(peer.url, data=b"spans", timeout=30)


def test_a_redirect_is_a_failure(sender: Bounded) -> None:
    def sent_on(peer: Peer, handler: BaseHTTPRequestHandler) -> None:
        head(handler, ("Location", peer.url), ("Content-Length", "0"), status=307)

    with answering(sent_on) as peer, pytest.raises(requests.RequestException, match="elsewhere"):
        sender.post(peer.url, data=b"spans", timeout=30)


def test_usual_answers_are_taken_over_one_connection(sender: Bounded) -> None:
    with answering(usual) as peer:
        assert [sender.post(peer.url, data=b"spans", timeout=30).status_code for _ in range(3)] == [200] * 3
    assert len(peer.connections) == 1


def test_a_session_that_the_environment_names_is_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    assert isinstance(session.session(), Bounded)
    monkeypatch.setenv(CREDENTIALS[1], "gcp")
    assert session.session() is None
