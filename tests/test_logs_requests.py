"""The line of a request is what structlog would have made of it, at a fraction of its cost."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from math import inf
from typing import Literal

import orjson
import pytest
from fakes.counted import calls_of
from fakes.proxy import settings
from hypothesis import given
from hypothesis import strategies as st

from proxy import logs
from proxy.app import App
from proxy.model import (
    Because,
    Costs,
    Decision,
    Outcome,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Usage,
)
from proxy.routing.out import Out

Style = Literal["json", "text"]
AT = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)
BECAUSE = Because(Policy.THRESHOLD, 1, 2, 3.14159, 5, 9, Role.SPECULATIVE, recent_failures=3)
FULL = RequestFacts(
    request_id="0123456789abcdef",
    route="/v1/chat/completions",
    method="POST",
    outcome=Outcome.FINISHED,
    status=200,
    decision=Decision(Role.BASELINE, Reason.FAILOVER, Regime(), BECAUSE),
    traits=Traits(weight=2, stream=True, model="secret", prompt_bytes=77),
    attempts=2,
    failure="backend_broken",
    first_failure="backend_broken",
    failure_status=503,
    first_failure_status=500,
    duration_s=1.23456789,
    queue_s=0.00001,
    overhead_s=0.0001234,
    ttft_s=0.1,
    tpot_s=0.02,
    usage=Usage(10, 20, 5),
    client="127.0.0.1",
    client_name="alpha",
    trace_id="0af7651916cd43dd8448eb211c80319c",
)
# Python's and C's functions that ending a request may call, at most: a quarter more than it does. It is done for every
# request, on the loop's thread; through structlog and prometheus_client it took two hundred.
MAX_CALLS = 80


@contextlib.contextmanager
def output() -> Iterator[Callable[[], bytes]]:
    """While it lasts, standard output is a pipe; gives what reads what was written."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with pytest.MonkeyPatch.context() as patch, os.fdopen(writing, "w") as stream:
        patch.setattr(sys, "stdout", stream)
        yield lambda: os.read(reading, 65536)
    os.close(reading)


