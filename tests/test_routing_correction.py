"""Curves follow what is believed, and go back to what was measured where nothing is."""

from fakes.speeds import of_both

from proxy.model import BASELINE, SPECULATIVE
from proxy.routing.belief import Belief
from proxy.routing.correction import TELLING, Correction
from proxy.routing.evidence import Seen

CURVES = of_both({1: 100.0, 8: 480.0, 64: 1200.0}, {1: 60.0, 8: 400.0, 64: 1900.0})


def believing(ln_ratio: float) -> Belief:
    belief = Belief()
    for second in range(20):
        belief.observe(0, Seen(8.0, 0.0, 0.01, 0.001), ln_ratio, float(second))
    return belief


def test_only_a_curve_that_is_believed_to_be_another_is_made_anew() -> None:
    correction = Correction(CURVES)
    slower, same = believing(0.5), believing(0.0)
    moved = correction.follow({SPECULATIVE: (slower, slower.line(20.0)), BASELINE: (same, same.line(20.0))})
    assert moved == {SPECULATIVE}
    before, now = CURVES.contexts[0], correction.corrected.contexts[0]
    assert now.baseline is before.baseline
    assert before.speculative is not None and now.speculative is not None
    assert now.speculative.tok_s(8) < before.speculative.tok_s(8) * (1.0 - TELLING)


def test_a_curve_that_nothing_is_known_of_any_more_is_the_measured_one() -> None:
    correction = Correction(CURVES)
    slower, nothing = believing(0.5), Belief()
    correction.follow({SPECULATIVE: (slower, slower.line(20.0))})
    correction.follow({SPECULATIVE: (nothing, nothing.line(21.0))})
    assert correction.corrected.contexts[0].speculative is CURVES.contexts[0].speculative
