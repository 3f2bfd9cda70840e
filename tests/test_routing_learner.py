"""Curves corrected by polls and answers: soon, by no more than is known, and never to what is no curve."""

from dataclasses import replace
from math import log

import pytest
from fakes.speeds import any_curves, bucket, curves, of_both
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import BASELINE, ROLES, SPECULATIVE, EngineLoad, Role
from proxy.routing.correction import MATERIAL, MOST_A_TURN
from proxy.routing.curves import Curves
from proxy.routing.delays import Delays
from proxy.routing.learner import SILENT_S, Answer, Learner, Look

CURVES = of_both({1: 100.0, 8: 480.0, 64: 1200.0}, {1: 60.0, 8: 400.0, 64: 1900.0})
STEPS = 50.0


class Engine:
    """Tells cumulative moments of steps with one batch; each token takes `slower` times what the curve says."""

    def __init__(self, learner: Learner, role: Role, slower: float = 1.0) -> None:
        self.learner, self.role, self.slower = learner, role, slower
        self.sums = [0.0] * 6

    def run(self, n: int, now_s: float, beside: tuple[int, int] = (0, 0), tokens: float = 2.0) -> None:
        curve = self.learner.curves.contexts[0].of(self.role)
        assert curve is not None
        us = 1e6 * self.slower * tokens * curve.seconds_per_token(n)
        for place, more in enumerate((1.0, n, us, n * n, n * us, n * tokens)):
            self.sums[place] += STEPS * more
        self.learner.polled(self.role, Look(EngineLoad(n, 0, moments=tuple(self.sums)), now_s, beside=beside))


def taught(learner: Learner, engine: Engine, n: int, seconds: int, at_s: float = 0.0) -> float:
    for second in range(seconds):
        engine.run(n, at_s + second)
        learner.turn(at_s + second)
    return at_s + seconds


def by(learner: Learner, role: Role, n: float) -> float:
    """How much slower than measured the corrected curve is."""
    now, before = (each.contexts[0].of(role) for each in (learner.corrected, learner.curves))
    assert now is not None and before is not None
    return before.tok_s(n) / now.tok_s(n)


def test_curves_that_are_right_stay_the_very_same() -> None:
    learner = Learner(CURVES)
    taught(learner, Engine(learner, SPECULATIVE), 4, 30)
    assert learner.corrected is CURVES


def test_curves_follow_an_engine_that_is_slower_than_measured() -> None:
    learner = Learner(CURVES)
    taught(learner, Engine(learner, SPECULATIVE, 1.5), 8, 10)
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1.5, rel=0.03)
    assert by(learner, BASELINE, 8) == 1.0


def test_a_drop_of_acceptance_is_followed_within_some_polls_at_every_load() -> None:
    learner = Learner(CURVES)
    engine = Engine(learner, SPECULATIVE)
    now_s = taught(learner, engine, 2, 30)
    now_s = taught(learner, engine, 16, 30, now_s)
    engine.slower = 1 / 0.55
    taught(learner, engine, 2, 6, now_s)
    assert by(learner, SPECULATIVE, 2) == pytest.approx(1 / 0.55, rel=0.1)
    assert by(learner, SPECULATIVE, 16) == pytest.approx(1 / 0.55, rel=0.15)


def test_what_is_not_material_is_left() -> None:
    learner = Learner(CURVES)
    taught(learner, Engine(learner, SPECULATIVE, 1.0 + 0.5 * MATERIAL), 8, 20)
    assert learner.corrected is CURVES


def test_few_curves_are_made_anew_in_one_turn() -> None:
    both = ({1: 100.0, 64: 1200.0}, {1: 60.0, 64: 1900.0})
    many = curves(*(bucket(*both, tokens=tokens) for tokens in (1000, 4000, 16000, 64000)))
    learner = Learner(many)
    engine = Engine(learner, SPECULATIVE, 2.0)
    for second in range(5):
        engine.run(8, float(second))
    for turns in (1, 2):
        learner.turn(5.0)
        others = [one for one, other in zip(learner.corrected.contexts, many.contexts, strict=True) if one is not other]
        assert len(others) == turns * MOST_A_TURN


def test_an_engine_that_was_started_anew_is_no_evidence() -> None:
    learner = Learner(CURVES)
    engine = Engine(learner, SPECULATIVE)
    taught(learner, engine, 8, 5)
    before = learner.sides[SPECULATIVE].seen
    engine.sums = [0.0] * 6
    engine.run(8, 5.0)
    assert learner.sides[SPECULATIVE].seen == before


def test_sums_that_began_anew_in_between_are_no_evidence() -> None:
    learner = Learner(CURVES)
    engine = Engine(learner, SPECULATIVE)
    taught(learner, engine, 8, 60)
    before = learner.sides[SPECULATIVE].seen
    learner.polled(SPECULATIVE, Look(EngineLoad(8, 0, moments=(0.0,) * 6), 60.0))
    engine.run(8, 61.0)  # a minute of steps in a second
    assert learner.sides[SPECULATIVE].seen == before


