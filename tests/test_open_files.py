"""How many connections a limit of open files is enough for."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import open_files

FILES = st.none() | st.integers(1, 1_000_000)


@pytest.mark.parametrize(
    ("wanted", "files", "taken"),
    [(10_000, None, 10_000), (10_000, 65_536, 10_000), (10_000, 20_000, 9904), (10_000, 256, 96), (50, 256, 50)],
)
def test_connections_are_those_wanted_as_far_as_files_go(wanted: int, files: int | None, taken: int) -> None:
    assert open_files.connections(wanted, files) == taken


@given(st.integers(1, 1_000_000), FILES)
def test_some_files_are_left_beside_all_streams_and_nobody_is_locked_out(wanted: int, files: int | None) -> None:
    taken = open_files.connections(wanted, files)
    assert 1 <= taken <= wanted
    assert taken == 1 or open_files.beside(taken, files) >= min(open_files.KEPT, (files or 0) // open_files.KEPT_SHARE)


@given(st.integers(1, 1_000_000), FILES)
def test_fewer_files_than_all_streams_need_are_told_with_the_mend(wanted: int, files: int | None) -> None:
    told = open_files.few(wanted, files)
    assert (told is not None) == (files is not None and files < 2 * wanted)
    assert told is None or ("LimitNOFILE" in told and str(files) in told)


def test_the_limit_is_the_hard_one_which_serve_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 256))
    assert open_files.limit() == 256
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, resource.RLIM_INFINITY))
    assert open_files.limit() is None
