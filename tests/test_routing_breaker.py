"""The circuit breaker: its table, its steps, and that it never stays shut."""

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import CircuitState
from proxy.routing.breaker import TABLE, BreakerRules, Circuit, Event, admits, advance, is_calm, is_probe

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
RULES = BreakerRules(max_failures=3, open_s=10.0, max_probes=1)
OPENED = Circuit(OPEN, 0.0, 3)


def after(circuit: Circuit, *events: Event, now_s: float = 0.0, probe: bool = False) -> Circuit:
    for event in events:
        circuit = advance(RULES, circuit, event, now_s, probe=probe)
    return circuit


def half_open(at_s: float = 10.0) -> Circuit:
    return after(OPENED, Event.ADMITTED, now_s=at_s)


# ---------------------------------------------------------------- the table


def test_every_pair_of_state_and_event_has_a_row() -> None:
    assert set(TABLE) == set(product(CircuitState, Event))


@pytest.mark.parametrize("circuit", [Circuit(state, 0.0, failures) for state in CircuitState for failures in (0, 2)])
@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("probe", [True, False])
def test_only_a_failure_moves_a_calm_circuit_and_others_go_by_the_table(
    circuit: Circuit, event: Event, probe: bool
) -> None:
    row = TABLE[circuit.state, event]
    assert advance(RULES, circuit, event, 5.0, probe=probe) == (row.probe if probe else row.ordinary)(
        RULES, circuit, 5.0
    )
    if is_calm(circuit) and event is not Event.FAILURE:
        assert advance(RULES, circuit, event, 5.0, probe=probe) is circuit


@pytest.mark.parametrize("event", [Event.SUCCESS, Event.FAILURE, Event.NEUTRAL])
@pytest.mark.parametrize("probe", [True, False])
def test_nothing_that_ends_during_the_cool_down_moves_an_open_circuit(event: Event, probe: bool) -> None:
    assert after(OPENED, event, now_s=9.0, probe=probe) == OPENED


@pytest.mark.parametrize("event", [Event.SUCCESS, Event.FAILURE, Event.NEUTRAL])
def test_requests_from_before_do_not_judge_a_half_open_circuit(event: Event) -> None:
    assert after(half_open(), event, now_s=11.0) == half_open()


# ---------------------------------------------------------------- closed


def test_failures_in_a_row_open_the_circuit() -> None:
    assert after(Circuit(), Event.FAILURE, Event.FAILURE).state is CLOSED
    assert after(Circuit(), *[Event.FAILURE] * 3, now_s=7.0) == Circuit(OPEN, 7.0, 3)


def test_a_success_between_failures_starts_the_row_again() -> None:
    failure, success = Event.FAILURE, Event.SUCCESS
    assert after(Circuit(), failure, failure, success, failure, failure).state is CLOSED


def test_client_errors_neither_open_nor_heal() -> None:
    assert after(Circuit(), *[Event.NEUTRAL] * 50) == Circuit()
    failure, neutral = Event.FAILURE, Event.NEUTRAL
    assert after(Circuit(), failure, neutral, failure, neutral, failure).state is OPEN


def test_late_failures_of_an_outage_do_not_open_a_circuit_that_has_healed() -> None:
    healed = after(half_open(), Event.SUCCESS, now_s=11.0, probe=True)
    for _ in range(20):
        assert advance(RULES, healed, Event.FAILURE, 12.0, sent_at_s=3.0) == healed


# ---------------------------------------------------------------- open and half-open


def test_an_open_circuit_admits_only_after_its_cool_down() -> None:
    assert not admits(RULES, OPENED, 9.9)
    assert admits(RULES, OPENED, 10.0)


def test_a_request_forced_on_an_open_circuit_is_no_probe_and_moves_nothing() -> None:
    assert not is_probe(RULES, OPENED, 5.0)
    assert after(OPENED, Event.ADMITTED, now_s=5.0) == OPENED


def test_the_first_request_after_the_cool_down_is_the_probe_and_the_only_one() -> None:
    assert is_probe(RULES, OPENED, 10.0)
    circuit = half_open()
    assert circuit == Circuit(HALF_OPEN, 10.0, 3, (20.0,))
    assert not admits(RULES, circuit, 10.0)
    assert after(circuit, Event.ADMITTED, now_s=11.0) == circuit


def test_a_stated_number_of_probes_may_run_at_once() -> None:
    rules, circuit = BreakerRules(3, 10.0, max_probes=3), OPENED
    admitted = 0
    while admits(rules, circuit, 10.0):
        circuit = advance(rules, circuit, Event.ADMITTED, 10.0)
        admitted += 1
    assert admitted == 3


def test_a_probes_success_closes_the_circuit() -> None:
    assert after(half_open(), Event.SUCCESS, now_s=12.0, probe=True) == Circuit(CLOSED, 12.0)


def test_a_probes_failure_opens_the_circuit_for_another_cool_down() -> None:
    assert after(half_open(), Event.FAILURE, now_s=12.0, probe=True) == Circuit(OPEN, 12.0, 3)


def test_a_late_failure_of_an_earlier_probe_does_not_shut_the_next_one_out() -> None:
    reopened = after(half_open(), Event.FAILURE, now_s=12.0, probe=True)
    again = after(reopened, Event.ADMITTED, now_s=22.0)
    assert advance(RULES, again, Event.FAILURE, 23.0, probe=True, sent_at_s=10.0) == again


