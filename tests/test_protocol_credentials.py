"""The keys that a request carries are found wherever clients put them, and compared to the end."""

import base64
import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.credentials import MAX_USER_CHARS, ClientKey, carries_token, client_of, presented_keys, user_of
from proxy.protocol.fields import Fields

CLIENTS = tuple(ClientKey(name, sha256(f"key of {name}".encode()).digest()) for name in ("a", "b", "c"))


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ([(b"Authorization", b"Bearer k")], (b"k",)),
        ([(b"authorization", b"bearer   k ")], (b"k",)),
        ([(b"AUTHORIZATION", b"BEARER k l")], (b"k l",)),
        ([(b"X-Api-Key", b" k ")], (b"k",)),
        ([(b"Api-Key", b"k")], (b"k",)),
        ([(b"api-key", b"3"), (b"x-api-key", b"2"), (b"authorization", b"Bearer 1")], (b"1", b"2", b"3")),
        ([(b"x-api-key", b"first"), (b"X-API-KEY", b"second")], (b"first",)),
        ([(b"authorization", b"Basic Zm9v")], ()),
        ([(b"authorization", b"k")], ()),
        ([(b"authorization", b"Bearer")], ()),
        ([(b"authorization", b"Bearer ")], ()),
        ([(b"x-api-key", b"")], ()),
        ([(b"cookie", b"key=k"), (b"x-key", b"k")], ()),
        ([], ()),
    ],
)
def test_keys_are_found_where_clients_put_them(fields: Fields, keys: tuple[bytes, ...]) -> None:
    assert presented_keys(fields) == keys


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_client_is_known_by_its_key(name: str) -> None:
    assert client_of(CLIENTS, [f"key of {name}".encode()]) == name
    assert client_of(CLIENTS, [b"wrong", f"key of {name}".encode()]) == name


@pytest.mark.parametrize(
    "keys", [[], [b""], [b"key of"], [b"key of d"], [b"key of a "], [CLIENTS[0].digest], [b"a"], [b"\xff"]]
)
def test_no_other_key_is_known(keys: list[bytes]) -> None:
    assert client_of(CLIENTS, keys) is None


def test_of_two_known_keys_the_first_counts() -> None:
    assert client_of(CLIENTS, [b"key of c", b"key of a"]) == "c"


@pytest.mark.parametrize("key", [b"key of a", b"key of b", b"key of c", b"wrong", b""])
def test_a_key_is_compared_with_every_client_by_digests_whatever_it_is(
    monkeypatch: pytest.MonkeyPatch, key: bytes
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    client_of(CLIENTS, [key])
    assert compared == [(sha256(key).digest(), client.digest) for client in CLIENTS]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("said", "carried"),
    [
        ("Bearer sesame", True),
        ("bearer  sesame ", True),
        (basic("", "sesame"), True),
        (basic("anybody", "sesame"), True),
        (basic("sesame", ""), False),
        (basic("x", "sesame:"), False),
        ("sesame", False),
        ("Bearer sesam", False),
        ("Bearer sesame2", False),
        ("Bearer", False),
        ("Basic", False),
        ("Basic sesame", False),
        ("Basic \udcff", False),
        ("Basic é", False),
        ("Digest sesame", False),
        ("", False),
    ],
)
def test_a_token_is_carried_as_bearer_or_as_the_password_of_any_user(said: str, carried: bool) -> None:
    assert carries_token(said, "sesame") is carried


def test_a_token_is_compared_by_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[set[bytes]] = []
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(set(both)))
    carries_token("Bearer guess", "sesame")
    assert compared == [{sha256(b"guess").digest(), sha256(b"sesame").digest()}]


TOKENS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)


@given(said=TOKENS, token=TOKENS)
def test_no_text_but_the_token_is_the_token(said: str, token: str) -> None:
    assert carries_token(f"Bearer {said}", token) is (said == token)
    assert carries_token(basic("user", said), token) is (said == token)


def test_a_token_of_other_letters_is_carried_as_latin_1_in_basic_and_as_utf_8_in_bearer() -> None:
    assert carries_token("Bearer sésame", "sésame")
    assert carries_token("Basic " + base64.b64encode("x:sésame".encode("latin-1")).decode(), "sésame")


# ---------------------------------------------------------------- the user, for the log


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("ada", "ada"),
        ("x" * MAX_USER_CHARS, "x" * MAX_USER_CHARS),
        ("x" * (MAX_USER_CHARS + 1), None),
        ("", None),
        ("sesame", None),
        ("xsesamex", None),
        ("a\nb", None),
        ("caf\u00e9", None),
    ],
)
def test_the_user_is_told_where_it_is_a_name_and_not_the_token(user: str, shown: str | None) -> None:
    assert user_of(basic(user, "sesame"), "sesame") == shown


def test_without_a_basic_user_there_is_none() -> None:
    assert [user_of(said, None) for said in ("", "Bearer sesame", "Basic", "Basic %%%", "Basic Og==")] == [None] * 5


@given(st.text())
def test_no_header_breaks_the_telling_of_its_user(said: str) -> None:
    for each in (said, f"Basic {said}"):
        user = user_of(each, "sesame")
        assert user is None or "sesame" not in user
