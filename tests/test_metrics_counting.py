"""What Prometheus is told: right numbers, closed labels, every family documented."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.leaping import leaping
from fakes.proxy import running, settings
from fakes.raw import RawClient, chat, request
from fakes.until import until
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import NO_ROLE, OTHER, BackendReading, Metrics, Reading
from proxy.model import (
    Because,
    Change,
    ChangeKind,
    CircuitState,
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

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
BACKEND = BackendReading(
    role=Role.SPECULATIVE,
    in_flight=3,
    lingering=1,
    requests=2,
    oldest_s=4.5,
    max_in_flight=48,
    up=True,
    eligible=True,
    draining=False,
    circuit=CircuitState.HALF_OPEN,
    circuit_age_s=7.0,
    engine_running=2,
    engine_waiting=1,
    engine_age_s=0.5,
    drift=0,
    accept_length=2.5,
)
UNKNOWN = replace(
    BACKEND,
    role=Role.BASELINE,
    max_in_flight=None,
    up=None,
    circuit=CircuitState.CLOSED,
    circuit_age_s=None,
    engine_running=None,
    engine_waiting=None,
    engine_age_s=None,
    drift=None,
    accept_length=None,
)
READING = Reading(
    backends=(BACKEND, UNKNOWN),
    regime=Role.BASELINE,
    regime_age_s=12.0,
    smoothed=6.25,
    enter_at=5,
    leave_at=9,
    waiting=4,
    connections=11,
    held_body_bytes=4096,
    ready=True,
    reload_failed=False,
)
BECAUSE = Because(Policy.THRESHOLD, 1, 2, 3.0, 5, 9, Role.SPECULATIVE)
DECISION = Decision(Role.SPECULATIVE, Reason.REGIME, Regime(), BECAUSE)
FACTS = RequestFacts(
    request_id="id",
    route="/v1/chat/completions",
    method="POST",
    outcome=Outcome.FINISHED,
    status=200,
    decision=DECISION,
    traits=Traits(),
    duration_s=2.0,
    queue_s=0.2,
    overhead_s=0.0003,
    ttft_s=0.3,
    tpot_s=0.02,
    usage=Usage(100, 20, 40),
)
TIMED_FACTS = st.builds(
    FACTS._replace,
    outcome=st.sampled_from(Outcome),
    status=st.sampled_from([0, 200, 204, 404, 429, 502]),
    failure=st.none() | st.just("words"),
    decision=st.none() | st.builds(DECISION._replace, role=st.sampled_from([*Role, None])),
    attempts=st.integers(0, 3),
    client_name=st.none() | st.just("alpha"),
    queue_s=st.sampled_from([0.0, 0.001, 0.3, 90.0]),
    overhead_s=st.sampled_from([0.0, 0.00007, 3.0]),
    duration_s=st.sampled_from([0.0, 0.7, 900.0]),
    ttft_s=st.sampled_from([None, 0.0, 0.02, 999.0]),
    tpot_s=st.sampled_from([None, 0.001, 2.0]),
    usage=st.builds(Usage, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)),
)
CLIENTS = ("alpha", "beta", "gamma", OTHER, NO_ROLE)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: READING)


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(metrics: Metrics) -> Series:
    """Every sample of ours by its name and labels, the proxy's process apart."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    samples = [sample for family in families for sample in family.samples if sample.name.startswith("crossover_")]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "one series was exported twice"
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return series(metrics).get((f"crossover_{name}", frozenset(labels.items())))


# ---------------------------------------------------------------- counters


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("status", [0, 200, 429, 499, 502])
def test_each_request_counts_once_under_its_outcome_and_class(metrics: Metrics, outcome: Outcome, status: int) -> None:
    metrics.request_ended(FACTS._replace(outcome=outcome, status=status))
    counted = {key: count for key, count in series(metrics).items() if key[0] == "crossover_requests_total"}
    status_class = f"{status // 100}xx" if status else "none"
    labels = {("role", "speculative"), ("outcome", outcome.value), ("status_class", status_class)}
    assert counted == {("crossover_requests_total", frozenset(labels)): 1}


