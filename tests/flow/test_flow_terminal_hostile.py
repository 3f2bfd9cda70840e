"""Whatever answers in the place of a proxy: a page that cannot steer the terminal, or a clear error. Nothing else."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.certificates import Files
from fakes.operators import STATUS, operators
from fakes.watched import WATCHED
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.terminal import explain, port, status
from proxy.terminal import top as live
from proxy.terminal.bars import BLOCKS
from proxy.terminal.cells import MOST, clock, counted, duration, figure
from proxy.terminal.frame import frame
from proxy.terminal.port import Port, Unanswered, understood
from proxy.terminal.saying import escaped
from proxy.terminal.status import known
from proxy.terminal.view import look

EVIL = "\x1b]0;PWNED\x07\x9b2J\u202e\x7f"
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, 1e30, -1e30, float("nan"), float("inf")])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=9) | st.just(EVIL)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
BACKENDS = st.sampled_from(sorted(STATUS["backends"][0]))
STATUSES = st.dictionaries(st.sampled_from(sorted(STATUS)), JSON, max_size=4).map(lambda odd: {**STATUS, **odd})
ODD_BACKENDS = st.dictionaries(BACKENDS, JSON, max_size=3).map(
    lambda odd: {**STATUS, "backends": [{**each, **odd} for each in STATUS["backends"]]}
)
COLUMNS = WATCHED["history"]["columns"]
HISTORIES = JSON | st.builds(
    lambda rows, step_s: {"columns": COLUMNS, "samples": rows, "step_s": step_s},
    st.lists(st.lists(JSON, min_size=len(COLUMNS), max_size=len(COLUMNS)), max_size=2),
    JSON,
)
DECISION = st.fixed_dictionaries(
    {},
    optional={
        "at_s": JSON,
        "role": JSON,
        "reason": JSON,
        "because": JSON
        | st.dictionaries(st.sampled_from(["speculative_in_flight", "baseline_in_flight", "speculative_cost_s"]), JSON),
    },
)
DECISIONS = JSON | st.lists(DECISION, max_size=3).map(lambda found: {"decisions": found})
EVENT = st.fixed_dictionaries({}, optional={"at_s": JSON, "sentence": JSON})
JOURNALS = JSON | st.lists(EVENT, max_size=3).map(lambda found: {"events": found})


class Answers(Port):
    """A port that has its answers at hand; nothing is asked."""

    def __init__(self, **answers: Any) -> None:
        self.url = "http://127.0.0.1:29000"
        self.answers = {f"/{name}": json.dumps(value) for name, value in answers.items()}

    def text(self, path: str) -> str:
        return self.answers[path.partition("?")[0]]


def is_harmless(text: str) -> bool:
    return all(" " <= each <= "~" or each in BLOCKS for each in text)


@settings(max_examples=60)
@given(JSON | STATUSES | ODD_BACKENDS)
def test_any_json_in_place_of_a_status_is_a_harmless_page_or_the_clear_error(told: Any) -> None:
    asked = Answers(status=told)
    with contextlib.suppress(Unanswered):
        found = known(asked, asked.json("/status"))
        with understood(asked.url):
            lines = status.page(asked.url, found, 80)
        assert all(is_harmless(line) for line in lines), lines


@settings(max_examples=60)
@given(STATUSES | ODD_BACKENDS | st.just(STATUS), HISTORIES, DECISIONS, JOURNALS)
def test_any_json_in_place_of_what_top_reads_is_a_harmless_frame_or_the_clear_error(
    told: Any, history: Any, decisions: Any, journal: Any
) -> None:
    asked = Answers(status=told, history=history, decisions=decisions, journal=journal)
    with contextlib.suppress(Unanswered):
        lines = live._drawn(look(asked), 80, 24, "", BLOCKS)
        assert all(is_harmless(text) for line in lines for text, _ in line), lines


@given(st.lists(JSON, max_size=4))
def test_any_json_in_place_of_sentences_is_a_harmless_page(found: list[Any]) -> None:
    assert all(is_harmless(line) for line in explain.page([str(each) for each in found], 80))


@pytest.mark.parametrize(
    "odd",
    [
        {"leave_at": EVIL, "enter_at": EVIL},
        {"backends": [{"role": "speculative", "engine_running": EVIL}]},
        {"backends": [{"role": "speculative", "engine_running": 1, "engine_waiting": EVIL}]},
        {"smoothed": None, "waiting": "x", "connections": EVIL, "regime_age_s": float("inf")},
        {"dropped_in_flight": {EVIL: EVIL}},
    ],
)
def test_one_odd_value_leaves_the_rest_of_the_page_to_be_read(
    odd: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with operators(status={**STATUS, **odd}, **WATCHED) as asked:
        assert status.show(asked.url) == 0
        lines = frame(look(Port(asked.url)), 80, 24)
    said = capsys.readouterr().out
    assert "New requests go to speculative." in said
    assert is_harmless(said.replace("\n", "")) and all(is_harmless(text) for line in lines for text, _ in line)


@pytest.mark.parametrize(
    "odd",
    [
        {"urls": ["x"]},
        {"engines": ["x"]},
        {"warnings": ["x"]},
        {"verdict": 5},
        {"learning": "x"},
        {"dropped_in_flight": ["x"]},
        {"backends": [{"role": {}}]},
        b"[" * 200_000,
        b"1" * 5000,
    ],
)
def test_what_no_page_can_be_made_of_is_the_clear_error(odd: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = {**STATUS, **odd} if isinstance(odd, dict) else (200, odd)
    with operators(status=told) as asked:
        assert status.show(asked.url) == 1
    said = capsys.readouterr()
    assert (said.out, "not as a Crossover does" in said.err) == ("", True)


@pytest.mark.parametrize("value", [None, "x", [], float("nan"), float("inf"), -float("inf"), 10**400, MOST])
def test_what_is_no_number_is_told_as_not_known(value: Any) -> None:
    assert (figure(value), figure(value, "{:.2f}"), duration(value), clock(value)) == ("-", "-", "-", "")
    assert counted(value, "request") == "- requests"


def test_json_is_told_in_ascii_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    told = {**STATUS, "engines": {"speculative": {"model": EVIL + "\U0001f600\u4e2d"}}}
    text = json.dumps(told, ensure_ascii=False, indent=2).replace("\n", "\r\n")
    sentences = {"sentences": [EVIL]}
    with operators(status=(200, text.encode()), decisions=sentences) as asked:
        assert status.show(asked.url, as_json=True) == 0
        said = capsys.readouterr().out
        assert explain.explain("a", asked.url, as_json=True) == 0
        explained = capsys.readouterr().out
    assert json.loads(said) == told and json.loads(explained) == sentences
    assert is_harmless((said + explained).replace("\n", ""))


@given(JSON)
def test_an_escaped_document_is_the_same_document(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert json.dumps(json.loads(escaped(text))) == json.dumps(json.loads(text))
    assert is_harmless(escaped(text))


# ---------------------------------------------------------------- an answer that does not end


@contextlib.contextmanager
def peer(answer: Callable[[socket.socket, threading.Event], None], *, reads: bool = True) -> Iterator[str]:
    """A server that answers its first connection as it likes, until the event is set, after it has read the question if
    it `reads`; its URL."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connected, _ = server.accept()
                with connected:
                    if reads:
                        connected.recv(65536)
                    answer(connected, over)

        thread = threading.Thread(target=serve, name="peer", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


# Ten times the deadline of these tests, so that what has none ends all the same, and whole.
DRIPS, PAUSE_S, WITHIN_S = 200, 0.02, 0.4


def dripping(begin: bytes, each: bytes, end: bytes) -> Callable[[socket.socket, threading.Event], None]:
    def answer(connected: socket.socket, over: threading.Event) -> None:
        connected.sendall(begin)
        for _ in range(DRIPS):
            connected.sendall(each)
            if over.wait(PAUSE_S):
                return
        connected.sendall(end)

    return answer


WHOLE = json.dumps(STATUS).encode()
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (DRIPS + len(WHOLE))


@pytest.mark.parametrize(
    "answer",
    [
        dripping(SIZED, b" ", WHOLE),
        dripping(b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE, b" ", b" "),
        dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", b"\r\n\r\n" + WHOLE),
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", b"0\r\n\r\n"),
    ],
    ids=["body", "body until the end", "head", "chunks"],
)
def test_an_answer_that_comes_by_drops_has_one_deadline(
    answer: Callable[[socket.socket, threading.Event], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port, "ASK_WITHIN_S", WITHIN_S)
    with peer(answer) as url:
        assert status.show(url) == 1
    assert "no whole answer within 0.4 s" in capsys.readouterr().err


def test_an_answer_over_tls_that_comes_by_drops_has_the_same_deadline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "ASK_WITHIN_S", WITHIN_S)
    files, whole = Files(tmp_path), threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.section["cert_file"], files.section["key_file"])

    def answer(connected: socket.socket, over: threading.Event) -> None:
        with context.wrap_socket(connected, server_side=True) as secured:
            secured.recv(65536)
            dripping(SIZED, b" ", WHOLE)(secured, over)
        whole.set()

    with peer(answer, reads=False) as url:
        assert status.show(url.replace("http:", "https:"), ca_file=files.ca_file) == 1
        assert not whole.is_set()
    assert "no whole answer within 0.4 s" in capsys.readouterr().err


