"""Every change has a sentence with its numbers."""

from dataclasses import replace

import pytest
from fakes.speeds import of_both

from proxy.model import Change, ChangeKind, CircuitState, Demand, Placement, Policy, Regime, Role
from proxy.routing.out import Out
from proxy.routing.rules import Rules
from proxy.watch.journal import MAX_ENTRIES, Entry, Journal
from proxy.watch.sentences import KINDS, of_change

SPECULATIVE, BASELINE = Role
RULES = Rules(policy=Policy.THRESHOLD)
REGIME = Regime(BASELINE, 100.0, 9.25, 100.0, 12.0, Demand(tok_s=1234.0))


def told(kind: ChangeKind, role: Role | None, before: str, after: str, *, regime: Regime = REGIME) -> Entry:
    return of_change(Change(kind, role, before, after), RULES, regime, (3, 9), 100.0)


def test_a_change_of_regime_tells_the_bound_that_was_reached() -> None:
    entry = told(ChangeKind.REGIME, BASELINE, "speculative", "baseline")
    assert entry.sentence == "Requests now go to baseline: 12 in flight, smoothed 9.2, with leave_at 9."
    assert entry.numbers["leave_at"] == 9
    assert (entry.numbers["speculative_in_flight"], entry.numbers["baseline_in_flight"]) == (3, 9)
    back = told(ChangeKind.REGIME, SPECULATIVE, "baseline", "speculative", regime=REGIME._replace(role=SPECULATIVE))
    assert back.sentence.startswith("Requests now go to speculative: ")
    assert "with enter_at 5" in back.sentence


def test_a_change_under_consolidate_tells_the_demand() -> None:
    rules = Rules(policy=Policy.CONSOLIDATE, placement=Placement.SHARED, curves=of_both({1: 100}, {1: 60}))
    change = Change(ChangeKind.REGIME, BASELINE, "speculative", "baseline")
    entry = of_change(change, rules, REGIME, (3, 9), 100.0)
    assert entry.sentence == (
        "Baseline is favoured now: 12 are in flight, more than the demand of the last minutes explains, and it serves "
        "so many sooner."
    )
    faster = replace(rules, curves=of_both({1: 60}, {1: 2000}))
    lasting = REGIME._replace(demand=Demand(tok_s=1234.0, lasting_tok_s=900.0, lasted_s=200.0))
    entry = of_change(change, faster, lasting, (3, 9), 100.0)
    assert entry.sentence == (
        "Baseline is favoured now: by the measured speeds it serves the demand of the last minutes (900 output tok/s) "
        "sooner."
    )
    assert entry.numbers["demand_tok_s"] == 900.0


def test_a_role_that_is_tried_is_not_said_to_serve_sooner() -> None:
    rules = Rules(policy=Policy.CONSOLIDATE, placement=Placement.SHARED, curves=of_both({1: 100}, {1: 60}))
    change = Change(ChangeKind.REGIME, BASELINE, "speculative", "baseline")
    entry = of_change(change, rules, REGIME, (3, 9), 100.0, trial=True)
    assert entry.sentence == "Baseline is favoured now for a while, to see how fast it is."


@pytest.mark.parametrize(
    ("kind", "role", "before", "after", "words"),
    [
        (ChangeKind.CIRCUIT, BASELINE, CircuitState.CLOSED, CircuitState.OPEN, "circuit of baseline opened"),
        (ChangeKind.CIRCUIT, BASELINE, CircuitState.OPEN, CircuitState.HALF_OPEN, "half open: single requests test it"),
        (ChangeKind.CIRCUIT, BASELINE, CircuitState.HALF_OPEN, CircuitState.CLOSED, "closed: its requests succeed"),
        (ChangeKind.HEALTH, SPECULATIVE, "up", "down", "Speculative is down"),
        (ChangeKind.HEALTH, SPECULATIVE, "down", "up", "Speculative answers again"),
        (ChangeKind.HEALTH, SPECULATIVE, "unknown", "up", "Speculative answers: it is up"),
        (ChangeKind.PIN, BASELINE, "none", "baseline", "pinned everything to baseline"),
        (ChangeKind.PIN, None, "baseline", "none", "took the pin back"),
        (ChangeKind.DRAIN, BASELINE, "false", "true", "drains baseline"),
        (ChangeKind.DRAIN, BASELINE, "true", "false", "took baseline back"),
        (ChangeKind.LEARNING, None, "learned", "measured", "did harm"),
    ],
)
def test_a_change_is_told_in_words(kind: ChangeKind, role: Role | None, before: str, after: str, words: str) -> None:
    entry = told(kind, role, before, after)
    assert words in entry.sentence
    assert (entry.kind, entry.role) == (KINDS[kind], role)
    assert (entry.numbers["before"], entry.numbers["after"]) == (before, after)


@pytest.mark.parametrize(
    ("kind", "after", "instead"),
    [
        (ChangeKind.HEALTH, "down", "so requests go to baseline."),
        (ChangeKind.CIRCUIT, CircuitState.OPEN, "so it gets none for a while."),
        (ChangeKind.DRAIN, "true", "it gets nothing new, what runs there goes on."),
    ],
)
def test_requests_are_not_said_to_go_to_a_backend_that_serves_as_little(
    kind: ChangeKind, after: str, instead: str
) -> None:
    change = Change(kind, SPECULATIVE, "before", after)
    alone, down, silent = (
        of_change(change, RULES, REGIME, (3, 9), 100.0, beside=beside).sentence
        for beside in (None, Out.DOWN, Out.SILENT)
    )
    assert alone.endswith(instead)
    assert down.endswith(
        ", and baseline does not answer its probes: no backend serves, and requests are tried on both all the same."
    )
    assert silent.endswith(
        ", and baseline gives no sign of life either: requests are sent there all the same, and wait."
    )


def test_every_kind_of_change_has_its_name() -> None:
    told_with_those_who_wait = {ChangeKind.SILENCE}  # see watch/silence.py and tests/flow/test_flow_silence.py
    assert set(KINDS) == set(ChangeKind) - told_with_those_who_wait


def test_the_journal_keeps_the_newest_entries_newest_first() -> None:
    journal = Journal()
    for number in range(MAX_ENTRIES + 5):
        journal.write(Entry(float(number), "pin", None, str(number), {}))
    assert [entry.sentence for entry in journal.newest(2)] == [str(MAX_ENTRIES + 4), str(MAX_ENTRIES + 3)]
    assert len(journal.newest(10_000)) == MAX_ENTRIES
    assert journal.written == MAX_ENTRIES + 5


def test_an_entry_without_a_backend_tells_no_role() -> None:
    assert Entry(1.0, "reload", None, "s", {}).told(9.0) == {
        "at_s": 10.0,
        "kind": "reload",
        "sentence": "s",
        "numbers": {},
    }
    assert Entry(1.0, "pin", BASELINE, "s", {}).told(0.0)["role"] == "baseline"