def test_a_request_that_got_no_place_has_no_role_and_no_attempt(metrics: Metrics) -> None:
    refused = FACTS._replace(
        decision=None, attempts=0, outcome=Outcome.FAILED_BEFORE_COMMIT, status=429, failure="queue_full"
    )
    metrics.request_ended(refused)
    labels = {"role": NO_ROLE, "outcome": "failed_before_commit", "status_class": "4xx"}
    assert value(metrics, "requests_total", **labels) == 1
    assert value(metrics, "refusals_total", code="queue_full") == 1
    assert not [name for name, _ in series(metrics) if name == "crossover_failures_total"]
    assert not [name for name, _ in series(metrics) if name == "crossover_attempts_total"]
    assert value(metrics, "overhead_seconds_count") == 0


def test_a_failover_counts_an_attempt_on_each_backend_and_a_retry_on_the_second(metrics: Metrics) -> None:
    moved = DECISION._replace(role=Role.BASELINE, reason=Reason.FAILOVER)
    metrics.request_ended(FACTS._replace(decision=moved, attempts=2))
    assert value(metrics, "attempts_total", role="speculative") == 1
    assert value(metrics, "attempts_total", role="baseline") == 1
    assert value(metrics, "retries_total", role="baseline") == 1
    assert value(metrics, "retries_total", role="speculative") is None


def test_an_attempt_that_failover_saved_counts_where_it_failed_with_what_the_engine_answered(metrics: Metrics) -> None:
    moved = DECISION._replace(role=Role.BASELINE, reason=Reason.FAILOVER)
    saved = FACTS._replace(decision=moved, attempts=2, first_failure="backend_broken", first_failure_status=500)
    metrics.request_ended(saved)
    at = {"role": "speculative", "code": "backend_broken", "status": "500"}
    assert value(metrics, "attempt_failures_total", **at) == 1
    assert not [name for name, _ in series(metrics) if name == "crossover_failures_total"]


def test_a_request_that_failed_on_both_counts_once_as_failure_and_an_attempt_on_each(metrics: Metrics) -> None:
    moved = DECISION._replace(role=Role.BASELINE, reason=Reason.FAILOVER)
    lost = FACTS._replace(decision=moved, attempts=2, outcome=Outcome.FAILED_BEFORE_COMMIT)
    metrics.request_ended(lost._replace(first_failure="connect_timeout", failure="backend_broken", failure_status=599))
    assert value(metrics, "failures_total", role="baseline", code="backend_broken") == 1
    found = {tuple(sorted(labels)) for name, labels in series(metrics) if name == "crossover_attempt_failures_total"}
    assert found == {
        (("code", "connect_timeout"), ("role", "speculative"), ("status", "none")),
        (("code", "backend_broken"), ("role", "baseline"), ("status", "other")),
    }


def test_a_request_that_found_no_room_elsewhere_failed_on_the_first_backend_alone(metrics: Metrics) -> None:
    metrics.request_ended(FACTS._replace(first_failure="connect_timeout", failure="queue_full"))
    found = [labels for name, labels in series(metrics) if name == "crossover_attempt_failures_total"]
    assert found == [frozenset({("code", "connect_timeout"), ("role", "speculative"), ("status", "none")})]


@pytest.mark.parametrize("code", ["internal_error", "backend_unreachable"])
def test_what_the_proxy_or_both_engines_failed_is_no_refusal(metrics: Metrics, code: str) -> None:
    metrics.refused(code)
    assert value(metrics, "failures_total", role=NO_ROLE, code=code) == 1
    assert (metrics.totals().failures, metrics.totals().refused) == (1, 0)


def test_a_replay_on_a_fresh_connection_is_a_retry_on_the_same_backend(metrics: Metrics) -> None:
    metrics.request_ended(FACTS._replace(attempts=2))
    assert value(metrics, "attempts_total", role="speculative") == 2
    assert value(metrics, "retries_total", role="speculative") == 1


def test_tokens_are_counted_by_kind_and_only_where_an_engine_said(metrics: Metrics) -> None:
    metrics.request_ended(FACTS)
    metrics.request_ended(FACTS._replace(usage=Usage()))
    counted = {kind: value(metrics, "tokens_total", role="speculative", kind=kind) for kind in ("prompt", "cached")}
    assert counted == {"prompt": 100, "cached": 40}
    assert value(metrics, "tokens_total", role="speculative", kind="completion") == 20