def reset(connected: socket.socket, over: threading.Event) -> None:
    connected.sendall(b"HTTP/1.1 404 no\r\nContent-Length: 100\r\n\r\nabc")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def stalled(connected: socket.socket, over: threading.Event) -> None:
    connected.sendall(b"HTTP/1.1 404 no\r\nContent-Length: 100\r\n\r\nabc")
    over.wait(10)


@pytest.mark.parametrize("answer", [reset, stalled, dripping(b"HTTP/1.1 404 no\r\n\r\n", b" ", b'{"error": "late"}')])
def test_an_error_whose_body_does_not_come_whole_is_told_by_its_status(
    answer: Callable[[socket.socket, threading.Event], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "ASK_WITHIN_S", WITHIN_S)
    with peer(answer) as url, pytest.raises(Unanswered) as refused:
        Port(url).text("/explain/x")
    # A reset may come before the head was read.
    assert (refused.value.status, refused.value.told) in {(404, None), (0, None)}
    if answer is not reset:
        assert refused.value.status == 404


def test_a_redirect_is_within_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "ASK_WITHIN_S", WITHIN_S)
    with peer(dripping(SIZED, b" ", WHOLE)) as slow:

        def sent_on(connected: socket.socket, over: threading.Event) -> None:
            connected.sendall(b"HTTP/1.1 302 on\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % slow.encode())

        with peer(sent_on) as url, pytest.raises(Unanswered, match="no whole answer within"):
            Port(url).text("/status")
