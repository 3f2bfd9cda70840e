"""What command lines of the laboratory take for a number, a time, a count of tokens and an address."""

import argparse
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.lab.options import duration_s, list_of, not_negative, positive, server_url, token_counts, words, write


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("15m", 900.0), ("1.5 min", 90.0), ("2h", 7200.0)])
def test_a_time_has_its_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["4", "", "s", "0s", "-3m", "soon", "1d", "nan"])
def test_a_time_without_one_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="90s"):
        duration_s(text)


def test_tokens_are_counted_in_ones_or_in_k() -> None:
    assert token_counts("1k,8K, 300") == (1024, 8192, 300)
    for text in ("many", "0", "1.5k", "1k,", "-2"):
        with pytest.raises(argparse.ArgumentTypeError, match="8k"):
            token_counts(text)


def test_numbers_are_above_zero() -> None:
    assert list_of(int)("1,2,4") == (1, 2, 4)
    assert not_negative("0") == 0.0
    for parse, text in ((positive(int), "1.5"), (positive(float), "inf"), (not_negative, "-1"), (list_of(int), "1,,2")):
        with pytest.raises(argparse.ArgumentTypeError, match="above 0"):
            parse(text)


def test_an_address_loses_its_path_and_nothing_else() -> None:
    assert server_url("http://127.0.0.1:30000/v1") == "http://127.0.0.1:30000"
    assert server_url("https://[::1]:443/") == "https://[::1]:443"
    for text in ("127.0.0.1:30000", "ftp://x", "http://user@x", "http://x?key=1"):
        with pytest.raises(argparse.ArgumentTypeError):
            server_url(text)


def test_words_stand_between_commas_and_empty_ones_are_none() -> None:
    assert words("a,,b,") == ["a", "b"]


def test_a_file_that_cannot_be_written_is_told_with_the_mend(tmp_path: Path) -> None:
    write(tmp_path / "out", b"all of it")
    assert (tmp_path / "out").read_bytes() == b"all of it"
    with pytest.raises(ConfigError, match=r"cannot be written .*; mend: choose another place"):
        write(tmp_path / "none" / "out", b"")
