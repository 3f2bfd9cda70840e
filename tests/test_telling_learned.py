"""What live traffic has taught is one sentence, and agreement is said only of what is known."""

import pytest
from test_telling_requests import UNSAID

from proxy.model import ROLES
from proxy.routing.deviation import LEAST
from proxy.telling import learned

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


def test_what_is_put_aside_is_told_before_all_else() -> None:
    said = learned(dict.fromkeys(ROLES, AGREES), suspended=True)
    assert said == "What was learned of the speeds did harm: the curves as measured hold for now."