def test_more_than_the_proxy_gave_is_a_broken_count() -> None:
    learner, believed = Learner(CURVES), []
    for ranks in (1, 8):
        for second in range(10):
            moments = tuple(second * each for each in (10.0, 40.0, 5e5, 160.0, 2e6, 80.0))
            load = EngineLoad(4, 0, moments=moments, ranks=ranks)
            learner.polled(SPECULATIVE, Look(load, 10.0 * ranks + second, (4.0 * second, 16.0 * second)))
        believed.append(learner.sides[SPECULATIVE].seen)
    assert 0 < believed[0] == believed[1]


def test_steps_with_prompts_in_them_are_taken_for_a_count_of_tokens() -> None:
    prefill = curves(bucket({1: 100.0, 8: 480.0}, {1: 60.0, 8: 400.0}, prefill_tok_s=(4000.0, 4000.0)))
    learner, busy, n = Learner(prefill), 0.4, 4
    curve = prefill.contexts[0].speculative
    assert curve is not None
    for second in range(60):
        learner.placed(SPECULATIVE, 4000.0 * busy)
        us = 1e6 * 2.0 * curve.seconds_per_token(n) / (1.0 - busy)  # a step with its share of prompts
        moments = tuple(second * 1e6 / us * each for each in (1.0, n, us, n * n, n * us, 2.0 * n))
        held = (float(n * second), float(n * n * second))
        learner.polled(SPECULATIVE, Look(EngineLoad(n, 0, moments=moments), float(second), held))
    learner.turn(60.0)
    assert learner.sides[SPECULATIVE].seen >= 5
    assert by(learner, SPECULATIVE, n) == pytest.approx(1.0, abs=0.05)


def test_an_engine_that_leaves_most_steps_out_is_waited_for() -> None:
    learner, curve = Learner(CURVES), CURVES.contexts[0].speculative
    assert curve is not None
    for second in range(60):
        us = 1e6 * 2.0 * 2.0 * curve.seconds_per_token(2)
        moments = tuple(second * each for each in (1.0, 2, us, 4, 2 * us, 4.0))
        look = Look(EngineLoad(2, 0, moments=moments), float(second), (3.0 * second, 9.0 * second))
        learner.polled(SPECULATIVE, look)
    learner.turn(60.0)
    assert by(learner, SPECULATIVE, 2) == pytest.approx(2.0, rel=0.1)


def counted(learner: Learner, given: int, ran: int, *, read: int = 0) -> None:
    """A minute of an engine that tells only what it runs and has generated, `ran` sequences as fast as measured, of
    which the proxy gave `given`; `read` of those it holds beside have ended."""
    curve = CURVES.contexts[0].speculative
    assert curve is not None
    held = float(given + read)
    for second in range(60):
        load = EngineLoad(ran, 0, generated=second * curve.tok_s(ran))
        learner.polled(SPECULATIVE, Look(load, float(second), (held * second, held * held * second)))
    learner.turn(60.0)


def test_tokens_are_shared_among_all_that_an_engine_runs_others_included() -> None:
    learner = Learner(CURVES)
    counted(learner, given=4, ran=12)
    assert learner.sides[SPECULATIVE].seen >= 5
    assert by(learner, SPECULATIVE, 12) == pytest.approx(1.0, abs=0.04)
    assert by(learner, SPECULATIVE, 4) == pytest.approx(1.0, abs=0.04)


def test_answers_that_are_only_being_read_share_no_tokens() -> None:
    learner = Learner(CURVES)
    counted(learner, given=4, ran=4, read=8)
    assert by(learner, SPECULATIVE, 4) == pytest.approx(1.0, abs=0.04)
    assert by(learner, SPECULATIVE, 12) == pytest.approx(1.0, abs=0.04)


def test_tokens_of_more_engines_than_before_are_no_evidence() -> None:
    learner = Learner(CURVES)
    for second in range(20):
        load = EngineLoad(4, 0, generated=100.0 * second * (1 + second % 2), ranks=1 + second % 2)
        learner.polled(SPECULATIVE, Look(load, float(second), (4.0 * second, 16.0 * second)))
    assert learner.sides[SPECULATIVE].seen == 0


def test_where_nothing_that_an_engine_tells_can_be_true_answers_count() -> None:
    learner = Learner(CURVES)
    curve = CURVES.contexts[0].speculative
    assert curve is not None
    for second in range(60):
        moments = (1e3 * second, 1e3 * second, 1e9 * second, 1e3 * second, 1e9 * second, 1.0 * second)
        learner.polled(SPECULATIVE, Look(EngineLoad(1, 0, moments=moments), float(second)))
        learner.answered(SPECULATIVE, Answer(1024.0, 0.0, 200, 2.0 * curve.seconds_per_token(1), 1.0), second + 0.5)
    learner.turn(60.0)
    assert by(learner, SPECULATIVE, 1) == pytest.approx(2.0, rel=0.1)