def test_decisions_refusals_changes_and_reloads_are_counted(metrics: Metrics) -> None:
    metrics.decided(DECISION)
    metrics.refused("unknown_route")
    metrics.changed(Change(ChangeKind.CIRCUIT, Role.BASELINE, "closed", "open"))
    metrics.changed(Change(ChangeKind.PIN, None, "none", "baseline"))
    metrics.reloaded(accepted=True)
    metrics.reloaded(accepted=False)
    assert value(metrics, "decisions_total", role="speculative", reason="regime") == 1
    assert value(metrics, "refusals_total", code="unknown_route") == 1
    assert value(metrics, "changes_total", kind="circuit_changed", role="baseline") == 1
    assert value(metrics, "changes_total", kind="pin_changed", role=NO_ROLE) == 1
    assert value(metrics, "config_reloads_total", result="accepted") == 1
    assert value(metrics, "config_reloads_total", result="rejected") == 1


def test_requests_are_counted_by_the_names_that_are_known_and_by_no_other(metrics: Metrics) -> None:
    metrics.know_clients(["alpha"])
    metrics.know_clients(["beta"])
    for name in ("alpha", "beta", "beta", "gamma", None):
        metrics.request_ended(FACTS._replace(client_name=name))
    counted = {name: value(metrics, "client_requests_total", client=name, outcome="finished") for name in CLIENTS}
    assert counted == {"alpha": 1, "beta": 2, "gamma": None, OTHER: 1, NO_ROLE: 1}


# ---------------------------------------------------------------- histograms


def test_each_histogram_takes_what_is_known_of_a_request(metrics: Metrics) -> None:
    metrics.request_ended(FACTS)
    sums = {
        "ttft": value(metrics, "ttft_seconds_sum", role="speculative"),
        "tpot": value(metrics, "tpot_seconds_sum", role="speculative"),
        "duration": value(metrics, "request_duration_seconds_sum", role="speculative"),
        "queue": value(metrics, "queue_seconds_sum"),
        "overhead": value(metrics, "overhead_seconds_sum"),
    }
    assert sums == {"ttft": 0.3, "tpot": 0.02, "duration": 2.0, "queue": 0.2, "overhead": 0.0003}


def test_what_is_not_known_is_not_observed(metrics: Metrics) -> None:
    metrics.request_ended(FACTS._replace(ttft_s=None, tpot_s=None, outcome=Outcome.FAILED_AFTER_COMMIT))
    names = {name for name, _ in series(metrics)}
    assert not names & {"crossover_ttft_seconds_count", "crossover_tpot_seconds_count"}
    assert "crossover_request_duration_seconds_count" not in names


@pytest.mark.parametrize(
    ("queue_s", "counts"),
    [(0.0, [1, 1, 1]), (0.001, [1, 1, 1]), (0.0011, [0, 1, 1]), (60.0, [0, 0, 1]), (61.0, [0, 0, 0])],
)
def test_a_value_counts_in_every_bucket_whose_bound_is_not_below_it(
    metrics: Metrics, queue_s: float, counts: list[int]
) -> None:
    metrics.request_ended(FACTS._replace(queue_s=queue_s))
    assert [value(metrics, "queue_seconds_bucket", le=bound) for bound in ("0.001", "0.01", "60.0")] == counts
    assert value(metrics, "queue_seconds_bucket", le="+Inf") == value(metrics, "queue_seconds_count") == 1


@given(facts=TIMED_FACTS)
def test_each_histogram_has_its_own_buckets(facts: RequestFacts) -> None:
    metrics = Metrics(lambda: READING)
    metrics.request_ended(facts)
    finished = facts.outcome is Outcome.FINISHED
    times = {"ttft": facts.ttft_s, "tpot": facts.tpot_s, "request_duration": facts.duration_s if finished else None}
    times |= {"queue": facts.queue_s, "overhead": facts.overhead_s if facts.attempts else None}
    for (name, labels), count in series(metrics).items():
        seconds = times.get(name.removeprefix("crossover_").removesuffix("_seconds_bucket"))
        if name.endswith("_bucket") and seconds is not None:
            assert count == (seconds <= float(dict(labels)["le"]))


@pytest.mark.parametrize("name", ["ttft", "tpot", "request_duration", "queue", "overhead"])
def test_buckets_rise_and_end_in_infinity(metrics: Metrics, name: str) -> None:
    metrics.request_ended(FACTS)
    bounds = [dict(labels)["le"] for key, labels in series(metrics) if key == f"crossover_{name}_seconds_bucket"]
    numbers = [float(bound) for bound in bounds]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == float("inf")


