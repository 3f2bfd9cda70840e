"""Where requests go now and why: one sentence for every policy and every state."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.told import PRESENTS
from hypothesis import example, given
from test_telling_requests import UNSAID

from proxy.model import ROLES, Policy, Reason, Role
from proxy.telling import Lately, Present, Side, now, troubles

SPECULATIVE, BASELINE = ROLES


def present(policy: Policy = Policy.OVERFLOW, **more: Any) -> Present:
    sides = {"speculative": Side(SPECULATIVE, 3, 48), "baseline": Side(BASELINE, 12, 64)}
    for role in ("speculative", "baseline"):
        if isinstance(more.get(role), str):
            more[role] = replace(sides[role], out=more[role])
    return Present(policy=policy, **{**sides, "enter_at": 5, "leave_at": 9, "smoothed": 3.14159, **more})


@given(PRESENTS)
def test_every_state_is_one_sentence_without_raw_values(state: Present) -> None:
    said = now(state)
    assert said[0].isupper() and said.endswith(".") and ". " not in said
    assert not UNSAID.search(said), said
    assert len(said) < 500, said


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (present(Policy.MARGINAL), "New requests go where by the measured speeds each delays all requests least."),
        (
            present(Policy.THRESHOLD, regime_age_s=42.0),
            "speculative, favoured for 42 s, with 3.1 sequences in flight (smoothed); it is left at 9 (leave_at)",
        ),
        (present(Policy.THRESHOLD, regime=BASELINE), "speculative is entered again at 5 (enter_at)"),
        (
            present(Policy.THRESHOLD, regime_age_s=0.0),
            "New requests go to speculative, newly favoured, with 3.1 sequences",
        ),
        (
            present(),
            "New requests go to speculative while it has fewer than 9 sequences in flight (leave_at), else to base",
        ),
        (present(lately=Lately(40, 25)), "else to baseline; lately about 60 % to speculative."),
        (present(Policy.PINNED, pin=BASELINE), "All requests go to baseline: policy pinned sends them there."),
        (present(pinned=SPECULATIVE), "All requests go to speculative: an operator pinned them there."),
        (present(speculative="down"), "All requests go to baseline, since speculative does not answer its probes."),
        (present(baseline="draining"), "All requests go to speculative, since baseline is draining."),
        (
            present(pinned=SPECULATIVE, speculative="circuit open"),
            "All requests go to baseline: an operator pinned them to speculative, which has its circuit open.",
        ),
        (
            present(speculative="down", baseline="circuit open"),
            "No backend serves (speculative does not answer its probes and baseline has its circuit open): new "
            "requests are tried on both all the same.",
        ),
        (
            present(Policy.MARGINAL, speculative="down", baseline="silent", next=BASELINE),
            "No backend serves (speculative does not answer its probes and baseline gives no sign of life): new "
            "requests are sent to baseline all the same, and wait there.",
        ),
        (
            present(speculative="draining", baseline="draining"),
            "No backend takes requests: both are draining; those that come all the same are tried on both.",
        ),
        (present(baseline="full", waiting=1), "; baseline is full (12 of 64); 1 request waits for room."),
        (
            present(Policy.MARGINAL, speculative="silent", next=BASELINE, reason=Reason.CHEAPER, lately=Lately(6, 4)),
            "New requests go to baseline, since speculative gives no sign of life.",
        ),
        (
            present(speculative="silent", next=BASELINE, reason=Reason.SILENT),
            "New requests go to baseline, since speculative gives no sign of life.",
        ),
        (
            present(pinned=SPECULATIVE, speculative="trial", baseline="silent", next=SPECULATIVE, reason=Reason.SILENT),
            "All requests go to baseline: an operator pinned them to speculative, which takes single trial requests "
            "after its failures; baseline gives no sign of life.",
        ),
        (present(pinned=SPECULATIVE, speculative="silent"), "pinned them there; speculative gives no sign of life."),
        (
            present(speculative="silent", baseline="silent", next=SPECULATIVE, lately=Lately(40, 25), waiting=2),
            "Neither backend gives a sign of life: new requests are sent to them all the same, and wait there; "
            "2 requests wait for room.",
        ),
        (present(pinned=SPECULATIVE, speculative="silent", baseline="silent"), "Neither backend gives a sign of life"),
        (present(speculative="ramping"), "; speculative has just come back and gets its share bit by bit."),
        (
            present(speculative="trial"),
            "All but trial requests go to baseline, since speculative takes single trial requests after its failures.",
        ),
        (
            present(speculative="full", baseline="full", room=False, waiting=6, max_waiting=6),
            "New requests are refused, since speculative is full (3 of 48) and baseline is full (12 of 64), and "
            "6 requests wait already of at most 6 (queue.max_waiting).",
        ),
        (
            present(speculative="full", baseline="down", room=False, waiting=1, max_waiting=6),
            "New requests wait for room, since speculative is full (3 of 48) and baseline does not answer its probes; "
            "1 request waits of at most 6.",
        ),
        (present(room=False, max_waiting=0), "New requests are refused, since no backend has room for them"),
        (present(learning_suspended=True), "; what was learned did harm, so the speeds as measured hold for now."),
        (present(phase="settling"), "; the proxy is about to stop."),
        (present(phase="draining"), "The proxy is stopping and takes no new requests."),
        (present(phase="starting"), "The proxy is starting and takes no requests yet."),
    ],
)
def test_the_state_is_told_with_what_decides(state: Present, words: str) -> None:
    assert words in now(state)


@example(present(pinned=SPECULATIVE, speculative="trial", next=SPECULATIVE, reason=Reason.SILENT))
@given(PRESENTS)
def test_requests_are_never_said_to_go_to_a_backend_that_is_out(state: Present) -> None:
    said = now(state)
    for role in ROLES:
        outs = ("draining", "down", "circuit open", "trial")
        if state.of(role).out in outs and state.of(role.other).out not in outs:
            assert f"go to {role}" not in said


@given(PRESENTS)
def test_requests_are_never_said_to_go_anywhere_as_usual_while_neither_gives_a_sign_of_life(state: Present) -> None:
    silent = replace(state, speculative=replace(state.speculative, out="silent"), room=True, phase="serving")
    said = now(replace(silent, baseline=replace(state.baseline, out="silent")))
    assert said.startswith("Neither backend gives a sign of life: ")
    assert "requests go to" not in said and "split" not in said and said.count("sign of life") == 1


@given(PRESENTS)
def test_new_requests_go_nowhere_while_there_is_no_room(state: Present) -> None:
    said = now(state)
    if state.phase in ("serving", "settling") and not state.room:
        assert "requests go" not in said and "are split" not in said
        assert ("are refused" in said) is state.refusing
        assert ("wait for room" in said) is not state.refusing


@given(PRESENTS)
def test_every_trouble_is_one_short_sentence_and_the_worst_come_first(state: Present) -> None:
    found = troubles(state)
    for each in found:
        assert each.message[-1] == "." and len(each.message) < 120
        assert not UNSAID.search(each.message), each.message
    codes = [each.code for each in found]
    assert "not_ready" not in codes[1:] or codes[0] == "not_ready"
    for role in ROLES:
        told = [each for each in found if each.message.lower().startswith(role)]
        assert len(told) == (state.of(role).out in ("draining", "down", "circuit open", "trial"))


def test_nothing_is_wrong_while_both_serve() -> None:
    assert troubles(present()) == []
    assert troubles(present(speculative="ramping", baseline="full")) == []


@pytest.mark.parametrize(
    ("state", "codes"),
    [
        (present(speculative="down"), ["down"]),
        (present(speculative="circuit open"), ["circuit_open"]),
        (present(baseline="trial"), ["circuit_open"]),
        (present(baseline="draining"), ["drained"]),
        (present(speculative="draining", baseline="down"), ["not_ready", "drained", "down"]),
        (present(room=False, waiting=2, max_waiting=2), ["refusing"]),
        (present(room=False, waiting=1, max_waiting=2), ["waiting"]),
        (present(phase="settling"), ["not_ready"]),
    ],
)
def test_each_trouble_has_its_code(state: Present, codes: list[str]) -> None:
    assert [each.code for each in troubles(state)] == codes


def test_none_is_told_to_be_without_requests_while_they_are_tried_on_both() -> None:
    told = [each.message for each in troubles(present(speculative="down", baseline="circuit open"))]
    assert told[1:] == [
        "Speculative is down: it does not answer its probes.",
        "Baseline failed too many requests in a row (circuit open).",
    ]
    [alone] = troubles(present(speculative="down"))
    assert alone.message == "Speculative is down: it does not answer its probes and gets no requests."


def test_a_refused_configuration_is_a_trouble_with_its_mend() -> None:
    [one] = troubles(present(), ["crossover.yaml:3: no; mend: yes"])
    assert (one.code, one.severe) == ("reload_refused", False)
    assert ": crossover.yaml:3: no; mend: yes. Mend the file" in one.message
    [several] = troubles(present(), ["first" + "x" * 10_000, "second", "third"])
    assert "x ..., and 2 more problems. Mend the file" in several.message
    assert len(several.message) < 700
    codes = [each.code for each in troubles(present(speculative="down", baseline="draining"), ["no"])]
    assert codes[:1] == ["not_ready"] and "reload_refused" in codes


@pytest.mark.parametrize("role", Role)
def test_both_roles_can_be_named(role: Role) -> None:
    assert f"All requests go to {role}" in now(present(pinned=role))
