"""Settings shown and compared, with secrets masked."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from fakes.certificates import Files

from proxy.config import (
    RESTART_KEYS,
    Change,
    Settings,
    beside_defaults,
    differences,
    effective,
    from_mapping,
    load,
    needs_restart,
    override,
    pending,
    read_anew,
)
from proxy.config.problems import dotted
from proxy.config.reference import key_paths
from proxy.config.views import MASK

KEYS = {"speculative": "sk-one", "baseline": "sk-two"}


def settings(keys: dict[str, str] | None = None, **sections: Any) -> Settings:
    urls = {"speculative": "http://a:1", "baseline": "http://b:2"}
    backends = {role: {"url": url, **({"api_key": keys[role]} if keys else {})} for role, url in urls.items()}
    return from_mapping({"backends": backends, **sections})


def test_effective_settings_read_as_yaml_give_the_same_settings() -> None:
    rules = [
        {"when": "long_prompt", "role": "baseline", "min_prompt_bytes": 9},
        {"when": "session", "role": "speculative"},
    ]
    before = settings(placement="shared", routing={"rules": rules, "policy": "pinned"}, queue={"max_wait_s": 0.25})
    assert from_mapping(yaml.safe_load(effective(before))) == before


def test_effective_settings_hold_every_key_in_the_order_of_the_file() -> None:
    shown = yaml.safe_load(effective(settings()))
    names = [name for section in shown.values() if isinstance(section, dict) for name in section]
    assert list(shown) == list(Settings.model_fields)
    assert names[:5] == ["host", "port", "max_body_bytes", "body_timeout_s", "unread_timeout_s"]


def test_effective_settings_mask_secrets() -> None:
    text = effective(settings(KEYS))
    assert text.count("api_key: '***'") == 2
    assert not any(key in text for key in KEYS.values())


def test_effective_settings_name_the_key_file_alone(tmp_path: Any) -> None:
    (tmp_path / "key").write_text("sk-three")
    backends = {"speculative": {"url": "http://a:1", "api_key_file": "key"}, "baseline": {"url": "http://b:2"}}
    shown = yaml.safe_load(effective(from_mapping({"backends": backends}, tmp_path)))
    assert shown["backends"]["speculative"]["api_key"] is None
    assert shown["backends"]["speculative"]["api_key_file"] == "key"


def test_same_settings_have_no_differences() -> None:
    assert differences(settings(KEYS), settings(KEYS)) == ()
    assert needs_restart(settings(), settings()) == []


def test_differences_name_each_changed_key_with_both_values() -> None:
    rules = [{"when": "session", "role": "baseline"}]
    new = settings(routing={"leave_at": 12, "rules": rules, "policy": "threshold"}, listen={"port": 0})
    assert differences(settings(), new) == (
        Change("listen.port", 30000, 0),
        Change("routing.policy", "auto", "threshold"),
        Change("routing.leave_at", 9, 12),
        Change("routing.rules", [], rules),
    )


def test_new_secret_is_a_difference_and_not_shown() -> None:
    changed = differences(settings(KEYS), settings({**KEYS, "baseline": "sk-four"}))
    assert changed == (Change("backends.baseline.api_key", "***", "***"),)
    assert differences(settings(), settings(KEYS))[0] == Change("backends.speculative.api_key", None, "***")


@pytest.mark.parametrize(
    ("key", "value"), [("listen.port", 1), ("listen.host", "::1"), ("admin.port", 1), ("listen.keepalive_s", 1)]
)
def test_change_of_a_socket_needs_a_restart(key: str, value: object) -> None:
    assert needs_restart(settings(), override(settings(), {key: value, "queue.max_waiting": 1})) == [key]


def test_restart_keys_exist() -> None:
    assert {dotted(path) for path in key_paths()} >= RESTART_KEYS


def test_the_operators_token_is_masked_or_shown_by_its_file(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("sesame")
    backends = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    given = from_mapping({"backends": backends, "admin": {"token": "sesame"}})
    named = from_mapping({"backends": backends, "admin": {"token_file": "token"}}, tmp_path)
    assert yaml.safe_load(effective(given))["admin"]["token"] == "***"
    assert yaml.safe_load(effective(named))["admin"]["token"] is None
    assert "sesame" not in effective(given) + effective(named)


def test_changed_clients_are_a_difference_and_told_by_name_alone(tmp_path: Any) -> None:
    def with_clients(text: str) -> Settings:
        (tmp_path / "keys").write_text(text)
        backends = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
        return from_mapping({"backends": backends, "listen": {"api_keys_file": "keys"}}, tmp_path)

    one, two = with_clients(f"a {'1' * 64}\n"), with_clients(f"a {'2' * 64}\nb {'1' * 64}\n")
    assert differences(one, two) == (Change("clients", ["a"], ["a", "b"]),)
    assert differences(one, with_clients(f"a {'2' * 64}\n")) == (Change("clients", ["a"], ["a"]),)
    assert differences(one, with_clients(f"# the same\na {'1' * 64}\n")) == ()


def test_switching_tls_takes_a_restart_and_changing_its_files_does_not(tmp_path: Path) -> None:
    plain = settings()
    first, second = (settings(listen={"tls": Files(tmp_path / name).section}) for name in ("one", "two"))
    assert needs_restart(plain, first) == needs_restart(first, plain) == ["listen.tls"]
    assert needs_restart(first, second) == needs_restart(first, first) == []


def test_keys_of_a_section_that_comes_or_goes_are_differences(tmp_path: Path) -> None:
    plain, secure = settings(), settings(admin={"tls": Files(tmp_path).section})
    came = [(each.key, each.old) for each in differences(plain, secure)]
    assert came == [("admin.tls.cert_file", None), ("admin.tls.key_file", None)]
    assert [(each.key, each.new) for each in differences(secure, plain)] == came


def test_keys_that_were_set_are_told_beside_their_defaults_and_no_others() -> None:
    told = beside_defaults(settings(routing={"leave_at": 12}, admin={"token": "sesame"}))
    assert told == [
        {"key": "admin.token", "value": MASK, "default": None},
        {"key": "routing.leave_at", "value": 12, "default": 9},
    ]


def test_what_the_file_would_change_is_told_with_what_only_a_restart_takes_over() -> None:
    one, other = settings(), settings(listen={"port": 1234}, routing={"leave_at": 12})
    assert pending(one, one) == []
    assert pending(one, other) == [
        {"key": "listen.port", "in_force": 30000, "in_file": 1234, "needs_restart": True},
        {"key": "routing.leave_at", "in_force": 9, "in_file": 12, "needs_restart": False},
    ]


def test_files_that_are_read_anew_are_told_by_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder that is named from the working directory, as `crossover serve conf/crossover.yaml` does."""
    monkeypatch.chdir(tmp_path)
    folder = Path("conf")
    files = Files(tmp_path / "conf")
    (folder / "engine.key").write_text("sk-one")
    backends = {"speculative": {"url": "http://a:1", "api_key_file": "engine.key"}, "baseline": {"url": "http://b:2"}}
    tls = {name: Path(file).name for name, file in files.section.items()}
    (folder / "crossover.yaml").write_text(yaml.safe_dump({"backends": backends, "listen": {"tls": tls}}))
    before = load(folder / "crossover.yaml", {})
    assert read_anew(before, load(folder / "crossover.yaml", {})) == []
    files.renew()
    (folder / "engine.key").write_text("sk-another")
    with (folder / "crossover.yaml").open("a") as file:
        file.write("# another comment\n")
    after = load(folder / "crossover.yaml", {})
    assert sorted(read_anew(before, after)) == [
        "backends.speculative.api_key_file: conf/engine.key read anew",
        f"listen.tls.cert_file: conf/{tls['cert_file']} read anew",
        f"listen.tls.key_file: conf/{tls['key_file']} read anew",
    ]
