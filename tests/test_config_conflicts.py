"""Settings that are each in range and impossible together are refused, and told where all of them were readable."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import InvalidConfig, cautions, from_mapping, load
from proxy.protocol.routes import EngineKind


def told(speculative: str = "http://a:1", baseline: str = "http://b:2", **sections: object) -> list[str]:
    """Keys of all problems, with the begin of each message."""
    backends = {"speculative": {"url": speculative}, "baseline": {"url": baseline}}
    try:
        from_mapping({"backends": backends, **sections})
    except InvalidConfig as error:
        return [f"{problem.key}: {problem.message.split(' (')[0]}" for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("listen", "admin", "impossible"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("::", "127.0.0.1", True),
        ("::1", "0:0::1", True),
        ("10.0.0.1", "127.0.0.1", False),
        ("0.0.0.0", "::1", False),
        ("gpu", "127.0.0.1", False),
    ],
)
def test_both_ports_on_one_socket_are_refused(listen: str, admin: str, impossible: bool) -> None:
    found = told(listen={"host": listen, "port": 8000}, admin={"host": admin, "port": 8000})
    assert found == ["admin.port: must not be the port of the clients"] * impossible


@pytest.mark.parametrize("policy", ["marginal", "consolidate"])
def test_a_policy_that_follows_curves_is_refused_without_a_file_of_them(policy: str) -> None:
    assert told(routing={"policy": policy}) == [
        f"routing.policy: must not be {policy} without routing.curves_file, whose speeds it places requests by; "
        "mend: run crossover calibrate and name the curves.yaml that it writes, or set policy: auto"
    ]


def test_any_free_port_may_be_asked_for_twice() -> None:
    assert told(listen={"port": 0}, admin={"port": 0}) == []


@pytest.mark.parametrize("baseline", ["http://a:1", "http://A:1/", "https://a:1"])
def test_one_url_for_both_backends_is_refused(baseline: str) -> None:
    assert told(baseline=baseline) == [
        "backends.baseline.url: must not be the url of backends.speculative; mend: give the instance without "
        "speculation its own url"
    ]


@pytest.mark.parametrize(
    ("url", "door"),
    [
        ("http://127.0.0.1:30000", "listen"),
        ("http://localhost:30000", "listen"),
        ("http://[::1]:30000", "listen"),
        ("http://127.0.0.1:29000", "admin"),
        ("http://10.0.0.1:30000", None),
        ("http://127.0.0.1:30001", None),
    ],
)
def test_backend_that_is_the_proxy_itself_is_refused(url: str, door: str | None) -> None:
    expected = [f"backends.speculative.url: must not be the proxy's own {door} port"] if door else []
    assert told(speculative=url) == expected


@given(enter=st.integers(0, 30), leave=st.integers(1, 30))
def test_thresholds_must_leave_a_gap(enter: int, leave: int) -> None:
    refused = told(routing={"enter_at": enter, "leave_at": leave})
    assert refused == ["routing.leave_at: must be above routing.enter_at"] * (enter >= leave)


def test_key_and_key_file_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("secret")
    both = {"url": "http://a:1", "api_key": "x", "api_key_file": "k"}
    with pytest.raises(InvalidConfig) as caught:
        from_mapping({"backends": {"speculative": {"url": "http://b:1"}, "baseline": both}}, tmp_path)
    assert [(problem.key, problem.message) for problem in caught.value.problems] == [
        ("backends.baseline.api_key_file", "must not stand beside api_key; mend: keep one of the two")
    ]


def test_token_and_token_file_together_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("sesame")
    assert told(admin={"token": "x", "token_file": str(tmp_path / "t")}) == [
        "admin.token_file: must not stand beside token; mend: keep one of the two"
    ]


def test_any_page_and_one_page_together_are_refused() -> None:
    assert told(listen={"cors_origins": ["*", "https://page.example"]}) == [
        'listen.cors_origins: has "*", which lets every page, and others; mend: keep one or the other'
    ]
    assert told(listen={"cors_origins": ["*"]}) == []


@pytest.mark.parametrize(
    ("host", "open_to_others"),
    [
        *((host, False) for host in ("127.0.0.1", "127.8.9.1", "::1", "0:0::1", "localhost", "LOCALHOST")),
        *((host, True) for host in ("0.0.0.0", "::", "10.0.0.1", "gpu.example")),
    ],
)
def test_an_operators_port_that_others_reach_without_a_token_is_a_caution(host: str, open_to_others: bool) -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    said = cautions(from_mapping({"backends": urls, "admin": {"host": host}}))
    assert [message.startswith(f"admin.host: {host} may be reached") for message in said] == [True] * open_to_others
    assert cautions(from_mapping({"backends": urls, "admin": {"host": host, "token": "sesame"}})) == ()


def test_different_engines_are_allowed() -> None:
    backends = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:1", "engine": "vllm"}}
    assert from_mapping({"backends": backends}).backends.baseline.engine is EngineKind.VLLM


def test_memory_for_bodies_must_take_the_largest_one() -> None:
    found = told(listen={"max_body_bytes": 4096, "max_held_body_bytes": 2048})
    assert [each.partition(",")[0] for each in found] == [
        "listen.max_held_body_bytes: must not be below listen.max_body_bytes"
    ]
    assert told(listen={"max_body_bytes": 4096, "max_held_body_bytes": 4096}) == []


def test_first_byte_may_not_be_due_before_the_connection() -> None:
    assert told(timeouts={"connect_s": 5, "first_byte_s": 4.9}) == [
        "timeouts.first_byte_s: must not be below timeouts.connect_s"
    ]
    assert told(timeouts={"connect_s": 5, "first_byte_s": 5}) == []


def long_prompt(size: int) -> dict[str, object]:
    return {"when": "long_prompt", "role": "baseline", "min_prompt_bytes": size}


@pytest.mark.parametrize(
    ("rules", "keys"),
    [
        ([{"when": "session", "role": "baseline", "min_prompt_bytes": 5}], ["routing.rules.0"]),
        ([{"when": "long_prompt", "role": "baseline"}], ["routing.rules.0"]),
        ([{"when": "session", "role": "baseline"}, {"when": "session", "role": "speculative"}], ["routing.rules.1"]),
        ([long_prompt(100), long_prompt(200)], ["routing.rules.1"]),
        ([long_prompt(200), long_prompt(100), long_prompt(150)], ["routing.rules.2"]),
        ([long_prompt(1 << 30)], ["routing.rules.0.min_prompt_bytes"]),
        ([long_prompt(200), {"when": "constrained", "role": "baseline"}, long_prompt(100)], []),
    ],
)
def test_rule_that_cannot_match_is_refused(rules: list[object], keys: list[str]) -> None:
    assert [problem.partition(":")[0] for problem in told(routing={"rules": rules})] == keys


def file_problems(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    path = tmp_path / "crossover.yaml"
    path.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load(path, {})
    return [(problem.line, problem.key) for problem in caught.value.problems]


def test_conflict_is_told_although_other_sections_and_keys_are_wrong(tmp_path: Path) -> None:
    text = "queue: 5\nrouting:\n  enter_at: 20\n  min_dwell_s: x\n  rules: [{}]\nbackends: 7\n"
    assert file_problems(tmp_path, text) == [
        (1, "queue"),
        (3, "routing.enter_at"),
        (4, "routing.min_dwell_s"),
        (5, "routing.rules.0.role"),
        (5, "routing.rules.0.when"),
        (6, "backends"),
    ]


def test_conflict_is_not_told_where_one_of_its_keys_could_not_be_read(tmp_path: Path) -> None:
    text = "backends: {speculative: {url: 'http://a:1'}, baseline: {url: 'http://b:1'}}\n"
    text += "routing:\n  enter_at: 20\n  leave_at: ${CROSSOVER_TEST_UNSET}\n"
    assert file_problems(tmp_path, text) == [(4, "routing.leave_at")]


def test_conflict_is_told_at_the_key_that_is_in_the_file(tmp_path: Path) -> None:
    text = "backends: {speculative: {url: 'http://a:1'}, baseline: {url: 'http://b:1'}}\nlisten:\n  port: 29000\n"
    assert file_problems(tmp_path, text) == [(3, "listen.port")]


@pytest.mark.parametrize(("policy", "told"), [("auto", "overflow"), ("threshold", "threshold")])
def test_goals_that_no_policy_looks_at_are_told(policy: str, told: str) -> None:
    backends = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    (message,) = cautions(from_mapping({"backends": backends, "routing": {"policy": policy, "slo": {"tpot_s": 0.03}}}))
    assert message.startswith(f"routing.slo: moves no request, since policy {told} does not look at it; mend: ")


def test_too_few_open_files_for_all_connections_are_a_caution(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
    settings = from_mapping({"backends": urls, "listen": {"max_connections": 200}})
    monkeypatch.setattr("proxy.open_files.limit", lambda: 400)
    assert cautions(settings) == ()
    monkeypatch.setattr("proxy.open_files.limit", lambda: 399)
    (said,) = cautions(settings)
    assert said.startswith("listen.max_connections: 200 streams need 400 open files")
