"""The desk beside one written the long way: the short cuts that most requests take change no decision and no count."""

import sys
from collections.abc import Callable
from math import ceil, exp, exp2, inf
from types import FrameType
from typing import Any

import pytest
from fakes.rig import BASELINE, LINGER_S, OPEN_S, SPECULATIVE, Rig
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dispatch import Assignment, Desk
from proxy.model import (
    ROLES,
    BackendLoad,
    Because,
    ChangeKind,
    CircuitState,
    Decision,
    EngineFacts,
    EngineLoad,
    LoadSnapshot,
    Outcome,
    Policy,
    Reason,
    Regime,
    Role,
    Traits,
)
from proxy.routing import health
from proxy.routing.blackhole import HALF_LIFE_S
from proxy.routing.breaker import TABLE, BreakerRules, Circuit, Event
from proxy.routing.health import Evidence, Health, HealthRules
from proxy.routing.ramp import GOAL_IF_UNLIMITED
from proxy.routing.rules import Rules
from proxy.routing.threshold import NEAR
from proxy.wire.admission import Admission, QueueRules

BREAKER = BreakerRules(max_failures=5, open_s=OPEN_S, max_probes=1)


class Side:
    """One backend of the plain desk."""

    def __init__(self, role: Role, limit: int | None) -> None:
        self.role, self.limit = role, limit
        self.leases: list[int] = []  # weights
        self.ghosts: list[tuple[float, int]] = []  # until when, and weights
        self.circuit, self.health = Circuit(), Health()
        self.failures: list[tuple[float, float]] = []  # the weight of them all after each, and when
        self.recovered_at_s: float | None = None

    @property
    def in_flight(self) -> int:
        return sum(self.leases) + sum(weight for _, weight in self.ghosts)

    def failed(self, now_s: float) -> float:
        if not self.failures:
            return 0.0
        value, at_s = self.failures[-1]
        return value * exp2(-(now_s - at_s) / HALF_LIFE_S)

    def live(self, now_s: float) -> int:
        return sum(expiry_s > now_s for expiry_s in self.circuit.probes)

    def passes(self, now_s: float) -> bool:
        if self.circuit.state is CircuitState.OPEN:
            return now_s - self.circuit.since_s >= OPEN_S
        return self.circuit.state is CircuitState.CLOSED or self.live(now_s) < BREAKER.max_probes

    def load(self, now_s: float) -> BackendLoad:
        return BackendLoad(
            self.role,
            self.in_flight,
            self.limit,
            int(self.failed(now_s) + 0.5),
            self.health.up is not False and self.passes(now_s),
            None if self.recovered_at_s is None else now_s - self.recovered_at_s,
        )

    def move(self, event: Event, now_s: float, *, probe: bool = False, sent_at_s: float = inf) -> None:
        late = sent_at_s < self.circuit.since_s
        if late or (probe and event is Event.NEUTRAL and sent_at_s + OPEN_S <= now_s):
            return
        row, before = TABLE[self.circuit.state, event], self.circuit.state
        self.circuit = (row.probe if probe else row.ordinary)(BREAKER, self.circuit, now_s)
        if self.circuit.state is CircuitState.CLOSED and before is not CircuitState.CLOSED:
            self.recovered_at_s = now_s


