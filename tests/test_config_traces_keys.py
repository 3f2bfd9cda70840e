"""The section of traces: where spans may be sent, and the file of headers, of which no value is ever quoted."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import config
from proxy.config import InvalidConfig
from proxy.config.traces_keys import checked_endpoint, read_headers

SECRET = "KEYMARK"
BACKENDS = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}


@pytest.mark.parametrize(
    "url",
    ["http://localhost:4318/v1/traces", "https://collector.example/otlp/v1/traces", "http://[::1]:4318/v1/traces"],
)
def test_a_url_with_a_path_is_taken_as_it_is(url: str) -> None:
    assert checked_endpoint(url) == url


@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("localhost:4318", "begin it with http"),
        ("ftp://host/v1/traces", "begin it with http"),
        ("http:///v1/traces", "begin it with http"),
        ("http://host:4318", "add the path"),
        ("http://host:4318/", "add the path"),
        ("http://host:99999/v1/traces", "check the host and the port"),
        ("http://[::1/v1/traces", "check the host and the port"),
        (f"http://u:{SECRET}@host/v1/traces", "headers_file"),
        (f"http://host/v1/traces?key={SECRET}", "headers_file"),
        (f"http://host/v1/traces#{SECRET}", "headers_file"),
        ("http://host/v1/tra ces", "headers_file"),
        ("http://host/v1/traces\n", "begin it with http"),
        ("http://höst/v1/traces", "begin it with http"),
    ],
)
def test_what_is_no_such_url_is_refused_with_its_mend_and_not_quoted(url: str, mend: str) -> None:
    with pytest.raises(ValueError, match=mend) as refused:
        checked_endpoint(url)
    assert SECRET not in str(refused.value)


@given(st.text())
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        assert checked_endpoint(text).startswith(("http://", "https://"))
    except ValueError:
        return


def test_headers_are_lines_and_comments_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# comment\n\nAuthorization: Bearer a:b\nx-scope:  c \n")
    assert read_headers(file) == (("authorization", "Bearer a:b"), ("x-scope", "c"))


@pytest.mark.parametrize("line", [SECRET, f": {SECRET}", f"a b: {SECRET}", "a:", f"a: {SECRET}\x01", f"ä: {SECRET}"])
def test_a_line_that_is_no_header_is_named_by_its_number_and_not_quoted(tmp_path: Path, line: str) -> None:
    file = tmp_path / "headers"
    file.write_text(f"a: b\n{line}\n")
    with pytest.raises(ValueError, match=r"line 2 is no header; mend: ") as refused:
        read_headers(file)
    assert SECRET not in str(refused.value)


def loaded(folder: Path, traces: dict[str, Any]) -> config.Settings:
    return config.from_mapping({"backends": BACKENDS, "traces": traces}, folder)


def test_a_file_of_headers_counts_from_the_configurations_folder_and_is_shown_by_its_name_alone(tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(f"x-key: {SECRET}\n")
    settings = loaded(tmp_path, {"headers_file": "headers"})
    assert settings.sources.headers == (("x-key", SECRET),)
    assert SECRET not in config.effective(settings) + repr(settings) + repr(settings.sources)
    assert tmp_path / "headers" in settings.sources.marks


@pytest.mark.parametrize(
    ("traces", "told"),
    [
        ({"headers_file": "missing"}, "traces.headers_file"),
        ({"sample_ratio": 1.5}, "traces.sample_ratio"),
        ({"endpoint": "here"}, "traces.endpoint"),
        ({"enabled": "yes"}, "traces.enabled"),
        ({"service_name": ""}, "traces.service_name"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(tmp_path: Path, traces: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        loaded(tmp_path, traces)
    assert told in str(refused.value)
