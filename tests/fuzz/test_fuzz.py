"""Every target on every input of its corpus, and on some made from them: the same ones each time.

Not here: the targets (targets.py), and the long runs that follow coverage (scripts/fuzz).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.unfreed import unfreed
from fuzz import house, http_reader
from fuzz.http_reader import read_requests
from fuzz.mutations import mutated
from fuzz.targets import CORPUS, TARGETS, Target

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\n"
# Garbage is kept until it is counted: a few hundred inputs make enough.
UNFREED = 300
INPUTS = [(target, path) for target in TARGETS.values() for path in target.seeds()]


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    house.leave()


@pytest.mark.parametrize(("target", "path"), INPUTS, ids=[f"{one.name}-{path.name}" for one, path in INPUTS])
def test_its_properties_hold_on_what_was_found_before(target: Target, path: Path) -> None:
    target.run(path.read_bytes())


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_its_properties_hold_on_inputs_made_from_the_corpus(target: Target) -> None:
    seeds = [path.read_bytes() for path in target.seeds()]
    for data in mutated(seeds, target.words, target.executions, target.name):
        try:
            target.run(data)
        except Exception as error:
            error.add_note(f"target {target.name}, input {data!r}: save it in {target.corpus}")
            raise


@pytest.mark.parametrize("target", [TARGETS["front"], TARGETS["backend"]], ids=lambda target: target.name)
def test_nothing_of_a_connection_waits_for_the_garbage_collector(target: Target) -> None:
    seeds = [path.read_bytes() for path in target.seeds()]
    target.run(seeds[0])  # makes what all of them share
    with unfreed() as found:
        for data in [*seeds, *mutated(seeds, target.words, UNFREED, target.name)]:
            target.run(data)
    assert not found


def test_every_folder_of_the_corpus_is_some_targets() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


def test_the_same_arguments_make_the_same_inputs() -> None:
    made = [list(mutated([b"abc", b"12"], [b"x"], 50, "a")) for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 25


@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        POST + b"Content-Length: +0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
        POST + b"X: a\r\n folded\r\n\r\n",
        POST + b"X: a\rb\r\n\r\n",
        b"POST / HTTP/1.1\n\n",
        b"POST /\x81 HTTP/1.1\r\n\r\n",
        b"POST / / HTTP/1.1\r\n\r\n",
    ],
)
def test_the_strict_reader_finds_nothing_in_what_can_be_read_in_two_ways(sent: bytes) -> None:
    assert read_requests(sent + GET) == ([], "malformed")


def test_the_strict_reader_finds_requests_one_after_the_other() -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    found, rest = read_requests(GET + chunked + POST + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi" + GET)
    assert [(one.method, one.body) for one in found] == [(b"GET", b""), (b"POST", b"abc"), (b"POST", b"hi")]
    assert rest == "closed"


def test_the_strict_reader_tells_a_whole_answer_from_one_that_broke_off() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    answers = [http_reader.read_responses(head + body, [b"GET"], closed=True)[0] for body in (b"12345", b"123")]
    assert [(one.whole, one.body) for one in answers] == [(True, b"12345"), (False, b"123")]