# ---------------------------------------------------------------- gauges


def test_gauges_are_read_at_each_scrape() -> None:
    waiting = iter((3, 8))
    metrics = Metrics(lambda: replace(READING, waiting=next(waiting)))
    assert value(metrics, "waiting_requests") == 3
    assert value(metrics, "waiting_requests") == 8


def test_gauges_say_what_the_reading_says(metrics: Metrics) -> None:
    role = {"role": "speculative"}
    assert value(metrics, "regime", role="speculative") == 0
    assert value(metrics, "regime", role="baseline") == 1
    assert value(metrics, "threshold_sequences", bound="enter_at") == 5
    assert value(metrics, "threshold_sequences", bound="leave_at") == 9
    assert value(metrics, "smoothed_in_flight") == 6.25
    assert value(metrics, "ready") == 1
    assert value(metrics, "in_flight", **role) == 3
    assert value(metrics, "circuit_state", **role) == 1
    assert value(metrics, "backend_up", **role) == 1
    assert value(metrics, "engine_accept_length", **role) == 2.5


def test_what_is_unknown_has_no_series(metrics: Metrics) -> None:
    known = {name for name, labels in series(metrics) if ("role", "baseline") in labels}
    unknown = {"max_in_flight", "backend_up", "circuit_state_age_seconds", "drift_sequences", "engine_accept_length"}
    unknown |= {"engine_running", "engine_waiting", "engine_poll_age_seconds"}
    assert not known & {f"crossover_{name}" for name in unknown}
    assert {"crossover_in_flight", "crossover_circuit_state"} <= known


def test_two_proxies_in_one_process_do_not_share_numbers(metrics: Metrics) -> None:
    metrics.refused("unknown_route")
    assert not [name for name, _ in series(Metrics(lambda: READING)) if name == "crossover_refusals_total"]


# ---------------------------------------------------------------- closed labels


def families(metrics: Metrics) -> dict[str, dict[str, tuple[str, ...]]]:
    return {family.name: family.labels for family in metrics.families}


def require_closed(metrics: Metrics) -> None:
    """Every label of every sample holds a value that its family's set has."""
    allowed = families(metrics)
    for name, labels in series(metrics):
        family = name if name in allowed else re.sub(r"_(bucket|sum|count)$", "", name)
        for label, word in labels:
            assert label == "le" or word in allowed[family][label], f"{name}: {label}={word}"


ODD_FACTS = st.builds(
    FACTS._replace,
    outcome=st.sampled_from(Outcome),
    status=st.integers(-5, 1000),
    failure=st.none() | st.text(),
    decision=st.builds(DECISION._replace, role=st.sampled_from([*Role, None]), reason=st.sampled_from(Reason)),
    attempts=st.integers(0, 4),
    route=st.text(),
    method=st.text(),
    client=st.text(),
    client_name=st.none() | st.text(),
    traits=st.builds(Traits, model=st.text()),
)


@given(facts=ODD_FACTS)
def test_no_fact_of_a_request_makes_a_label_value_of_its_own(facts: RequestFacts) -> None:
    metrics = Metrics(lambda: READING)
    metrics.request_ended(facts)
    metrics.refused(facts.failure or facts.route)
    require_closed(metrics)


@given(st.lists(TIMED_FACTS, max_size=8))
def test_many_requests_count_as_the_sum_of_each_alone(many: list[RequestFacts]) -> None:
    together = Metrics(lambda: READING)
    apart: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for facts in many:
        together.request_ended(facts)
        alone = Metrics(lambda: READING)
        alone.request_ended(facts)
        apart.update(counted(alone))
    assert counted(together) == pytest.approx({**counted(Metrics(lambda: READING)), **apart})


