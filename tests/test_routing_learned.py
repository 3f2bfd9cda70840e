"""What was learned as plain values: kept over a restart, and never taken from a file that says something else."""

import json
from typing import Any

import pytest
from fakes.speeds import of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BASELINE, SPECULATIVE, Role
from proxy.routing.evidence import Seen
from proxy.routing.learned import shown, taken_back, written
from proxy.routing.learner import Learner

CURVES = of_both({1: 100.0, 64: 1200.0}, {1: 60.0, 64: 1900.0})
VERSIONS: dict[Role, str | None] = {SPECULATIVE: "0.5.23", BASELINE: "0.5.23"}


def experienced() -> Learner:
    learner = Learner(CURVES)
    for second in range(10):
        learner.sides[SPECULATIVE].belief.observe(0, Seen(4.0, 0.0, 0.02, 0.001), 0.4, float(second))
    learner.turn(10.0)
    return learner


def kept(learner: Learner) -> Any:
    return json.loads(json.dumps(written(learner, VERSIONS, 10.0)))


def test_a_restart_goes_on_with_what_was_learned() -> None:
    before, after = experienced(), Learner(CURVES)
    assert taken_back(after, kept(before), VERSIONS, now_s=5000.0, elapsed_s=30.0) is None
    after.turn(5000.0)
    for n in (1, 4, 16):
        one, other = (each.corrected.contexts[0].speculative for each in (before, after))
        assert one is not None and other is not None
        assert other.tok_s(n) == pytest.approx(one.tok_s(n), rel=0.03)


def test_what_is_long_ago_counts_less() -> None:
    lines = []
    for elapsed_s in (0.0, 7 * 86400.0):
        learner = Learner(CURVES)
        assert taken_back(learner, kept(experienced()), VERSIONS, now_s=5000.0, elapsed_s=elapsed_s) is None
        lines.append(learner.sides[SPECULATIVE].belief.line(5000.0).at(0, 4.0))
    assert lines[0] > 2.0 * lines[1] > 0.0


def test_other_curves_and_other_engines_are_told_apart() -> None:
    state = kept(experienced())
    other = Learner(of_both({1: 101.0, 64: 1200.0}, {1: 60.0, 64: 1900.0}))
    assert taken_back(other, state, VERSIONS, now_s=0.0, elapsed_s=0.0) == "it was learned beside other curves"
    newer: dict[Role, str | None] = {SPECULATIVE: "0.5.24", BASELINE: "0.5.23"}
    fault = taken_back(Learner(CURVES), state, newer, now_s=0.0, elapsed_s=0.0)
    assert fault == "the speculative engine was another version"
    unknown: dict[Role, str | None] = {SPECULATIVE: None, BASELINE: None}
    assert taken_back(Learner(CURVES), state, unknown, now_s=0.0, elapsed_s=0.0) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["whole", "engines", "backends", "row", "value"]), st.integers(0, 5))
def test_any_file_is_taken_whole_or_not_at_all(anything: Any, where: str, place: int) -> None:
    state = kept(experienced())
    if where == "whole":
        state = anything
    elif where in ("engines", "backends"):
        state[where] = anything
    elif where == "row":
        state["backends"]["speculative"][0] = anything
    else:
        state["backends"]["speculative"][0][place] = anything
    learner = Learner(CURVES)
    fault = taken_back(learner, state, VERSIONS, now_s=100.0, elapsed_s=1.0)
    if fault is not None:
        assert not learner.sides[SPECULATIVE].belief.bins
    learner.turn(100.0)  # whatever was taken can be worked with


def test_evidence_and_corrected_speeds_are_shown() -> None:
    told = shown(experienced(), 12.0)
    assert told["backends"]["speculative"] == [
        {"context_tokens": 1024, "in_flight": 4.0, "ratio": 1.4918, "age_s": 3.0}
    ]
    assert told["backends"]["baseline"] == []
    points = {point["in_flight"]: point["tok_s"] for point in told["contexts"][0]["speculative"]}
    assert points[4.0] < 260.0  # measured: about 345
    json.dumps(told)
