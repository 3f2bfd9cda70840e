"""`crossover explain`: the proxy's sentences on one request, or what to do where it knows none."""

import json

import pytest
from fakes.operators import operators

from proxy.terminal.explain import explain, page

TOLD = {"request_id": "a", "sentences": ["It went to baseline.", "It ended well."], "decisions": [], "settled": None}


def test_every_sentence_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with operators(decisions=TOLD) as port:
        assert explain("a", port.url) == 0
    assert capsys.readouterr().out == "- It went to baseline.\n- It ended well.\n"


def test_json_is_what_the_port_tells(capsys: pytest.CaptureFixture[str]) -> None:
    with operators(decisions=TOLD) as port:
        assert explain("a", port.url, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == TOLD


def test_an_id_with_odd_characters_is_one_part_of_the_path() -> None:
    with operators(decisions=TOLD) as port:
        assert explain("../pin?x#", port.url) == 0
        assert port.asked == ["/decisions?request_id=..%2Fpin%3Fx%23"]


def test_of_a_request_that_is_not_known_the_proxys_own_words_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with operators(**{"decisions": (404, {"error": "no request a is remembered;\x1b look into the log"})}) as port:
        assert explain("a", port.url) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "no request a is remembered;? look into the log\n")


def test_what_is_no_crossover_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with operators(decisions={"hello": 1}) as port:
        assert explain("a", port.url) == 1
    assert "is it a Crossover" in capsys.readouterr().err
    assert explain("a", "http://127.0.0.1:1") == 1
    assert "is the proxy running" in capsys.readouterr().err


def test_long_sentences_are_broken_where_the_terminal_ends() -> None:
    lines = page(["word " * 40], 60)
    assert max(map(len, lines)) <= 60
    assert (lines[0][:2], lines[1][:2]) == ("- ", "  ")