class PlainDesk:
    """Every count added up anew and every rule asked at every step."""

    def __init__(self, rules: Rules, limits: tuple[int | None, int | None], now_s: float) -> None:
        self.rules = rules
        self.sides = {role: Side(role, limit) for role, limit in zip(ROLES, limits, strict=True)}
        self.regime = Regime(since_s=now_s - rules.min_dwell_s, smoothed_at_s=now_s)
        self.switches: list[Role] = []

    def follow(self, in_flight: int, now_s: float) -> None:
        """The count in force until now into the mean, then the thresholds."""
        rules, before = self.rules, self.regime
        decay = exp((before.smoothed_at_s - now_s) / rules.smoothing_s) if rules.smoothing_s else 0.0
        smoothed = before.held + (before.smoothed - before.held) * decay if rules.smoothing_s else float(in_flight)
        if rules.smoothing_s and now_s == before.smoothed_at_s:
            smoothed = before.smoothed
        to_baseline = before.role is SPECULATIVE and smoothed >= rules.leave_at - NEAR
        to_speculative = before.role is BASELINE and smoothed <= rules.enter_at + NEAR
        switches = rules.effective_policy is Policy.THRESHOLD and now_s - before.since_s >= rules.min_dwell_s
        role, since_s = before.role, before.since_s
        if switches and (to_baseline or to_speculative):
            role, since_s = role.other, now_s
            self.switches.append(role)
        self.regime = Regime(role, since_s, smoothed, now_s, in_flight)

    def snapshot(self, now_s: float) -> LoadSnapshot:
        dues = {until_s for side in self.sides.values() for until_s, _ in side.ghosts if until_s <= now_s}
        for due_s in sorted(dues):
            for side in self.sides.values():
                side.ghosts = [ghost for ghost in side.ghosts if ghost[0] > due_s]
            self.follow(self.in_flight, due_s)
        return LoadSnapshot(now_s, *(self.sides[role].load(now_s) for role in ROLES))

    @property
    def in_flight(self) -> int:
        return sum(side.in_flight for side in self.sides.values())

    def assign(self, traits: Traits, now_s: float) -> tuple[Decision, int, bool]:
        """The decision, the weight that it leases and whether it is a probe."""
        seen = self.snapshot(now_s)
        self.follow(seen.in_flight, now_s)
        role, reason = self.choose(seen, traits)
        counts = (seen.speculative.in_flight, seen.baseline.in_flight)
        rules, regime = self.rules, self.regime
        levels = (regime.smoothed, rules.enter_at, rules.leave_at, regime.role, seen.speculative.recent_failures)
        because = Because(rules.effective_policy, *counts, *levels)
        if role is None:
            return Decision(None, reason, self.regime, because), 0, False
        side, weight = self.sides[role], held(seen.of(role), traits.weight)
        probe = side.circuit.state is not CircuitState.CLOSED and side.passes(now_s)
        side.leases.append(weight)
        side.move(Event.ADMITTED, now_s)
        self.follow(self.in_flight, now_s)
        return Decision(role, reason, self.regime, because), weight, probe

    def choose(self, seen: LoadSnapshot, traits: Traits) -> tuple[Role | None, Reason]:
        wanted, reason = self.prefer(seen, traits)
        firm = reason is Reason.HEADER
        load, other = seen.of(wanted), seen.of(wanted.other)
        room = fits_in(load, traits.weight)
        held_back = self.is_held_back(load, other, traits.weight)
        role: Role | None = wanted
        if not load.eligible and not seen.all_down:
            role, reason = wanted.other, Reason.ONLY_ELIGIBLE
        elif not room:
            role, reason = (None if firm else wanted.other), Reason.OTHER_FULL
        elif held_back and not firm:
            role, reason = wanted.other, Reason.RAMPING
        if role is wanted.other:
            takes = fits_in(other, traits.weight) and not self.is_held_back(other, load, traits.weight)
            role = role if takes and (other.eligible or seen.all_down) else None
        if role is None:
            return None, Reason.FULL
        return role, Reason.ALL_DOWN if seen.all_down else reason

    def prefer(self, seen: LoadSnapshot, traits: Traits) -> tuple[Role, Reason]:
        if traits.asked is not None:
            return traits.asked, Reason.HEADER
        busy = seen.speculative.in_flight + seen.speculative.recent_failures
        fits = busy == 0 or busy + traits.weight <= self.rules.leave_at
        if self.rules.effective_policy is Policy.OVERFLOW:
            return (SPECULATIVE, Reason.ROOM) if fits else (BASELINE, Reason.OVERFLOW)
        if self.regime.role is SPECULATIVE and not fits:
            return BASELINE, Reason.OVERFLOW
        return self.regime.role, Reason.REGIME

    def is_held_back(self, load: BackendLoad, beside: BackendLoad, weight: int) -> bool:
        ramps = [each.recovered_s is not None and each.recovered_s < self.rules.ramp_s for each in (load, beside)]
        if not ramps[0] or ramps[1] or not beside.eligible or load.in_flight == 0 or load.recovered_s is None:
            return False
        goal = GOAL_IF_UNLIMITED if load.max_in_flight is None else load.max_in_flight
        goal = min(goal, self.rules.leave_at) if load.role is SPECULATIVE else goal
        return load.in_flight + weight > ceil(goal * load.recovered_s / self.rules.ramp_s)

    def settle(self, place: Assignment, now_s: float, *, lingers: bool) -> None:
        side, weight = self.sides[place.backend.role], place.lease.weight
        side.leases.remove(weight)
        there = sum(weight for _, weight in side.ghosts)
        most = inf if side.limit is None else max(1, side.limit // 4)
        stays = int(min(weight, max(0, most - there))) if lingers else 0
        side.ghosts += [(now_s + LINGER_S, stays)] if stays else []
        self.snapshot(now_s)
        self.follow(self.in_flight, now_s)

    def observe(self, role: Role, evidence: Evidence, now_s: float) -> None:
        side = self.sides[role]
        before, side.health = side.health.up, health.advance(HealthRules(), side.health, evidence, now_s)
        if before is False and side.health.up:
            side.recovered_at_s = now_s


def held(load: BackendLoad, weight: int) -> int:
    return weight if load.max_in_flight is None else max(1, min(weight, load.max_in_flight))


def fits_in(load: BackendLoad, weight: int) -> bool:
    return load.max_in_flight is None or load.in_flight + held(load, weight) <= load.max_in_flight


ENDS = {
    "finish": (Event.SUCCESS, Outcome.FINISHED),
    "fail": (Event.FAILURE, Outcome.FAILED_AFTER_COMMIT),
    "refuse": (Event.NEUTRAL, Outcome.FINISHED),
    "leave": (Event.NEUTRAL, Outcome.CLIENT_GONE_WAITING),
}
WEIGHTS = st.sampled_from([1, 1, 1, 2, 7, 30])
ASSIGN = st.tuples(st.just("assign"), WEIGHTS, st.sampled_from([None, None, None, *ROLES]))
END = st.tuples(st.just("end"), st.sampled_from(sorted(ENDS)), st.integers(0, 50))
WAIT = st.tuples(st.just("wait"), st.sampled_from([0.001, 0.5, 1.0, 3.0, 10.0]), st.none())
SIGN = st.tuples(st.just("sign"), st.sampled_from(ROLES), st.sampled_from(Evidence))
# What single steps seldom add up to: a backend fails all that it is sent, or is down for a moment; clients leave early.
BURST = st.tuples(st.sampled_from(["fail", "leave"]), st.sampled_from(ROLES), st.integers(1, 6))
OUTAGE = st.tuples(st.just("outage"), st.sampled_from(ROLES), st.none())
STEPS = st.lists(ASSIGN | ASSIGN | END | WAIT | WAIT | SIGN | OUTAGE | BURST, min_size=20, max_size=80)


class Pair:
    """A desk and a plain one that are told the same."""

    def __init__(self, limits: tuple[int | None, int | None], **rules: Any) -> None:
        self.rig = Rig(limits=limits, leave_at=6, enter_at=2, **rules)
        self.plain = PlainDesk(self.rig.desk.rules, limits, self.rig.now_s)
        self.held: list[Assignment] = []

    def step(self, name: str, first: Any, second: Any) -> None:
        if name == "wait":
            self.rig.now_s += first
        elif name == "assign":
            self.assign(Traits(weight=first, asked=second))
        elif name == "sign":
            self.observe(first, second)
        elif name == "outage":
            for evidence in (*[Evidence.MISS] * 3, *[Evidence.HIT] * 2):
                self.observe(first, evidence)
        elif name == "end":
            self.end(first, second, unheard=second % 2 == 0)
        else:
            for _ in range(second):
                self.assign(Traits(asked=first))
                self.end(name, -1, unheard=name == "leave")

    def observe(self, role: Role, evidence: Evidence) -> None:
        self.rig.desk.observe_health(self.rig.desk.backend(role), evidence)
        self.plain.observe(role, evidence, self.rig.now_s)

    def assign(self, traits: Traits) -> None:
        place = self.rig.desk.assign(traits, "id", "/v1/completions")
        decision, weight, probe = self.plain.assign(traits, self.rig.now_s)
        if isinstance(place, Decision):
            assert place == decision
            return
        assert (place.decision, place.lease.weight, place.probe) == (decision, weight, probe)
        assert place.backend is self.rig.desk.backend(place.backend.role)
        assert self.rig.desk.ring[-1] == (self.rig.now_s, "id", "/v1/completions", traits.weight, 1, decision)
        self.held.append(place)

    def end(self, name: str, number: int, *, unheard: bool) -> None:
        if not self.held:
            return
        place, now_s = self.held.pop(number % len(self.held)), self.rig.now_s
        event, outcome = ENDS[name]
        side = self.plain.sides[place.backend.role]
        self.rig.desk.judge(place, event)
        self.rig.desk.settle(place, outcome, unheard=unheard)
        if event is Event.FAILURE:
            side.failures.append((side.failed(now_s) + 1.0, now_s))
        side.move(event, now_s, probe=place.probe, sent_at_s=place.lease.opened_at_s)
        self.plain.settle(place, now_s, lingers=unheard and outcome is not Outcome.FINISHED)

    def assert_same(self) -> None:
        assert self.rig.desk.snapshot() == self.plain.snapshot(self.rig.now_s)
        assert self.rig.desk.regime == self.plain.regime
        switches = [change.after for change in self.rig.changes if change.kind is ChangeKind.REGIME]
        assert switches == self.plain.switches
        for role, side in self.plain.sides.items():
            backend = self.rig.desk.backend(role)
            assert (backend.circuit, backend.health) == (side.circuit, side.health)


@settings(max_examples=300)
@given(
    STEPS,
    st.sampled_from([Policy.THRESHOLD, Policy.OVERFLOW]),
    st.sampled_from([(None, None), (8, 16), (4, None)]),
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([0.0, 1.0]),
)
def test_desk_decides_and_counts_as_the_plain_one_whatever_happens(
    steps: list[tuple[str, Any, Any]],
    policy: Policy,
    limits: tuple[int | None, int | None],
    smoothing_s: float,
    min_dwell_s: float,
) -> None:
    pair = Pair(limits, policy=policy, smoothing_s=smoothing_s, min_dwell_s=min_dwell_s)
    for step in steps:
        pair.step(*step)
        pair.assert_same()


# ---------------------------------------------------------------- what one request costs

# Python calls of one request's whole share of the desk: a third more than the 81 it takes, so that a call or two may
# come and a second look at everything may not. A time would say nothing that holds on another machine.
MAX_CALLS = 105


def calls_of(act: Callable[[], None]) -> int:
    """How many Python functions `act` calls, itself among them."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def busy_desk(policy: Policy) -> tuple[Desk, Admission]:
    """All is well with two engines that have said what they are, and some tens of requests are in flight."""
    rig = Rig(limits=(64, 64), policy=policy, leave_at=16, enter_at=8, smoothing_s=2.0)
    for backend in rig.desk.backends:
        rig.desk.observe_health(backend, Evidence.HIT)
        rig.desk.learn_facts(backend, EngineFacts(version="0.5.20", max_running_requests=48))
        rig.desk.observe_load(backend, EngineLoad(running=3, waiting=0, max_running_requests=48))
    for _ in range(30):
        rig.assign()
        rig.now_s += 0.5
    return rig.desk, Admission(rig.desk, QueueRules())


@pytest.mark.parametrize("policy", [Policy.THRESHOLD, Policy.OVERFLOW])
def test_a_request_passes_the_desk_with_few_calls_when_all_is_well(policy: Policy) -> None:
    desk, admission = busy_desk(policy)
    ended = []

    def pass_one() -> None:
        waits = admission.admit(Traits(), "id", "/v1/chat/completions")
        try:
            waits.send(None)
        except StopIteration as done:
            place = done.value
        desk.judge(place, Event.SUCCESS)
        desk.tokens_flowed(place.backend)
        desk.settle(place, Outcome.FINISHED)
        ended.append(place.lease.outcome)

    assert calls_of(pass_one) <= MAX_CALLS
    assert ended == [Outcome.FINISHED]
