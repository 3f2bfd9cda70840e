"""What one look finds: the last minute by column, and nothing where an older proxy tells nothing."""

from typing import Any

import pytest
from fakes.operators import STATUS, operators
from fakes.watched import WATCHED, history, row

from proxy.model import Role
from proxy.terminal.port import Port, Unanswered
from proxy.terminal.view import MAX_DECISIONS, WINDOW_S, View, look


def test_a_look_has_everything_that_the_port_tells() -> None:
    with operators(**WATCHED) as port:
        view = look(Port(port.url))
        assert view.status == STATUS
        assert view.column("speculative_in_flight") == list(range(1, 61))
        assert len(view.decisions) == MAX_DECISIONS and view.events[0]["kind"] == "health"
        assert port.asked == ["/status", "/history?seconds=60", "/decisions?limit=50", "/journal?limit=50"]


def test_an_older_proxy_is_looked_at_without_its_history() -> None:
    with operators() as port:
        assert look(Port(port.url)) == View(port.url, STATUS)


@pytest.mark.parametrize("path", ["status", "history", "decisions", "journal"])
def test_a_failure_is_no_absence(path: str) -> None:
    with operators(**{**WATCHED, path: (500, {"error": "it failed"})}) as port, pytest.raises(Unanswered):
        look(Port(port.url))


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"columns": 3, "samples": []},
        {"columns": ["a"], "samples": [[1, 2], 3, None]},
        {"columns": [], "samples": None, "step_s": "x"},
    ],
)
def test_odd_history_is_none(odd: dict[str, Any]) -> None:
    with operators(history=odd, decisions={"decisions": [3, None]}, journal={"events": "x"}) as port:
        view = look(Port(port.url))
    assert (view.column("a"), view.step_s, view.decisions, view.events) == ([], 1.0, [], [])


def test_no_more_than_a_minute_is_kept() -> None:
    with operators(history=history(1800)) as port:
        view = look(Port(port.url))
    assert len(view.column("at_s")) == WINDOW_S and view.column("speculative_in_flight")[-1] == 1800


def test_speeds_are_means_of_the_latest_steps_that_told_one() -> None:
    with operators(history={**history(), "step_s": 2.0}) as port:
        view = look(Port(port.url))
    assert view.mean(Role.SPECULATIVE, "tok_s") == 300.0
    assert view.mean(Role.BASELINE, "ttft_s") is None
    assert view.per_s(Role.SPECULATIVE) == row(1)[8] / 2.0
    assert view.total("baseline_requests") == 60
    assert View("u", STATUS).per_s(Role.BASELINE) is None