@given(facts=TIMED_FACTS)
def test_a_request_counts_what_it_says_and_nothing_else(facts: RequestFacts) -> None:
    metrics = Metrics(lambda: READING)
    metrics.request_ended(facts)
    told = {(name, *sorted(word for _, word in labels)): each for (name, labels), each in counted(metrics).items()}
    placed = facts.decision.role if facts.decision is not None else None
    role = placed or NO_ROLE
    expected = {
        ("requests_total", *sorted((role, facts.outcome, f"{facts.status // 100}xx" if facts.status else NO_ROLE))): 1,
        ("client_requests_total", *sorted((facts.outcome, OTHER if facts.client_name else NO_ROLE))): 1,
        ("failures_total", *sorted((role, OTHER))): facts.failure is not None and placed is not None,
        ("refusals_total", OTHER): facts.failure is not None and placed is None,
        ("queue_seconds_count",): 1,
        ("queue_seconds_sum",): facts.queue_s,
        ("overhead_seconds_count",): facts.attempts > 0,
        ("overhead_seconds_sum",): facts.overhead_s if facts.attempts else 0,
        ("request_duration_seconds_count", role): facts.outcome is Outcome.FINISHED,
        ("request_duration_seconds_sum", role): facts.duration_s if facts.outcome is Outcome.FINISHED else 0,
        ("ttft_seconds_count", role): facts.ttft_s is not None,
        ("ttft_seconds_sum", role): facts.ttft_s or 0,
        ("tpot_seconds_count", role): facts.tpot_s is not None,
        ("tpot_seconds_sum", role): facts.tpot_s or 0,
    }
    for kind, tokens in zip(("prompt", "completion", "cached"), facts.usage, strict=True):
        expected["tokens_total", *sorted((role, kind))] = tokens
    sent = {key: each for key, each in told.items() if key[0] in ("attempts_total", "retries_total")}
    assert {key: each for key, each in told.items() if key not in sent and each} == {
        key: each for key, each in expected.items() if each
    }
    assert sum(each for key, each in sent.items() if key[0] == "attempts_total") == (facts.attempts if placed else 0)


def counted(metrics: Metrics) -> Series:
    """What of the series was counted, without the buckets; names without their beginning."""
    gauges = {family.name for family in metrics.families if family.kind == "gauge"}
    return {
        (name.removeprefix("crossover_"), labels): each
        for (name, labels), each in series(metrics).items()
        if name not in gauges and not name.endswith("_bucket")
    }


def test_a_code_that_nobody_declared_counts_as_other(metrics: Metrics) -> None:
    metrics.refused("words of a client")
    assert value(metrics, "refusals_total", code=OTHER) == 1


# ---------------------------------------------------------------- documented


def documented() -> dict[str, str]:
    """Names in the table of docs/metrics.md, with their types."""
    return dict(re.findall(r"^\| `(crossover_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))


def exported(metrics: Metrics) -> dict[str, str]:
    """Names and types as a scrape tells them."""
    pairs = re.findall(r"^# TYPE (crossover_\w+) (\w+)$", metrics.exposition().decode(), re.MULTILINE)
    return dict(pairs)


def test_every_family_is_documented_and_every_documented_one_exists(metrics: Metrics) -> None:
    assert documented() == exported(metrics), "docs/metrics.md is stale; mend: .venv/bin/python scripts/docs.py"


def test_every_reason_of_a_decision_is_documented() -> None:
    (table,) = re.findall(r"^## Reasons of a decision\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [reason.value for reason in Reason]


def test_every_family_has_help_and_a_base_unit(metrics: Metrics) -> None:
    text = metrics.exposition().decode()
    for name in exported(metrics):
        assert re.search(rf"^# HELP {name} \S.*\.$", text, re.MULTILINE), f"{name} has no sentence of help"
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb)(_|$)", name)


# ---------------------------------------------------------------- through the whole proxy


@leaping
async def test_a_request_that_waited_in_vain_is_told_with_its_wait() -> None:
    async with (
        FakeEngine(max_running_requests=1, script=_silent) as a,
        FakeEngine(max_running_requests=1, script=_silent, role="baseline") as b,
        running(settings(a.url, b.url, queue={"max_wait_s": 0.05})) as app,
        RawClient(app.port) as first,
        RawClient(app.port) as second,
        RawClient(app.port) as third,
    ):
        await first.send(request(body=chat()))
        await second.send(request(body=chat()))
        await until(lambda: app.desk.snapshot().in_flight == 2)
        await third.send(request(body=chat()))
        assert (await third.answer()).status == 503
        await until(lambda: value(app.metrics, "queue_seconds_count") == 1)
        waited = value(app.metrics, "queue_seconds_sum")
    assert waited == pytest.approx(0.05, abs=0.01)


async def _silent(exchange: Exchange) -> None:
    await exchange.gone()
