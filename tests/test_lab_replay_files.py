"""Lines of log files, however they are kept."""

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from proxy.errors import ConfigError
from proxy.lab.replay.files import MAX_LINE_BYTES, STDIN, lines_of

TEXT = b"one\ntwo\nthree"
LINES = [b"one\n", b"two\n", b"three"]


def test_files_are_read_one_after_the_other_packed_or_not(tmp_path: Path) -> None:
    plain, packed = tmp_path / "access.log", tmp_path / "access.log.1"  # by what is in it, whatever its name
    plain.write_bytes(TEXT)
    packed.write_bytes(gzip.compress(TEXT))
    assert list(lines_of([str(packed), str(plain)])) == LINES + LINES


@pytest.mark.parametrize("content", [TEXT, gzip.compress(TEXT)], ids=["plain", "gz"])
def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
    assert list(lines_of([STDIN])) == LINES


def test_a_line_without_end_is_cut_and_what_follows_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "odd"
    file.write_bytes(b"x" * (3 * MAX_LINE_BYTES) + b"\nnext\n")
    long, after = lines_of([str(file)])
    assert len(long) == MAX_LINE_BYTES + 1
    assert after == b"next\n"


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert list(lines_of([str(tmp_path / "empty")])) == []


TORN = [gzip.compress(TEXT * 99)[:-12], gzip.compress(TEXT)[:9] + b"\xff" * 40]


@pytest.mark.parametrize("content", TORN, ids=["cut", "spoilt"])
def test_a_broken_archive_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "broken.gz"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.gz: cannot be read .*mend: "):
        list(lines_of([str(file)]))


def test_a_file_that_is_not_there_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere: cannot be read .*mend: "):
        list(lines_of([str(tmp_path / "nowhere")]))
