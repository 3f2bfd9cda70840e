"""The desk that learns: curves are taken over, probes are made, harm ends it, and a reload keeps what is known."""

from dataclasses import replace
from math import log
from typing import Any

import pytest
from fakes.rig import BASELINE, SPECULATIVE, Rig, plan
from fakes.speeds import bucket, of_both
from fakes.speeds import curves as curves_of

from proxy.dispatch import Assignment, Desk
from proxy.dispatch.learning import SHARED_MOST_HELD_UP
from proxy.model import (
    ROLES,
    ChangeKind,
    EngineLoad,
    Outcome,
    Placement,
    Policy,
    Reason,
    RequestFacts,
    Role,
    Traits,
    Usage,
)
from proxy.routing.curves import Curves
from proxy.routing.evidence import Seen, Source
from proxy.routing.harm import SUSPENDED_S
from proxy.routing.learner import Told

SAME = {1: 100.0, 8: 480.0, 64: 1200.0}
FLAT = of_both(SAME, SAME)
# Alike in the context of all requests here, and not in another one: who is favoured first is left to the curves then.
FLAT_HERE = curves_of(bucket(SAME, SAME), bucket({1: 90.0}, {1: 60.0}, 65_536))
CURVES = of_both({1: 100.0, 8: 480.0, 64: 1200.0}, {1: 95.0, 8: 400.0, 64: 1900.0})


class LearningRig(Rig):
    """A desk that learns, with engines that tell of steps of one batch all the time."""

    def __init__(self, policy: Policy = Policy.MARGINAL, curves: Curves = CURVES, **rules: Any) -> None:
        super().__init__()
        self.curves = curves
        given = plan(policy=policy, curves=curves, smoothing_s=2.0, allow_header=False, **rules)
        self.desk = Desk(replace(given, learns=True), lambda: self.now_s)
        self.desk.on_change = self.changes.append
        self.sums = {role: [0.0] * 6 for role in (SPECULATIVE, BASELINE)}

    def poll(self, role: Role, n: int, slower: float, seconds: int = 1) -> None:
        curve = self.curves.contexts[0].of(role)
        assert curve is not None
        for _ in range(seconds):
            self.now_s += 1.0
            us = 1e6 * slower * 2.0 * curve.seconds_per_token(n)
            for place, more in enumerate((1.0, n, us, n * n, n * us, n * 2.0)):
                self.sums[role][place] += 1e6 / us * more
            load = EngineLoad(n, 0, moments=tuple(self.sums[role]))
            self.desk.observe_load(self.desk.backend(role), load)

    def place(self, prompt_bytes: int = 4096) -> Assignment:
        place = self.desk.assign(Traits(prompt_bytes=prompt_bytes), "id", "/v1/completions")
        assert isinstance(place, Assignment)
        return place

    def answer(self, place: Assignment, slower: float, n: int = 1, *, held_up: bool = False) -> None:
        """An answer of two hundred tokens, ended and told."""
        curve = CURVES.contexts[0].of(place.backend.role)
        assert curve is not None
        tpot_s = slower * curve.seconds_per_token(n)
        self.now_s += 200 * tpot_s
        self.desk.settle(place, Outcome.FINISHED)
        facts = RequestFacts(
            "id", "/v1/completions", "POST", Outcome.FINISHED, 200, place.decision, Traits(prompt_bytes=4096)
        )
        facts = facts._replace(url=place.backend.url)
        usage = Usage(1024, 200, 1024)
        timed = facts._replace(duration_s=200 * tpot_s, ttft_s=0.0, tpot_s=tpot_s, held_up=held_up)
        self.desk.heard(timed._replace(usage=usage))


def test_decisions_go_by_what_was_learned_and_say_so() -> None:
    rig = LearningRig()
    before = rig.place().decision
    assert (before.because.learned, before.role) == (False, SPECULATIVE)
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    rig.poll(BASELINE, 1, slower=1.0, seconds=6)
    after = rig.place().decision
    assert (after.because.learned, after.role) == (True, BASELINE)
    assert after.because.speculative_cost_s is not None


