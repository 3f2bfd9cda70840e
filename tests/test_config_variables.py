"""Variables of the environment are filled in, or named when they cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.variables import substituted

ENVIRON = {"PORT": "30000", "HOST": "h", "EMPTY": "", "NESTED": "${PORT}", "_x1": "y"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${PORT}", "30000"),
        ("http://${HOST}:${PORT}/", "http://h:30000/"),
        ("${_x1}", "y"),
        ("${UNSET:-7}", "7"),
        ("${EMPTY:-7}", "7"),
        ("${PORT:-7}", "30000"),
        ("${UNSET:-}", ""),
        ("${UNSET:-a:-b}", "a:-b"),
        ("$${PORT}", "${PORT}"),
        ("$$${PORT}", "$${PORT}"),
        ("$PORT $ $$", "$PORT $ $$"),
        ("${NESTED}", "${PORT}"),
        ("", ""),
    ],
)
def test_variables_are_filled_in(text: str, filled: str) -> None:
    assert substituted(text, ENVIRON) == filled


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${UNSET}", "variable UNSET is not set; mend: set it, or give a default: ${UNSET:-default}"),
        ("x${EMPTY}y", "variable EMPTY is empty"),
        ("${HOST}${UNSET}", "variable UNSET"),
        ("${", "begins no variable"),
        ("${}", "begins no variable"),
        ("${1A}", "begins no variable"),
        ("${A:?no}", "begins no variable"),
        ("${A-B}", "begins no variable"),
    ],
)
def test_variable_that_cannot_be_filled_is_named(text: str, told: str) -> None:
    with pytest.raises(ValueError, match="mend: ") as caught:
        substituted(text, ENVIRON)
    assert told in str(caught.value)


@given(st.text())
def test_escaped_text_is_given_back_as_it_was(text: str) -> None:
    plain = text.replace("$", "")
    assert substituted(plain, {}) == plain
    assert substituted(plain + "$${" + plain, {}) == plain + "${" + plain