OUT = BECAUSE._replace(speculative_out=Out.DOWN, baseline_out=Out.FULL)
WORDS = st.text() | st.sampled_from(["\ud800", "a\x7fb", "a\r\nb\x1b[31m", "\u2028", "caf\u00e9", '"\\', ""])
FACTS = st.builds(
    FULL._replace,
    request_id=WORDS,
    client=st.none() | WORDS,
    client_name=st.none() | WORDS,
    trace_id=st.none() | st.just(FULL.trace_id),
    method=WORDS,
    failure=st.none() | WORDS,
    first_failure=st.none() | WORDS,
    decision=st.sampled_from([None, FULL.decision, Decision(None, Reason.FULL, Regime(), OUT)]),
    outcome=st.sampled_from(Outcome),
    backend_out=st.sampled_from((None, Out.DOWN, Out.SILENT)),
    silent_s=st.none() | st.just(19.0),
    ttft_s=st.none() | st.just(0.25),
    tpot_s=st.none() | st.just(0.0),
    usage=st.builds(Usage, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
)


def untimed(line: bytes) -> bytes:
    """A line up to its timestamp, the last field."""
    said, mark, _ = line.rpartition(b',"timestamp":')
    assert mark
    return said


@given(facts=FACTS)
def test_a_line_is_letter_by_letter_what_every_other_line_would_be(facts: RequestFacts) -> None:
    with output() as written:
        logs.configure("json", "info").info("request_settled", **logs.request_fields(facts))
        usual = written()
    assert untimed(logs.request_line(facts, AT)) == untimed(usual)


def test_fields_stand_in_their_order() -> None:
    assert list(logs.request_fields(FULL)) == [
        *("request_id", "trace_id", "client", "client_name", "method", "route", "status", "outcome"),
        *("failure", "failure_status", "first_failure", "first_failure_status"),
        *("weight", "stream", "body_bytes", "attempts", "role", "reason", "policy", "regime"),
        *("speculative_in_flight", "baseline_in_flight", "smoothed", "enter_at", "leave_at", "recent_failures"),
        *("duration_s", "queue_s", "overhead_s", "ttft_s", "tpot_s"),
        *("prompt_tokens", "completion_tokens", "cached_tokens"),
    ]
    end = b'"event":"request_settled","level":"info","timestamp":"2026-11-30T12:00:00.000001Z"}\n'
    assert logs.request_line(FULL, AT).endswith(end)


def test_what_rules_and_costs_look_at_is_told_where_the_request_has_it() -> None:
    wishes = FULL.traits._replace(constrained=True, session=True, max_tokens=300)
    told = logs.request_fields(FULL._replace(traits=wishes))
    assert {name: told[name] for name in told.keys() - logs.request_fields(FULL).keys()} == {
        "constrained": True,
        "session": True,
        "max_tokens": 300,
    }


def logged_because(**fields: object) -> dict[str, object]:
    assert FULL.decision is not None
    because = FULL.decision.because._replace(**fields)
    return logs.request_fields(FULL._replace(decision=FULL.decision._replace(because=because)))


def test_why_a_backend_was_out_is_told_where_one_was() -> None:
    told = logged_because(speculative_out=Out.DRAINING, baseline_out=Out.RAMPING)
    assert (told["speculative_out"], told["baseline_out"]) == ("draining", "ramping")
    assert told.keys() - logs.request_fields(FULL).keys() == {"speculative_out", "baseline_out"}


def test_what_the_backend_was_is_told_of_one_that_did_not_end_well() -> None:
    left = FULL._replace(outcome=Outcome.CLIENT_GONE_WAITING, failure=None, first_failure=None)
    told = logs.request_fields(left._replace(backend_out=Out.DOWN, silent_s=19.1234567))
    assert (told["backend_out"], told["silent_s"]) == ("down", 19.123457)
    assert told.keys() - logs.request_fields(left).keys() == {"backend_out", "silent_s"}


def test_numbers_that_the_policy_does_not_look_at_are_not_told() -> None:
    numbers = {"smoothed", "enter_at", "leave_at", "regime"}
    told = logged_because(**dict.fromkeys(numbers))
    assert logs.request_fields(FULL).keys() - told.keys() == numbers


def test_the_costs_of_a_decision_are_told_where_they_are_known() -> None:
    decision = FULL.decision
    assert decision is not None
    for costs, told in (
        (Costs(2.6123456789, 0.5), {"speculative_cost_s": 2.612346, "baseline_cost_s": 0.5}),
        (
            Costs(1.0, 2.0, True, 3),
            {"speculative_cost_s": 1.0, "baseline_cost_s": 2.0, "extrapolated": True, "baseline_failures": 3},
        ),
        (Costs(inf, 0.5, True), {"baseline_cost_s": 0.5, "extrapolated": True}),
        (Costs(0.5, inf, True), {"speculative_cost_s": 0.5, "extrapolated": True}),
        (Costs(inf, inf, True), {"extrapolated": True}),
    ):
        weighed = decision._replace(because=decision.because._replace(costs=costs))
        fields = logs.request_fields(FULL._replace(decision=weighed))
        assert fields.items() >= told.items()
        assert fields.keys() - logs.request_fields(FULL).keys() == told.keys()


@given(st.floats(0, 1e6))
def test_a_duration_is_told_to_the_microsecond_and_no_finer(seconds: float) -> None:
    told = logs.request_fields(FULL._replace(duration_s=seconds))["duration_s"]
    assert told == round(told, 6)
    assert told == pytest.approx(seconds, abs=0.51e-6)


@given(st.datetimes(), st.sampled_from([0, 1, 120_000, 999_999]), WORDS)
def test_an_instant_is_told_as_datetime_tells_it(instant: datetime, microsecond: int, client: str) -> None:
    at = instant.replace(microsecond=microsecond, tzinfo=UTC)
    told = orjson.loads(logs.request_line(FULL._replace(client=client), at))["timestamp"]
    assert told == at.isoformat().replace("+00:00", "Z")


def test_logging_set_up_anew_changes_how_requests_are_told() -> None:
    ways: list[tuple[Style, str]] = [("json", "info"), ("text", "info"), ("text", "warning"), ("json", "error")]
    told = []
    with output() as written:
        log = logs.configure("json", "info")
        for style, level in [*ways, ways[0]]:
            logs.configure(style, level)
            logs.request_settled(log, FULL)
            log.error("mark")
            lines = written().splitlines()
            told.append(("json" if lines[0].startswith(b"{") else "text", len(lines)))
    assert told == [("json", 2), ("text", 2), ("text", 1), ("json", 1), ("json", 2)]


async def test_ending_a_request_calls_few_functions() -> None:
    chosen = settings("http://127.0.0.1:1", "http://127.0.0.1:2")
    with logs.written_aside():
        app = App(chosen, logs.configure("json", "info"), lambda: chosen)
        ended, decision = app.relay.on_end, FULL.decision
        assert decision is not None
        app.desk.on_decision(decision)
        well = FULL._replace(failure=None, first_failure=None, failure_status=None, first_failure_status=None)
        ended(well)
        calls = calls_of(lambda: (app.desk.on_decision(decision), ended(well)), of_c=True)
    assert calls.total() <= MAX_CALLS, calls.most_common()
