"""Policy `overflow`: up to leave_at on speculative, and what counts as load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import BackendLoad, Reason, Role
from proxy.routing.overflow import prefer
from proxy.routing.rules import Rules

ROOM = (Role.SPECULATIVE, Reason.ROOM)
OVER = (Role.BASELINE, Reason.OVERFLOW)


@pytest.mark.parametrize(
    ("in_flight", "failures", "weight", "wanted"),
    [
        (0, 0, 1, ROOM),
        (8, 0, 1, ROOM),
        (9, 0, 1, OVER),
        (8, 0, 2, OVER),
        (0, 0, 16, ROOM),
        (1, 0, 16, OVER),
    ],
)
def test_speculative_takes_requests_up_to_leave_at(
    in_flight: int, failures: int, weight: int, wanted: tuple[Role, Reason]
) -> None:
    assert prefer(Rules(leave_at=9), BackendLoad(Role.SPECULATIVE, in_flight, None, failures), weight) == wanted


def test_recent_failures_count_as_load_so_that_failing_fast_is_not_idleness() -> None:
    assert prefer(Rules(leave_at=9), BackendLoad(Role.SPECULATIVE, 0, None, 8), 1) == ROOM
    assert prefer(Rules(leave_at=9), BackendLoad(Role.SPECULATIVE, 0, None, 9), 1) == OVER


def test_a_heavy_request_alone_avoids_an_empty_backend_that_has_just_failed() -> None:
    assert prefer(Rules(leave_at=9), BackendLoad(Role.SPECULATIVE, 0, None, 1), 16) == OVER


@given(st.integers(1, 50), st.integers(0, 60), st.integers(0, 20), st.integers(1, 20))
def test_more_load_never_turns_overflow_into_room(leave_at: int, in_flight: int, failures: int, weight: int) -> None:
    rules = Rules(leave_at=leave_at)
    if prefer(rules, BackendLoad(Role.SPECULATIVE, in_flight, None, failures), weight) == OVER:
        assert prefer(rules, BackendLoad(Role.SPECULATIVE, in_flight + 1, None, failures), weight) == OVER
        assert prefer(rules, BackendLoad(Role.SPECULATIVE, in_flight, None, failures + 1), weight) == OVER
        assert prefer(rules, BackendLoad(Role.SPECULATIVE, in_flight, None, failures), weight + 1) == OVER
