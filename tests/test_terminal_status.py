"""`crossover status`: a page that a person can read, the JSON as it is, and an exit code that scripts can go by."""

import json
from typing import Any

import pytest
from fakes.operators import BACKEND, STATUS, operators

from proxy.terminal import status
from proxy.terminal.status import page

URL = "http://127.0.0.1:29000"


def shown(**changes: Any) -> str:
    return "\n".join(page(URL, {**STATUS, **changes}, 80))


@pytest.mark.parametrize(
    ("changes", "code"), [({}, 0), ({"ready": False}, 1), ({"ready": False, "phase": "draining"}, 1)]
)
def test_the_exit_code_says_whether_it_serves(changes: dict[str, Any], code: int) -> None:
    with operators(status={**STATUS, **changes}) as port:
        assert status.show(port.url) == code
        assert status.show(port.url, as_json=True) == code


def test_json_is_what_the_port_tells_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(STATUS, indent=3)
    with operators(status=(200, text.encode())) as port:
        assert status.show(port.url, as_json=True) == 0
    assert capsys.readouterr().out == text + "\n"


@pytest.mark.parametrize("other", [{}, {"phase": "serving"}, {**STATUS, "backends": 3}, {**STATUS, "backends": [{}]}])
def test_what_is_no_crossover_is_not_taken_for_one(other: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    with operators(status=other) as port:
        assert status.show(port.url) == 1
    said = capsys.readouterr()
    assert (said.out, "not as a Crossover does" in said.err) == ("", True)


def test_the_page_has_what_a_person_wants_to_know_within_80_columns() -> None:
    lines = page(URL, STATUS, 80)
    assert lines[0] == f"Crossover 1.2.3 at {URL}: serving, ready"
    assert lines[1] == "New requests go to speculative."
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for words in (
        "speculative  3          48     up      closed   3+1     0      2.50",
        "baseline     12 ",
        "m 0.5.23 at http://a",
        "a model it does not name at http://b",
        "threshold; it favours speculative since 42 s, 3.1 in flight",
        "2 requests waiting, 4 connections",
        "on; 7 probes so far",
        "never speculate.",
        "the two disagree",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ready": False}, "serving, NOT READY"),
        ({"troubles": [{"code": "down", "message": "Baseline is down.", "severe": True}]}, "! Baseline is down."),
        ({"backends": [{"role": "speculative", **BACKEND, "up": False, "circuit": "open"}]}, "DOWN    open"),
        ({"backends": [{"role": "speculative", **BACKEND, "up": None}]}, "unknown"),
        ({"backends": [{"role": "speculative", **BACKEND, "silent": True}]}, "SILENT  closed"),
        ({"backends": [{"role": "speculative", **BACKEND, "silent": True, "up": False}]}, "DOWN    closed"),
        ({"backends": [{"role": "speculative", **BACKEND, "draining": True}]}, "draining"),
        ({"backends": [{"role": "speculative"}]}, "speculative  -          -"),
        ({"pinned": "baseline", "policy": "marginal"}, "marginal, but an operator pinned everything to baseline"),
        ({"policy": "overflow"}, "overflow; leave_at 9"),
        ({"learning": {"suspended_for_s": 600.0, "probes": 1}}, "put aside for 10 min more; 1 probe so far"),
        (
            {"learning": {"probes": 0, "sentence": "Live traffic agrees."}},
            "0 probes so far. Live traffic agrees.",
        ),
        (
            {"learning": {"probes": 0, "beside": {"baseline": "agrees with measured (0.88x the time for a token)"}}},
            "baseline now: agrees with measured (0.88x the time for a token)",
        ),
        ({"dropped_in_flight": {"http://c": 3, "http://d": 0}}, "http://c still has 3 sequences"),
    ],
)
def test_what_is_not_as_it_should_be_is_seen(changes: dict[str, Any], words: str) -> None:
    assert words in shown(**changes)


def test_what_is_wrong_stands_above_the_backends() -> None:
    trouble = {"code": "reload_refused", "message": "the changed configuration was refused", "severe": False}
    text = shown(reload_failed=True, troubles=[trouble])
    assert text.index("! the changed configuration was refused") < text.index("in flight  limit")
    assert text.count("refused") == 1


@pytest.mark.parametrize("absent", sorted(STATUS.keys() - {"phase", "ready", "policy", "backends"}))
def test_an_older_proxy_that_tells_less_is_shown_all_the_same(absent: str) -> None:
    assert page(URL, {name: value for name, value in STATUS.items() if name != absent}, 80)


def test_an_engines_name_cannot_steer_the_terminal() -> None:
    text = shown(
        engines={"speculative": {"model": "\x1b[2J\nx" + "y" * 1000}, "baseline": None}, sentence="\x1b]0;t\x07"
    )
    assert "\x1b" not in text and "\x07" not in text
    assert "?[2J?x" in text and "y" * 300 not in text.replace("\n", "")
