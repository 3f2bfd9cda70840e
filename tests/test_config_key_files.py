"""Files with keys are read whole or told why not; none of their text is ever shown."""

import os
from hashlib import sha256
from pathlib import Path

import pytest

from proxy.config import InvalidConfig, Settings, from_mapping, load, override
from proxy.config.key_files import MAX_CLIENTS_FILE_BYTES, MAX_KEY_FILE_BYTES, read_clients_file, read_key
from proxy.config.marks import mark

BACKENDS = 'backends: {speculative: {url: "http://a:1"}, baseline: {url: "http://b:2"}}\n'
SECRET = "sk-Vault42-Never"
LINE = f"alpha {sha256(SECRET.encode()).hexdigest()}\n"


def loaded(folder: Path, text: str) -> Settings:
    (folder / "crossover.yaml").write_text(BACKENDS + text)
    return load(folder / "crossover.yaml", {})


def told(folder: Path, text: str) -> list[str]:
    """Every problem, the folder cut away."""
    with pytest.raises(InvalidConfig) as caught:
        loaded(folder, text)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


# ---------------------------------------------------------------- single files


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"\xff", b"k" * (MAX_KEY_FILE_BYTES + 1)])
def test_a_file_without_one_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match="names a file"):
        read_key(tmp_path / "key")


def test_a_key_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f" {SECRET}\n")
    assert read_key(tmp_path / "key") == SECRET


@pytest.mark.parametrize("content", [b"\xff\xfe", b"#" * (MAX_CLIENTS_FILE_BYTES + 1)])
def test_a_keys_file_that_is_no_such_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys").write_bytes(content)
    with pytest.raises(ValueError, match="names a file"):
        read_clients_file(tmp_path / "keys")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(ValueError, match="no regular file"):
        read_clients_file(tmp_path / "keys")


# ---------------------------------------------------------------- as settings name them


def test_clients_and_token_are_read_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\ufeff" + LINE)
    (tmp_path / "token").write_text(SECRET)
    settings = loaded(tmp_path, "listen: {api_keys_file: keys}\nadmin: {token_file: token}\n")
    assert settings.sources.clients is not None
    assert [client.name for client in settings.sources.clients] == ["alpha"]
    assert settings.admin.token is not None
    assert settings.admin.token.get_secret_value() == SECRET


def test_every_file_is_marked_so_that_a_change_of_any_is_noticed(tmp_path: Path) -> None:
    for name, text in (("keys", LINE), ("token", SECRET), ("engine", SECRET)):
        (tmp_path / name).write_text(text)
    text = "listen: {api_keys_file: keys}\nadmin: {token_file: token}\n"
    (tmp_path / "crossover.yaml").write_text(
        BACKENDS.replace('"http://a:1"', '"http://a:1", api_key_file: engine') + text
    )
    marks = load(tmp_path / "crossover.yaml", {}).sources.marks
    assert marks == {tmp_path / name: mark(tmp_path / name) for name in ("crossover.yaml", "keys", "token", "engine")}


def test_a_refused_configuration_tells_its_files_too_since_their_change_may_mend_it(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("wrong\n")
    with pytest.raises(InvalidConfig) as caught:
        loaded(tmp_path, "listen: {api_keys_file: keys}\nadmin: {token_file: missing}\n")
    assert caught.value.marks.keys() == {tmp_path / name for name in ("crossover.yaml", "keys", "missing")}
    assert caught.value.marks[tmp_path / "missing"] is None


def test_every_problem_is_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"# ours\n{SECRET}\n{LINE}{LINE}")
    found = told(tmp_path, "listen: {api_keys_file: keys, port: -1}\nadmin: {token_file: missing}\n")
    assert [one.split("; ")[0] for one in found] == [
        "crossover.yaml:2:31: listen.port: must be a whole number, not -1",
        "crossover.yaml:3:9: admin.token_file: names no regular file",
        "keys:2:1: must be a name and a SHA-256",
        "keys:4:1: has the name of line 3",
        "keys:4:1: has the key of line 3",
    ]
    assert SECRET not in str(found)


def test_an_empty_keys_file_lets_nobody_in_by_mistake(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# nobody yet\n")
    assert told(tmp_path, "listen: {api_keys_file: keys}\n") == [
        "keys: holds no key; mend: add a line of `crossover key NAME`, or set the key to null"
    ]


def test_the_command_lines_overrides_keep_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(LINE)
    (tmp_path / "token").write_text(SECRET)
    settings = loaded(tmp_path, "listen: {api_keys_file: keys}\nadmin: {token_file: token}\n")
    changed = override(settings, {"listen.port": 1})
    assert changed.sources == settings.sources
    assert (changed.sources.marks, changed.admin.token) == (settings.sources.marks, settings.admin.token)
    assert changed.sources.file == tmp_path / "crossover.yaml"


def test_without_a_keys_file_no_client_is_asked_for_a_key() -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    assert from_mapping({"backends": urls}).sources.clients is None