@pytest.mark.parametrize("policy", [Policy.OVERFLOW, Policy.THRESHOLD, Policy.PINNED])
def test_other_policies_are_not_touched(policy: Policy) -> None:
    rig = LearningRig(policy)
    rules = rig.desk.rules
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=10)
    assert rig.desk.learning is None
    assert rig.desk.rules is rules


def test_a_desk_that_is_not_to_learn_does_not() -> None:
    rig = LearningRig()
    rig.desk.reload(replace(rig.desk.plan, learns=False))
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=10)
    assert rig.desk.rules.curves == CURVES


def test_an_idle_backend_is_probed_where_that_costs_next_to_nothing() -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=1.0, seconds=3)
    roles = []
    for _ in range(20):
        place = rig.place()
        roles.append((place.decision.role, place.decision.reason))
        rig.answer(place, 1.0)
    assert (BASELINE, Reason.PROBE) in roles
    assert roles.count((BASELINE, Reason.PROBE)) == 1
    assert set(roles) == {(BASELINE, Reason.PROBE), (SPECULATIVE, Reason.CHEAPER)}


@pytest.mark.parametrize(("prompt_bytes", "reason"), [(63 << 20, Reason.CHEAPER), (4096, Reason.PROBE)])
def test_a_prompt_far_longer_than_the_others_is_not_a_probe(prompt_bytes: int, reason: Reason) -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=1.0, seconds=3)
    assert rig.place(prompt_bytes).decision.reason is reason


@pytest.mark.parametrize(
    ("held_up", "probed"), [(0, True), (SHARED_MOST_HELD_UP, True), (SHARED_MOST_HELD_UP + 1, False)]
)
def test_on_shared_gpus_no_probe_is_made_that_many_would_wait_for(held_up: int, probed: bool) -> None:
    rig = LearningRig(Policy.CONSOLIDATE, placement=Placement.SHARED)
    for _ in range(held_up):
        rig.place()
    rig.poll(SPECULATIVE, 1, slower=1.0, seconds=3)
    assert rig.desk.learning is not None
    rig.desk.learning.probes.dear = frozenset(ROLES)
    assert (rig.place().decision.reason is Reason.PROBE) is probed


def test_a_full_backend_is_not_probed() -> None:
    rig = LearningRig()
    first, second = rig.desk.plan.backends
    rig.desk.reload(replace(rig.desk.plan, backends=(first, replace(second, max_in_flight=1))))
    rig.desk.pin(BASELINE)
    held = rig.place()
    rig.desk.pin(None)
    learning = rig.desk.learning
    assert learning is not None
    learning.probes.dear = frozenset({BASELINE})
    place = rig.place()
    assert place.decision.role is SPECULATIVE
    for each in (held, place):
        rig.desk.settle(each, Outcome.FINISHED)
    place = rig.place()
    assert (place.decision.role, place.decision.reason) == (BASELINE, Reason.PROBE)


def test_a_drained_backend_is_not_probed() -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=1.0, seconds=3)
    rig.desk.drain(BASELINE, draining=True)
    for _ in range(20):
        place = rig.place()
        assert place.decision.role is SPECULATIVE
        rig.answer(place, 1.0)


def test_what_no_answer_bears_out_is_dropped_and_learned_from_answers() -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=6)
    assert rig.desk.rules.learned
    rig.desk.pin(SPECULATIVE)
    for _ in range(12):  # as fast as measured, whatever the engine says
        rig.answer(rig.place(), 1.0)
        rig.poll(SPECULATIVE, 1, slower=3.0)
    rig.changes.clear()
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=6)
    assert not rig.changes
    learning = rig.desk.learning
    assert learning is not None
    assert learning.ratio(rig.desk.backend(SPECULATIVE)) == pytest.approx(1.0, abs=0.03)


