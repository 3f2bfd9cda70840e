"""`crossover key NAME` tells a fresh key once, with the line that lets it in."""

import base64

import pytest

from proxy.__main__ import main
from proxy.issue import KEY_BYTES
from proxy.protocol.client_keys import PREFIX, read_clients
from proxy.protocol.credentials import client_of


def made(capsys: pytest.CaptureFixture[str], name: str) -> tuple[str, str]:
    """The key and its line: alone on standard output, for scripts."""
    assert main(["key", name]) == 0
    key, line = capsys.readouterr().out.splitlines()
    return key, line


def test_the_line_lets_the_key_in_and_does_not_hold_it(capsys: pytest.CaptureFixture[str]) -> None:
    key, line = made(capsys, "alpha")
    clients, faults = read_clients(line)
    assert (client_of(clients, [key.encode()]), faults) == ("alpha", ())
    assert key not in line


def test_a_key_is_known_by_its_beginning_and_has_256_random_bits(capsys: pytest.CaptureFixture[str]) -> None:
    keys = {made(capsys, "alpha")[0] for _ in range(20)}
    assert len(keys) == 20
    assert all(key.startswith(PREFIX) for key in keys)
    assert {len(base64.urlsafe_b64decode(key.removeprefix(PREFIX) + "=")) for key in keys} == {KEY_BYTES} == {32}


def test_people_are_told_what_is_what_and_never_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "alpha"]) == 0
    said = capsys.readouterr()
    assert "alpha alone" in said.err
    assert "listen.api_keys_file" in said.err
    assert PREFIX not in said.err


@pytest.mark.parametrize("name", ["Alpha", "a b", "none", ""])
def test_a_name_that_the_file_would_not_take_gets_no_key(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["key", name]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "mend: " in said.err


def test_a_wrong_name_is_told_in_the_commands_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "bad name"]) == 1
    assert capsys.readouterr().err.startswith("NAME is ")


@pytest.mark.parametrize("name", ["a", "0", "team-a", "a_b-9", "a" * 32])
def test_the_names_that_are_told_as_right_get_a_key(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert made(capsys, name)[1].startswith(f"{name} ")