def test_answers_count_where_polls_are_silent_and_only_there() -> None:
    answer = Answer(1024.0, 0.0, 200, 1.1 * CURVES.contexts[0].speculative.seconds_per_token(4), 4.0)  # type: ignore[union-attr]
    silent, polled = Learner(CURVES), Learner(CURVES)
    taught(polled, Engine(polled, SPECULATIVE), 4, 3)
    for learner in (silent, polled):
        for second in range(20):
            learner.answered(SPECULATIVE, answer, 3.0 + second)
        learner.turn(30.0)
    assert by(silent, SPECULATIVE, 4) == pytest.approx(1.1, rel=0.05)
    assert polled.corrected is CURVES
    polled.answered(SPECULATIVE, answer, 3.0 + SILENT_S)
    assert polled.sides[SPECULATIVE].seen == 3


def test_time_in_which_prompts_are_read_is_not_held_against_decoding() -> None:
    prefill = curves(bucket({1: 100.0, 8: 480.0}, {1: 60.0, 8: 400.0}, prefill_tok_s=(4000.0, 4000.0)))
    learner, busy = Learner(prefill), 0.25
    curve = prefill.contexts[0].speculative
    assert curve is not None
    for second in range(200):
        learner.placed(SPECULATIVE, 2000.0 * busy)  # a byte was taken for half of what it is
        answer = Answer(2000.0 * busy, 4000.0 * busy, 200, curve.seconds_per_token(4) / (1.0 - busy), 4.0)
        learner.answered(SPECULATIVE, answer, float(second))
    learner.turn(200.0)
    assert by(learner, SPECULATIVE, 4) == pytest.approx(1.0, abs=0.04)


def answers(learner: Learner, slower: float, n: float, at_s: float, count: int = 1) -> None:
    curve = CURVES.contexts[0].speculative
    assert curve is not None
    for number in range(count):
        answer = Answer(1024.0, 0.0, 200, slower * curve.seconds_per_token(n), n)
        learner.answered(SPECULATIVE, answer, at_s + 0.1 * number)


@pytest.mark.parametrize("lie", [1 / 1.4, 1 / 3.0])
def test_an_engine_whose_word_answers_do_not_bear_out_is_learned_from_answers(lie: float) -> None:
    learner, engine = Learner(CURVES), Engine(Learner(CURVES), SPECULATIVE, lie)
    engine.learner = learner
    for second in range(60):
        engine.run(8, float(second))
        learner.turn(float(second))
        answers(learner, 1.0, 8.0, second + 0.1)
    learner.turn(60.0)
    assert learner.sides[SPECULATIVE].trust.doubted
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1.0, abs=0.03)


def test_an_engine_that_tells_the_truth_again_is_believed_again() -> None:
    learner = Learner(CURVES)
    engine = Engine(learner, SPECULATIVE, 1 / 3.0)
    for second in range(120):
        engine.slower = 1 / 3.0 if second < 60 else 1.0
        engine.run(8, float(second))
        learner.turn(float(second))
        answers(learner, 1.0, 8.0, second + 0.1)
    assert not learner.sides[SPECULATIVE].trust.doubted


def test_answers_that_a_busy_engine_slows_by_some_part_cost_it_no_trust() -> None:
    learner = Learner(CURVES)
    engine = Engine(learner, SPECULATIVE, 1.5)
    for second in range(60):
        engine.run(8, float(second))
        learner.turn(float(second))
        answers(learner, 1.5 * 1.25, 8.0, second + 0.1)
    learner.turn(60.0)
    assert not learner.sides[SPECULATIVE].trust.doubted
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1.5, rel=0.03)


def in_flight(learner: Learner, told: float, seconds: int, *, heard: bool) -> None:
    """Steps that are told so many times as long as they take, of all that the proxy has in flight."""
    curve, n = CURVES.contexts[0].speculative, 8
    assert curve is not None
    us = 2e6 * curve.seconds_per_token(n)
    for second in range(seconds):
        moments = tuple(second * 1e6 / us * each for each in (1.0, n, told * us, n * n, told * n * us, 2.0 * n))
        held = (float(n * second), float(n * n * second))
        learner.polled(SPECULATIVE, Look(EngineLoad(n, 0, moments=moments), float(second), held))
        if heard:
            answers(learner, 1.0, 8.0, second + 0.1)
        learner.turn(float(second))