def test_what_does_harm_is_dropped_for_a_while_and_says_why() -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=6)
    learning = rig.desk.learning
    assert learning is not None
    for number in range(3):  # as fast as measured, whatever the engine says
        seen = Seen(1.0, 0.0, 0.01, 0.02, Source.ANSWERS)
        learning.harm.answered(SPECULATIVE, Told(0, seen, 0.0, log(3.0)), rig.now_s + number)
    rig.changes.clear()
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=6)
    assert [(change.kind, change.role) for change in rig.changes] == [(ChangeKind.LEARNING, SPECULATIVE)]
    numbers = rig.changes[0].numbers
    assert (numbers["cause"], numbers["source"], numbers["answers"]) == ("doubt", "moments", 3)
    assert (numbers["predicted_s"], numbers["seen_s"]) == (0.03, 0.01)
    assert learning.summary(rig.desk.backends, rig.now_s)["last_suspension"] == {"role": SPECULATIVE, **numbers}
    assert rig.desk.rules.curves is CURVES and not rig.desk.rules.learned
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=10)
    assert not rig.desk.rules.learned
    rig.now_s += SUSPENDED_S
    rig.poll(SPECULATIVE, 1, slower=3.0, seconds=6)
    assert rig.desk.rules.learned


def test_an_answer_that_its_client_held_up_is_no_evidence() -> None:
    seen = []
    for held_up in (False, True):
        rig = LearningRig()
        for _ in range(3):
            rig.answer(rig.place(), 4.0, held_up=held_up)
        assert rig.desk.learning is not None
        seen.append(rig.desk.learning.learner.sides[SPECULATIVE].seen)
    assert seen == [3, 0]


def test_time_lost_on_a_backend_that_failed_is_not_put_down_to_the_next_one() -> None:
    rig = LearningRig()
    rig.now_s += 30.0
    place = rig.desk.assign(Traits(prompt_bytes=4096), "id", "/v1/completions", failed=rig.desk.backend(SPECULATIVE))
    assert isinstance(place, Assignment)
    rig.now_s += 2.0
    rig.desk.settle(place, Outcome.FINISHED)
    facts = RequestFacts(
        "id",
        "/v1/completions",
        "POST",
        Outcome.FINISHED,
        200,
        place.decision,
        Traits(prompt_bytes=4096),
        attempts=2,
        duration_s=32.0,
        ttft_s=30.5,
        tpot_s=0.01,
        usage=Usage(1024, 150, 1024),
        url=place.backend.url,
    )
    rig.desk.heard(facts)
    assert rig.desk.learning is not None
    assert rig.desk.learning.learner.sides[BASELINE].begun_share == pytest.approx(0.75)


def test_a_reload_with_the_same_curves_keeps_what_was_learned() -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    learned = rig.desk.rules.curves
    rig.desk.reload(replace(rig.desk.plan, linger_s=1.0))
    assert rig.desk.rules.curves is learned and rig.desk.rules.learned


@pytest.mark.parametrize("what", ["curves", "url"])
def test_a_reload_with_other_curves_or_engines_begins_anew(what: str) -> None:
    rig = LearningRig()
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    given = rig.desk.plan
    if what == "url":
        first, second = given.backends
        rig.desk.reload(replace(given, backends=(replace(first, url="http://c"), second)))
    else:
        other = of_both({1: 90.0, 8: 480.0}, {1: 60.0, 8: 400.0})
        rig.desk.reload(replace(given, rules=replace(given.rules, curves=other)))
    assert not rig.desk.rules.learned
    assert rig.desk.rules.curves == rig.desk.plan.rules.curves


def test_an_operators_pin_stays_while_curves_are_corrected() -> None:
    rig = LearningRig()
    rig.desk.pin(BASELINE)
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    assert rig.desk.rules.learned and rig.desk.rules.operator_pin is BASELINE


def test_on_shared_gpus_corrections_wait_until_the_demand_is_known() -> None:
    rig = LearningRig(Policy.CONSOLIDATE, placement=Placement.SHARED)
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=50)
    assert not rig.desk.rules.learned
    rig.poll(SPECULATIVE, 1, slower=2.0, seconds=20)
    assert rig.desk.rules.learned


def test_answers_that_their_clients_cut_short_are_not_expected_of_others() -> None:
    rig = LearningRig()
    before = rig.desk.answers.expected("/v1/completions")
    for limit, expects_less in ((1, False), (4096, True)):
        facts = RequestFacts("id", "/v1/completions", "POST", Outcome.FINISHED, 200, None, Traits(max_tokens=limit))
        rig.desk.heard(facts._replace(usage=Usage(1024, 1)))
        assert (rig.desk.answers.expected("/v1/completions") < before) is expects_less


