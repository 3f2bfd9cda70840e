"""Which real pair is started when nobody names one. No engine runs."""

import sys

import pytest

from scripts import real_pair
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


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("serve", "--port", "many"), "'many' is no port"),
        (("serve", "never", "--placement", "both"), "mend: separate or shared"),
        (("calibrate", "crossover", "--budget", "soon"), "'soon' is not a time like 90s"),
    ],
)
def test_bad_usage_is_told_before_any_engine_is_started(
    argv: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["real_pair.py", *argv])
    monkeypatch.setattr(real_pair, "Pair", lambda *_: pytest.fail("an engine was started"))
    with pytest.raises(SystemExit) as ended:
        real_pair.main()
    assert (ended.value.code, told in capsys.readouterr().err) == (2, True)
