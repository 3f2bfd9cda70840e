"""Which peers are found, and what is said of those that are not."""

from pathlib import Path

import pytest
from bench.peers import ENVIRONMENT_VARIABLE, HAPROXY, NGINX, OPTIONAL, PEERS, RECIPES, SGLANG, folder_of, found, listed

FILLED = {
    "port": 1,
    "other_port": 2,
    "first": 3,
    "second": 4,
    "folder": "/nowhere",
    "files": 5,
    "streams": 6,
}


def environment(folder: Path, *, package: str, version: str, program: str) -> Path:
    """A virtual environment as pip leaves it, as far as is looked at."""
    (folder / "lib" / "python3.11" / "site-packages" / f"{package}-{version}.dist-info").mkdir(parents=True)
    (folder / "bin").mkdir()
    path = folder / "bin" / program
    path.touch()
    return path


@pytest.fixture(autouse=True)
def _nothing_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_a_peer_is_found_with_its_version_when_an_environment_has_it(tmp_path: Path) -> None:
    program = environment(tmp_path / "any-name", package="sglang_router", version="0.3.2", program=SGLANG)

    assert {name: (each.program, each.version) for name, each in found(tmp_path).items()} == {
        SGLANG: (program, "0.3.2")
    }


def test_nothing_is_found_when_there_is_no_folder() -> None:
    assert found(None) == {}


def test_a_program_of_the_system_is_found_with_its_version_when_it_is_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / NGINX
    program.write_text("#!/bin/sh\necho nginx version: nginx/1.22.1 >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert found(None)[NGINX].version == "1.22.1"


def test_the_list_says_how_to_install_what_is_missing() -> None:
    lines = {line.split()[0]: line for line in listed({}).splitlines()}

    assert set(PEERS) <= set(lines)
    assert "apt-get install haproxy" in lines[HAPROXY]
    assert "pip" in lines[SGLANG]
    assert all("only when asked for" in lines[name] for name in OPTIONAL)


def test_the_folder_is_the_variable_s_when_no_option_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))

    assert folder_of(None) == tmp_path
    assert folder_of(tmp_path / "other") == tmp_path / "other"


@pytest.mark.parametrize("name", PEERS)
def test_a_recipe_has_no_gap_when_everything_is_filled_in(name: str) -> None:
    recipe = RECIPES[name]
    whole = [word.format(**FILLED) for word in (*recipe.arguments, *recipe.files.values())]

    assert any("127.0.0.1:3" in text for text in whole)
    assert any("127.0.0.1:4" in text for text in whole)