# ---------------------------------------------------------------- never stuck


@pytest.mark.parametrize(
    ("ending", "at_s"),
    [
        pytest.param(Event.NEUTRAL, 10.5, id="cancelled by its client"),
        pytest.param(Event.NEUTRAL, 10.2, id="answered 400"),
        pytest.param(None, 10.0, id="hung for ever"),
        pytest.param(Event.FAILURE, 10.0, id="refused while uploading"),
    ],
)
def test_a_healthy_backend_serves_within_two_cool_downs_however_the_probe_ends(
    ending: Event | None, at_s: float
) -> None:
    circuit = half_open()
    if ending is not None:
        circuit = advance(RULES, circuit, ending, at_s, probe=True, sent_at_s=10.0)
    assert is_probe(RULES, circuit, 20.0)
    circuit = after(circuit, Event.ADMITTED, now_s=20.0)
    assert after(circuit, Event.SUCCESS, now_s=20.0, probe=True).state is CLOSED


def test_a_neutral_ending_frees_the_probes_place_at_once() -> None:
    circuit = after(half_open(), Event.NEUTRAL, now_s=10.1, probe=True)
    assert (circuit.state, circuit.probes) == (HALF_OPEN, ())
    assert admits(RULES, circuit, 10.1)


@dataclass
class Traffic:
    """Requests against one circuit: sends, ends and loses them as a script says, and checks what always holds."""

    rules: BreakerRules
    circuit: Circuit = field(default_factory=Circuit)
    now_s: float = 0.0
    flying: list[tuple[bool, float]] = field(default_factory=list)

    def tell(self, event: Event, probe: bool = False, sent_at_s: float = float("inf")) -> None:
        before = self.circuit
        after = advance(self.rules, before, event, self.now_s, probe=probe, sent_at_s=sent_at_s)
        allowed = {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, OPEN), (HALF_OPEN, CLOSED)}
        assert before.state is after.state or (before.state, after.state) in allowed
        assert after.since_s == (before.since_s if before.state is after.state else self.now_s)
        assert len(after.probes) <= self.rules.max_probes
        assert all(expiry_s <= self.now_s + self.rules.open_s for expiry_s in after.probes)
        assert after.probes == () or after.state is HALF_OPEN
        self.circuit = after

    def send(self) -> None:
        self.flying.append((is_probe(self.rules, self.circuit, self.now_s), self.now_s))
        self.tell(Event.ADMITTED)

    def end(self, which: int, event: Event) -> None:
        if self.flying:
            probe, sent_at_s = self.flying.pop(which % len(self.flying))
            self.tell(event, probe, sent_at_s)

    def serve(self) -> None:
        """A request at a healthy backend, when the circuit lets it through."""
        if admits(self.rules, self.circuit, self.now_s):
            self.send()
            self.end(-1, Event.SUCCESS)


endings = st.sampled_from([Event.SUCCESS, Event.FAILURE, Event.FAILURE, Event.FAILURE, Event.NEUTRAL])
moves = st.tuples(st.sampled_from(["wait", "send", "send", "end", "end", "lose"]), st.integers(0, 150), endings)
some_rules = st.builds(BreakerRules, st.integers(1, 5), st.floats(0.5, 20), st.integers(1, 3))


@st.composite
def busy(draw: st.DrawFn) -> Traffic:
    """A circuit after a random run of admissions, endings, lost requests and forced admissions."""
    traffic = Traffic(draw(some_rules))
    for move, number, event in draw(st.lists(moves, max_size=60)):
        if move == "wait":
            traffic.now_s += number / 10
        elif move == "send":
            traffic.send()
        elif move == "end":
            traffic.end(number, event)
        elif traffic.flying:
            traffic.flying.pop(number % len(traffic.flying))
    return traffic


@settings(max_examples=200)
@given(busy())
def test_a_circuit_always_admits_again_within_one_cool_down_and_then_closes(traffic: Traffic) -> None:
    traffic.now_s += traffic.rules.open_s + 1e-6
    assert admits(traffic.rules, traffic.circuit, traffic.now_s)
    traffic.serve()
    assert traffic.circuit.state is CLOSED


@settings(max_examples=200)
@given(busy(), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 50), endings), max_size=30))
def test_stragglers_of_an_outage_delay_recovery_by_one_cool_down_at_most(
    traffic: Traffic, stragglers: list[tuple[int, int, Event]]
) -> None:
    if traffic.circuit.state is CLOSED:
        return
    for tick in range(40):
        traffic.now_s += traffic.rules.open_s / 10
        for _, which, event in (late for late in stragglers if late[0] == tick):
            traffic.end(which, event)
        traffic.serve()
        if tick > 21:
            assert traffic.circuit.state is CLOSED


@given(busy(), st.floats(0, 30))
def test_reading_a_circuit_changes_nothing_and_repeats(traffic: Traffic, pause_s: float) -> None:
    before, now_s = traffic.circuit, traffic.now_s + pause_s
    assert admits(traffic.rules, before, now_s) == admits(traffic.rules, before, now_s)
    assert advance(traffic.rules, before, Event.FAILURE, now_s) == advance(traffic.rules, before, Event.FAILURE, now_s)
    assert traffic.circuit == before
