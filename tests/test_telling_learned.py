"""What live traffic has taught is one sentence, and agreement is said only of what is known."""

import pytest
from test_telling_requests import UNSAID

from proxy.model import ROLES
from proxy.routing.deviation import LEAST
from proxy.telling.learned import beside, learned, taught

SPECULATIVE, BASELINE = ROLES
AGREES = (None, LEAST)


@pytest.mark.parametrize(
    ("speculative", "baseline", "sentence"),
    [
        (AGREES, AGREES, "Live traffic agrees with what was measured, within 5 %."),
        (AGREES, (None, 0.131), "Live traffic agrees with what was measured, within 15 %."),
        (None, None, "Live traffic has shown too little yet to say whether the measured speeds still hold."),
        (
            AGREES,
            None,
            "Live traffic on speculative agrees with what was measured, within 5 %; of baseline too little has been "
            "seen yet.",
        ),
        (
            (1.234, LEAST),
            AGREES,
            "Learned from live traffic: speculative takes 23 % longer for a token than measured; routing goes by it; "
            "live traffic on baseline agrees with what was measured, within 5 %.",
        ),
        (
            (1.5, LEAST),
            (0.8, LEAST),
            "Learned from live traffic: speculative takes 50 % longer and baseline takes 20 % less for a token than "
            "measured; routing goes by it.",
        ),
    ],
)
def test_each_backend_is_told_by_what_is_known_of_it(
    speculative: tuple[float | None, float] | None, baseline: tuple[float | None, float] | None, sentence: str
) -> None:
    said = learned({SPECULATIVE: speculative, BASELINE: baseline}, suspended=False)
    assert said == sentence and not UNSAID.search(said)


@pytest.mark.parametrize(
    ("standing", "ratio", "words"),
    [
        (None, 0.88, "not known yet"),
        ((None, 0.15), 0.88, "agrees with measured (0.88x the time for a token)"),
        ((None, 0.15), 1.001, "as measured"),
        ((None, LEAST), 0.88, "0.88x the measured time for a token at this load"),
        ((1.2, LEAST), 1.01, "1.01x the measured time for a token at this load"),
    ],
)
def test_a_ratio_is_said_to_agree_only_within_what_counts_as_that(
    standing: tuple[float | None, float] | None, ratio: float, words: str
) -> None:
    assert beside(standing, ratio) == words


def test_what_the_status_tells_has_both_by_their_names() -> None:
    told = taught({SPECULATIVE: (None, 0.15), BASELINE: None}, {"speculative": 0.88, "baseline": 1.0}, suspended=False)
    words = {"speculative": "agrees with measured (0.88x the time for a token)", "baseline": "not known yet"}
    assert told["beside"] == words


def test_what_is_put_aside_is_told_before_all_else() -> None:
    said = learned(dict.fromkeys(ROLES, AGREES), suspended=True)
    assert said == "What was learned of the speeds did harm: the curves as measured hold for now."
