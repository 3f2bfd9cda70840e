"""Making .venv: what counts as current, what survives a mending, and locks that install anywhere by their hashes."""

import re
from pathlib import Path

import pytest

from scripts import environment

LOCKS = ("run", "calibrate", "dev", "fuzz", "build", "real", "clients", "peers", "load")
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that was made from the lock of `run`."""
    home = tmp_path / ".venv"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").touch()
    (tmp_path / "requirements").mkdir()
    for kind in ("run", "dev"):
        (tmp_path / "requirements" / f"{kind}.lock").write_text(f"{kind}==1\n")
    (home / ".run.lock").write_text("run==1\n")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "HOME", home)
    monkeypatch.setattr(environment, "PYTHON", home / "bin" / "python")
    monkeypatch.setattr(environment, "HELD", home / ".setting-up")
    return home


def pins(kind: str) -> dict[str, str]:
    return dict(PIN.findall(environment.lock_file(kind).read_text()))


def test_an_environment_is_current_when_its_lock_is_the_same(home: Path) -> None:
    assert environment.is_current("run")
    assert not environment.is_current("dev")


def test_an_environment_is_not_current_once_its_lock_changed(home: Path) -> None:
    (home.parent / "requirements" / "run.lock").write_text("run==2\n")
    assert not environment.is_current("run")


def test_an_environment_is_not_current_without_its_python(home: Path) -> None:
    (home / "bin" / "python").unlink()
    assert not environment.is_current("run")


def test_mending_a_broken_environment_keeps_the_lock_that_is_held(home: Path) -> None:
    (home / ".setting-up").touch()
    (home / "lib64").symlink_to(home / "bin")
    environment.empty(home)
    assert [child.name for child in home.iterdir()] == [".setting-up"]


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_names_no_index_and_no_host(kind: str) -> None:
    assert not re.search(r"https?:|--(extra-)?index|--find-links", environment.lock_file(kind).read_text())


@pytest.mark.parametrize("kind", LOCKS)
def test_every_pin_has_a_hash(kind: str) -> None:
    text = environment.lock_file(kind).read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.split("==")[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize(("inner", "outer"), [("run", "calibrate"), ("calibrate", "dev"), ("dev", "fuzz")])
def test_what_is_tested_and_fuzzed_is_what_is_served(inner: str, outer: str) -> None:
    wanted, found = pins(inner), pins(outer)
    assert {name: found.get(name) for name in wanted} == wanted
