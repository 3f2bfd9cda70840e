"""A keys file gives its clients, or every fault with its line and its mend."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.client_keys import MAX_CLIENTS, PREFIX, line_for, read_clients
from proxy.protocol.credentials import ClientKey

A, B = (sha256(key).hexdigest() for key in (b"a", b"b"))
NAMES = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,31}", fullmatch=True).filter(lambda name: name not in ("none", "other"))


def faults_of(text: str) -> list[tuple[int, str]]:
    """Line of each fault and what comes before its mend."""
    return [(fault.line, fault.message.partition("; ")[0]) for fault in read_clients(text)[1]]


def test_one_client_a_line_with_comments_and_blank_lines() -> None:
    text = f"# our clients\n\nalpha {A}\n  beta-2\t{B.upper()}  # the batch job\r\n"
    clients, faults = read_clients(text)
    assert (clients, faults) == (
        (ClientKey("alpha", bytes.fromhex(A)), ClientKey("beta-2", bytes.fromhex(B))),
        (),
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "holds no key"),
        ("# nothing\n\n", 0, "holds no key"),
        ("alpha\n", 1, "must be a name and a SHA-256"),
        (f"alpha {A} more\n", 1, "must be a name and a SHA-256"),
        (f"Alpha {A}\n", 1, "must begin with a name"),
        (f"-a {A}\n", 1, "must begin with a name"),
        (f"{'a' * 33} {A}\n", 1, "must begin with a name"),
        (f"é {A}\n", 1, "must begin with a name"),
        (f"none {A}\n", 1, "must not be named none"),
        (f"other {A}\n", 1, "must not be named other"),
        (f"alpha {A[:-1]}\n", 1, "must end with a SHA-256"),
        (f"alpha {A[:-1]}g\n", 1, "must end with a SHA-256"),
        (f"{A} alpha\n", 1, "must begin with a name"),
        (f"alpha {sha256(b'').hexdigest()}\n", 1, "is the SHA-256 of nothing"),
        (f"alpha {PREFIX}abc\n", 1, "holds a key itself, which is known to whoever reads this file"),
        (f"alpha {A}\n\nalpha {B}\n", 3, "has the name of line 1"),
        (f"alpha {A}\nbeta {A.upper()}\n", 2, "has the key of line 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_its_mend(text: str, line: int, words: str) -> None:
    assert faults_of(text) == [(line, words)]
    assert "mend: " in read_clients(text)[1][0].message


def test_every_fault_is_told_at_once() -> None:
    assert [line for line, _ in faults_of(f"A {A}\nb {B}\nb x\nb {B}\n")] == [1, 3, 4, 4]


def test_more_clients_than_are_compared_in_no_time_are_refused() -> None:
    lines = [f"c{number} {sha256(b'%d' % number).hexdigest()}" for number in range(MAX_CLIENTS + 1)]
    assert read_clients("\n".join(lines[:-1]))[1] == ()
    assert faults_of("\n".join(lines)) == [(0, f"holds more than {MAX_CLIENTS} keys")]


@given(name=NAMES, key=st.text(min_size=1))
def test_the_line_for_a_key_lets_that_key_in(name: str, key: str) -> None:
    assert read_clients(line_for(name, key)) == ((ClientKey(name, sha256(key.encode()).digest()),), ())


@pytest.mark.parametrize("name", ["", "A", "a b", "none", "a" * 33, "a\n"])
def test_there_is_no_line_for_a_name_that_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="mend: "):
        line_for(name, "key")


@given(st.text())
def test_any_text_gives_clients_or_faults_and_never_quotes_itself(text: str) -> None:
    clients, faults = read_clients(text)
    assert bool(clients) or bool(faults)
    assert all("secret-text" not in fault.message for fault in read_clients(f"secret-text {text}\n")[1])
