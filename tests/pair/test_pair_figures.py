"""What is made of requests: by the step they came in, and not by when they ended."""

from dataclasses import replace

import pytest
from pair.arrivals import Step
from pair.figures import Change, Request, changes, of_all, of_steps

from proxy.lab.loadreport import Sample

BEGAN_S = 100.0
STEPS = [Step(1.0, 10.0), Step(2.0, 10.0)]


def request(index: int, at_s: float, took_s: float, *, backend: str = "baseline", error: str | None = None) -> Request:
    sent_s = BEGAN_S + at_s
    sample = Sample(
        sent_at_s=sent_s,
        ended_at_s=sent_s + took_s,
        first_at_s=sent_s,
        last_at_s=sent_s + took_s,
        completion_tokens=None if error else 100,
        backend=backend,
        error=error,
    )
    return Request(index, int(at_s // 10), at_s, 0.0, BEGAN_S, sample)


def test_a_request_counts_where_it_came_and_its_tokens_where_they_were_made() -> None:
    found = of_steps([request(0, 5.0, 10.0), request(1, 12.0, 4.0)], STEPS)

    assert [each.requests for each in found] == [1, 1]
    assert [each.e2e_s.mean for each in found if each.e2e_s] == [10.0, 4.0]
    assert [each.tok_s for each in found] == [pytest.approx(5.0), pytest.approx(15.0)]
    assert [each.in_flight for each in found] == [pytest.approx(0.5), pytest.approx(0.9)]


def test_all_arrivals_are_measured_until_the_last_answer() -> None:
    found = of_all([request(0, 5.0, 10.0), request(1, 19.0, 11.0)], STEPS)

    assert found.tok_s == pytest.approx(200 / 30)


def test_failed_requests_are_counted_by_name_and_are_in_no_latency() -> None:
    found = of_all([request(0, 1.0, 2.0), request(1, 2.0, 60.0, error="unfinished")], STEPS)

    assert (found.requests, found.whole, found.errors) == (2, 1, {"unfinished": 1})
    assert found.e2e_s is not None
    assert found.e2e_s.p99 == pytest.approx(2.0)


def test_shares_and_changes_of_backend_are_in_the_order_sent() -> None:
    came = [
        request(2, 3.0, 1.0, backend="speculative"),
        request(0, 1.0, 9.0, backend="speculative"),
        request(1, 2.0, 1.0),
        request(3, 4.0, 1.0),
    ]
    found = of_all(came, STEPS)

    assert found.shares == {"baseline": 0.5, "speculative": 0.5}
    assert found.switches == 3


def test_what_is_cached_is_told_of_all_prompts_and_not_where_no_engine_tells_of_it() -> None:
    told, silent = request(0, 1.0, 1.0), request(1, 2.0, 1.0)
    told = replace(told, sample=replace(told.sample, prompt_tokens=100, cached_tokens=60))
    silent = replace(silent, sample=replace(silent.sample, prompt_tokens=100))

    assert of_all([told, silent], STEPS).cached_share == pytest.approx(0.3)
    assert of_all([silent], STEPS).cached_share is None


def test_changes_of_the_favoured_role_are_told_by_the_load_in_which_they_come() -> None:
    def event(at_s: float, kind: str, after: str, speculative: int, **more: float) -> dict[str, object]:
        numbers = {"after": after, "speculative_in_flight": speculative, "baseline_in_flight": 1, **more}
        return {"at_s": at_s, "kind": kind, "sentence": "", "numbers": numbers}

    newest_first = [
        event(1023.5, "regime", "speculative", 0, demand_tok_s=0.0),
        event(1014.0, "regime", "baseline", 28, demand_tok_s=3000.0),
        event(1005.0, "circuit", "open", 9),
    ]

    assert changes(newest_first, STEPS, 1000.0) == [
        Change(14.0, 1, 4.0, "baseline", 28, 1, 3000.0),
        Change(23.5, None, 3.5, "speculative", 0, 1, None),
    ]
