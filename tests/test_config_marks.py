"""A mark tells one state of a file from the next, whoever changed it and how."""

import os
from pathlib import Path

import pytest

from proxy.config.marks import mark


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("one")
    os.utime(path, ns=(1, 1))
    return path


def test_a_file_that_stays_keeps_its_mark(path: Path) -> None:
    assert mark(path) == mark(path) is not None


def test_another_size_at_the_same_time_is_another_mark(path: Path) -> None:
    before = mark(path)
    path.write_text("longer")
    os.utime(path, ns=(1, 1))
    assert mark(path) != before


def test_another_time_is_another_mark(path: Path) -> None:
    before = mark(path)
    os.utime(path, ns=(1, 2))
    assert mark(path) != before


def test_another_file_of_the_same_size_and_time_is_another_mark(path: Path) -> None:
    before = mark(path)
    beside = path.with_suffix(".new")
    beside.write_text("eno")
    os.utime(beside, ns=(1, 1))
    beside.replace(path)
    assert mark(path) != before


@pytest.mark.parametrize("name", ["missing", "nul\0byte"])
def test_where_there_is_no_file_there_is_no_mark(tmp_path: Path, name: str) -> None:
    assert mark(tmp_path / name) is None