def test_steps_that_seem_too_short_move_nothing_before_answers_have_been_heard() -> None:
    learner = Learner(CURVES)
    in_flight(learner, 1 / 1.4, 20, heard=False)
    assert learner.sides[SPECULATIVE].seen > 10
    assert learner.corrected is CURVES


def test_steps_that_seem_too_short_never_move_anything_where_answers_say_otherwise() -> None:
    learner = Learner(CURVES)
    in_flight(learner, 1 / 1.4, 60, heard=True)
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1.0, abs=0.03)


def test_where_no_answer_tells_its_tokens_an_engine_is_taken_at_its_word() -> None:
    learner = Learner(CURVES)
    in_flight(learner, 1 / 1.4, 60, heard=False)
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1 / 1.4, rel=0.03)


def test_tokens_of_seconds_with_prompts_in_them_tell_the_speed_of_all_together() -> None:
    learner, curve, tokens = Learner(CURVES), CURVES.contexts[0].speculative, 0.0
    assert curve is not None
    for second in range(121):
        load = EngineLoad(8, second % 2, generated=tokens)
        learner.polled(SPECULATIVE, Look(load, float(second), (8.0 * second, 64.0 * second)))
        tokens += curve.tok_s(8) * (0.2 if second % 2 else 1.8)
    learner.turn(121.0)
    assert by(learner, SPECULATIVE, 8) == pytest.approx(1.0, abs=0.04)


def test_on_shared_gpus_steps_beside_the_other_s_are_not_taken_for_its_own() -> None:
    learner = Learner(CURVES, shared=True)
    engine = Engine(learner, SPECULATIVE, 3.0)
    for second in range(10):
        engine.run(4, float(second), (second, 5))
    learner.turn(10.0)
    assert learner.corrected is CURVES


def test_on_shared_gpus_less_acceptance_shows_beside_the_other() -> None:
    learner = Learner(CURVES, shared=True)
    engine = Engine(learner, SPECULATIVE)
    now_s = taught(learner, engine, 4, 30)
    engine.slower = 4.0  # the other one's steps lie between
    for second in range(6):
        engine.run(4, now_s + second, (7, 5), tokens=2.0 * 0.6)
        learner.turn(now_s + second)
    assert by(learner, SPECULATIVE, 4) == pytest.approx(1 / 0.6, rel=0.15)


ANY = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, 50.0, 1e6])
MOMENTS = st.none() | st.lists(ANY, min_size=6, max_size=6).map(tuple)
LOADS = st.builds(
    EngineLoad,
    running=st.integers(0, 500),
    waiting=st.integers(0, 3),
    moments=MOMENTS,
    ranks=st.integers(0, 9),
    generated=st.none() | ANY,
)
LOOKS = st.builds(Look, LOADS, ANY, st.tuples(ANY, ANY), st.tuples(st.integers(0, 2), st.integers(0, 2)))
ANSWERS = st.builds(Answer, ANY, ANY, st.integers(-5, 10**7), st.none() | ANY, st.none() | ANY, ANY, st.booleans())


@settings(max_examples=200)
@given(
    any_curves(),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(ROLES), LOOKS | ANSWERS, st.floats(-1e4, 1e4)), max_size=25),
)
def test_any_evidence_whatever_leaves_curves_within_bounds(
    given_curves: Curves, shared: bool, evidence: list[tuple[Role, Look | Answer, float]]
) -> None:
    learner = Learner(given_curves, shared=shared)
    for role, one, now_s in evidence:
        if isinstance(one, Look):
            learner.polled(role, one)
        else:
            learner.answered(role, one, now_s)
            learner.placed(role, one.context_tokens)
        learner.turn(now_s)
    for now, before in zip(learner.corrected.contexts, given_curves.contexts, strict=True):
        for role in ROLES:
            one, other = now.of(role), before.of(role)
            assert one is not None and other is not None
            for point in other.points:
                assert abs(log(one.tok_s(point.in_flight) / other.tok_s(point.in_flight))) <= 2.0 * log(8.0) + 1e-6
            Delays(one)  # of which every table can be made


def test_a_guess_gives_way_to_what_was_seen_of_more() -> None:
    level = of_both({1: 100.0, 4: 390.0, 16: 1500.0}, {1: 60.0, 16: 900.0})  # a step is hardly longer with sixteen
    learner = Learner(level)
    taught(learner, Engine(learner, SPECULATIVE, 0.6), 16, 10)
    assert by(learner, SPECULATIVE, 16) == pytest.approx(0.6, rel=0.03)
    assert by(learner, SPECULATIVE, 1) <= 0.65


def test_equal_evidence_gives_equal_curves() -> None:
    first, second = Learner(CURVES), Learner(replace(CURVES))
    for learner in (first, second):
        taught(learner, Engine(learner, BASELINE, 0.7), 12, 10)
    assert first.corrected == second.corrected
