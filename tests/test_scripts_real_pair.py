"""Which real pair is started when nobody names one. No engine runs."""

import pytest

from scripts.real_pair import REGIMES, USUAL, chosen


def test_what_is_served_without_a_word_answers_with_text_from_both() -> None:
    regime, _ = chosen("serve", ["--port", "8000"])
    assert not REGIMES[regime].accept, "drafts that are accepted by the dice are no text"


@pytest.mark.parametrize("command", USUAL)
def test_a_regime_is_the_first_word_that_is_no_option(command: str) -> None:
    for regime in REGIMES:
        assert chosen(command, [regime, "--port", "8000"]) == (regime, ["--port", "8000"])
    assert chosen(command, ["--port", "8000"]) == (USUAL[command], ["--port", "8000"])
    assert chosen(command, []) == (USUAL[command], [])