def tried(curves: Curves = FLAT_HERE, **rules: Any) -> tuple[LearningRig, list[Assignment]]:
    """A desk on shared GPUs that has run eight requests until their backend's speed was known, and those."""
    rig = LearningRig(Policy.CONSOLIDATE, curves, placement=Placement.SHARED, **rules)
    places = [rig.place() for _ in range(8)]
    rig.poll(places[0].backend.role, 8, slower=1.0, seconds=12)
    return rig, places


def regimes(rig: LearningRig) -> list[str]:
    return [change.after for change in rig.changes if change.kind is ChangeKind.REGIME]


@pytest.mark.parametrize(("slower", "keeps"), [(0.5, True), (2.0, False)])
def test_on_shared_gpus_the_favour_is_tried_and_the_better_one_keeps_it(slower: float, keeps: bool) -> None:
    rig, places = tried()
    assert regimes(rig) == [SPECULATIVE]
    for each in places:
        rig.desk.settle(each, Outcome.FINISHED)
    assert {rig.place().backend.role for _ in range(8)} == {SPECULATIVE}
    rig.poll(SPECULATIVE, 8, slower=slower, seconds=12)
    assert regimes(rig) == ([SPECULATIVE] if keeps else [SPECULATIVE, BASELINE])
    learning = rig.desk.learning
    assert learning is not None
    summary = learning.summary(rig.desk.backends, rig.now_s)
    assert (summary["trials"], summary["tries"]) == (1, None)


def test_a_trial_that_shows_nothing_ends_with_those_who_pile_up() -> None:
    rig, _ = tried()
    for _ in range(60):
        rig.place()
    rig.poll(BASELINE, 8, slower=1.0, seconds=3)  # the other one tells nothing
    assert regimes(rig) == [SPECULATIVE, BASELINE]


def test_nothing_is_tried_where_curves_tell_who_is_better_or_an_operator_does() -> None:
    told, _ = tried(CURVES)
    assert not regimes(told)
    rig = LearningRig(Policy.CONSOLIDATE, FLAT_HERE, placement=Placement.SHARED)
    rig.desk.pin(BASELINE)
    for _ in range(8):
        rig.place()
    rig.poll(BASELINE, 8, slower=1.0, seconds=12)
    assert not regimes(rig)


def test_a_trial_of_a_backend_that_fails_its_health_is_over() -> None:
    rig, _ = tried()
    rig.desk.drain(SPECULATIVE, draining=True)
    rig.poll(BASELINE, 8, slower=1.0, seconds=3)
    assert regimes(rig) == [SPECULATIVE, BASELINE]


def test_no_probe_is_made_during_a_trial() -> None:
    rig, places = tried()
    for each in places:
        rig.desk.settle(each, Outcome.FINISHED)
    assert rig.desk.learning is not None
    rig.desk.learning.probes.dear = frozenset(ROLES)
    assert rig.place().decision.reason is Reason.REGIME


def test_a_trial_of_a_backend_that_is_full_is_over() -> None:
    rig, places = tried()
    first, second = rig.desk.plan.backends
    rig.desk.reload(replace(rig.desk.plan, backends=(replace(first, max_in_flight=2), second)))
    for each in places:
        rig.desk.settle(each, Outcome.FINISHED)
    assert {rig.place().backend.role for _ in range(2)} == {SPECULATIVE}
    rig.poll(BASELINE, 8, slower=1.0, seconds=3)
    assert regimes(rig) == [SPECULATIVE, BASELINE]


@pytest.mark.parametrize("policy", [Policy.MARGINAL, Policy.CONSOLIDATE])
def test_on_gpus_of_their_own_nothing_is_tried(policy: Policy) -> None:
    rig = LearningRig(policy, FLAT)
    for _ in range(8):
        rig.place()
    rig.poll(BASELINE, 8, slower=1.0, seconds=12)
    assert not regimes(rig)
    assert rig.desk.learning is not None and not rig.desk.learning.tries.made
