"""Where requests go now and why: one sentence for every policy and every state."""

from dataclasses import replace
from typing import Any

import pytest
from fakes.told import PRESENTS
from hypothesis import given
from test_telling_requests import UNSAID

from proxy.model import ROLES, Policy, Role
from proxy.telling import Present, Side, now

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
        (
            present(Policy.MARGINAL),
            "by the measured speeds it delays all of them least, with 3 in flight on speculative",
        ),
        (
            present(Policy.CONSOLIDATE, regime=BASELINE, regime_age_s=42.0),
            "New requests go to baseline, favoured since 42 s as the one that serves the present demand sooner",
        ),
        (
            present(Policy.THRESHOLD, regime_age_s=42.0),
            "speculative, favoured since 42 s, with 3.1 sequences in flight (smoothed); it is left at 9 (leave_at)",
        ),
        (present(Policy.THRESHOLD, regime=BASELINE), "speculative is entered again at 5 (enter_at)"),
        (present(), "New requests go to speculative, which has 3 of the 9 sequences (leave_at)"),
        (present(leave_at=3), "New requests go to baseline, since speculative has 3 of its 3 sequences"),
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
            "No backend is eligible (speculative does not answer its probes and baseline has its circuit open), so",
        ),
        (present(baseline="full", waiting=1), "; baseline is full (12 of 64); 1 request waits for room."),
        (present(speculative="ramping"), "; speculative has just come back and gets its share bit by bit."),
        (present(learning_suspended=True), "; what was learned did harm, so the speeds as measured hold for now."),
        (present(phase="settling"), "; the proxy is about to stop."),
        (present(phase="draining"), "The proxy is stopping and takes no new requests."),
        (present(phase="starting"), "The proxy is starting and takes no requests yet."),
    ],
)
def test_the_state_is_told_with_what_decides(state: Present, words: str) -> None:
    assert words in now(state)


@given(PRESENTS)
def test_requests_are_never_said_to_go_to_a_backend_that_is_out(state: Present) -> None:
    said = now(state)
    for role in ROLES:
        other = state.of(role.other).out
        if state.of(role).out in ("draining", "down", "circuit open") and other not in (
            "draining",
            "down",
            "circuit open",
        ):
            assert f"go to {role}" not in said


@pytest.mark.parametrize("role", Role)
def test_both_roles_can_be_named(role: Role) -> None:
    assert f"All requests go to {role}" in now(present(pinned=role))
