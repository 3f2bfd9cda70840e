"""Facts to Prometheus: the one place that knows metric names, labels and buckets.

Label values come from closed sets of our own (role, reason, outcome, code) and from the operator's list of clients,
never from a request. Gauges are read when
somebody scrapes; counters and histograms are fed once a request, never once a chunk.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.errors import CrossoverError
from proxy.model import (
    ROLES,
    Change,
    ChangeKind,
    CircuitState,
    CloseReason,
    Decision,
    Outcome,
    Reason,
    RequestFacts,
    Role,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Latency buckets in seconds. First tokens take from tens of milliseconds to minutes of prefill; tokens from one
# millisecond; whole answers up to ten minutes; the proxy's own part is tens of microseconds.
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 25, 60, 120, 240)
TPOT_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1)
DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 600)
QUEUE_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OVERHEAD_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)
# Label values of our own making: no role yet, no status sent, a code that is on no list (so that none can be added).
NO_ROLE = "none"
OTHER = "other"
ROLE = tuple(role.value for role in ROLES)
SOME_ROLE = (*ROLE, NO_ROLE)
SOME_CLIENT = (NO_ROLE, OTHER)  # and the names of the keys file
STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", NO_ROLE)
TOKEN_KINDS = ("prompt", "completion", "cached")
CLIENT_REQUESTS = (
    "Requests for an engine that have ended, by the client's name in the keys file (`listen.api_keys_file`); `none` "
    "where no key is asked for."
)
# The failure of a request whose engine reported an error inside its stream.
ERROR_EVENT = "error_event"
CIRCUIT_NUMBERS = {CircuitState.CLOSED: 0, CircuitState.HALF_OPEN: 1, CircuitState.OPEN: 2}


@dataclass(frozen=True, slots=True)
class BackendReading:
    """One backend as a scrape sees it. Counts are sequences, ages seconds; None is not exported."""

    role: Role
    in_flight: int
    lingering: int
    requests: int
    oldest_s: float
    max_in_flight: int | None
    up: bool | None
    eligible: bool
    draining: bool
    circuit: CircuitState
    circuit_age_s: float | None
    engine_running: int | None
    engine_waiting: int | None
    engine_age_s: float | None
    drift: int | None
    accept_length: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything that is read, not counted, at a scrape."""

    backends: tuple[BackendReading, ...]
    regime: Role
    regime_age_s: float
    smoothed: float
    enter_at: int
    leave_at: int
    waiting: int
    connections: int
    held_body_bytes: int
    ready: bool
    reload_failed: bool


@dataclass(frozen=True, slots=True)
class Family:
    """What one metric family is: its whole name, its Prometheus type, what it means, and what each label may say."""

    name: str
    kind: str
    text: str
    labels: dict[str, tuple[str, ...]]


class Metrics:
    """The metric families of one proxy, with a registry of its own."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        self.codes = frozenset(codes())
        self.families: list[Family] = []
        self._names: set[str] = set()  # of clients
        counter, histogram = self._counter, self._histogram
        self._requests = counter(
            "requests",
            "Requests for an engine that have ended; role is `none` for those that never got a place.",
            role=SOME_ROLE,
            outcome=tuple(Outcome),
            status_class=STATUS_CLASSES,
        )
        self._clients = counter("client_requests", CLIENT_REQUESTS, client=SOME_CLIENT, outcome=tuple(Outcome))
        self._decisions = counter(
            "decisions", "Routing decisions; a request that fails over has two.", role=ROLE, reason=tuple(Reason)
        )
        self._attempts = counter("attempts", "Requests sent to a backend, replays and failovers included.", role=ROLE)
        self._retries = counter("retries", "Attempts beyond a request's first, by where they went.", role=ROLE)
        self._failures = counter(
            "failures",
            "Requests for an engine that failed, by the code of the error that ended them.",
            role=SOME_ROLE,
            code=(*sorted(self.codes), OTHER),
        )
        self._refusals = counter(
            "refusals", "Requests answered by the proxy at its door.", code=(*sorted(self.codes), OTHER)
        )
        self._closed = counter(
            "connections_closed", "Connections that the proxy ended without an answer.", reason=tuple(CloseReason)
        )
        self._tokens = counter("tokens", "Tokens as the engines counted them.", role=SOME_ROLE, kind=TOKEN_KINDS)
        self._changes = counter(
            "changes", "Changes of regime, circuit, health, pin and drain.", kind=tuple(ChangeKind), role=SOME_ROLE
        )
        self._reloads = counter("config_reloads", "Configuration reloads.", result=("accepted", "rejected"))
        self._ttft = histogram(
            "ttft", "Streams: request head read to first content written.", TTFT_BUCKETS, role=SOME_ROLE
        )
        self._tpot = histogram(
            "tpot", "Streams: time per output token after the first content.", TPOT_BUCKETS, role=SOME_ROLE
        )
        self._duration = histogram(
            "request_duration", "Finished requests: head read to last byte written.", DURATION_BUCKETS, role=SOME_ROLE
        )
        self._queue = histogram("queue", "Waiting for room on a backend, also in vain.", QUEUE_BUCKETS)
        self._overhead = histogram("overhead", "The proxy's own time from admission to sending.", OVERHEAD_BUCKETS)
        self._export(read)

    def _export(self, read: Callable[[], Reading]) -> None:
        """Add what is read at a scrape."""
        self.families += [Family(f"crossover_{each.name}", "gauge", each.text, each.labels) for each in GAUGES]
        self.registry.register(_Readings(read))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def know_clients(self, names: Iterable[str]) -> None:
        """Take up names that requests may be counted under. Those already known stay: their requests may still run."""
        self._names.update(names)

    def request_ended(self, facts: RequestFacts) -> None:
        """Count one request that was decided on, or that never got a place."""
        decision = facts.decision
        role = decision.role.value if decision is not None and decision.role is not None else NO_ROLE
        self._requests.labels(role, facts.outcome.value, status_class(facts.status)).inc()
        self._clients.labels(self._client(facts.client_name), facts.outcome.value).inc()
        if decision is not None and decision.role is not None and facts.attempts:
            self._count_attempts(decision.role, facts.attempts, moved=decision.reason is Reason.FAILOVER)
        if facts.failure is not None:
            self._failures.labels(role, self._code(facts.failure)).inc()
        self._count_tokens(role, facts)
        self._time(role, facts)

    def decided(self, decision: Decision) -> None:
        """Count one decision; a request that fails over has two."""
        role = decision.role.value if decision.role is not None else NO_ROLE
        self._decisions.labels(role, decision.reason.value).inc()

    def refused(self, code: str) -> None:
        """Count one request that was answered by the proxy itself."""
        self._refusals.labels(self._code(code)).inc()

    def closed(self, reason: CloseReason) -> None:
        """Count one connection that was ended without an answer."""
        self._closed.labels(reason.value).inc()

    def changed(self, change: Change) -> None:
        """Count one change of the proxy's view of the world."""
        self._changes.labels(change.kind.value, change.role.value if change.role else NO_ROLE).inc()

    def reloaded(self, *, accepted: bool) -> None:
        """Count one reload of the configuration."""
        self._reloads.labels("accepted" if accepted else "rejected").inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus text format, CONTENT_TYPE."""
        return generate_latest(self.registry)

    def _count_attempts(self, role: Role, attempts: int, *, moved: bool) -> None:
        """A request that failed over was sent to the other backend first. (Should that have been replayed there too,
        the replay is counted on the second: the facts tell no more.)"""
        first = role.other if moved and attempts > 1 else role
        self._attempts.labels(first.value).inc()
        if attempts > 1:
            self._attempts.labels(role.value).inc(attempts - 1)
            self._retries.labels(role.value).inc(attempts - 1)

    def _code(self, code: str) -> str:
        return code if code in self.codes else OTHER

    def _client(self, name: str | None) -> str:
        return NO_ROLE if name is None else name if name in self._names else OTHER

    def _count_tokens(self, role: str, facts: RequestFacts) -> None:
        usage = facts.usage
        counts = (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
        for kind, count in zip(TOKEN_KINDS, counts, strict=True):
            if count:
                self._tokens.labels(role, kind).inc(count)

    def _time(self, role: str, facts: RequestFacts) -> None:
        self._queue.observe(facts.queue_s)
        if facts.outcome is Outcome.FINISHED:
            self._duration.labels(role).observe(facts.duration_s)
        if facts.attempts:
            self._overhead.observe(facts.overhead_s)
        if facts.ttft_s is not None:
            self._ttft.labels(role).observe(facts.ttft_s)
        if facts.tpot_s is not None:
            self._tpot.labels(role).observe(facts.tpot_s)

    def _counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        self.families.append(Family(f"crossover_{name}_total", "counter", text, labels))
        return _remembering(Counter(f"crossover_{name}", text, tuple(labels), registry=self.registry))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], **labels: tuple[str, ...]) -> Histogram:
        whole = f"crossover_{name}_seconds"
        self.families.append(Family(whole, "histogram", text, labels))
        return _remembering(Histogram(whole, text, tuple(labels), registry=self.registry, buckets=buckets))


Labelled = TypeVar("Labelled", Counter, Histogram)


def _remembering(family: Labelled) -> Labelled:
    """The same family, whose `labels` finds each child once: finding it anew takes longer than counting. What is
    remembered stays small, since all values of a label are a closed set."""
    family.labels = cache(family.labels)  # type: ignore[method-assign]
    return family


def codes(kind: type[CrossoverError] = CrossoverError) -> Iterator[str]:
    """Every code that a failure may have: those of the error tree below `kind`, and the engines' own complaint."""
    yield kind.code
    for each in kind.__subclasses__():
        yield from codes(each)
    if kind is CrossoverError:
        yield ERROR_EVENT


def status_class(status: int) -> str:
    """`2xx` and so on; `none` where no status was sent."""
    return f"{status // 100}xx" if 100 <= status < 600 else NO_ROLE


Samples = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge that is read at a scrape. `read` gives a value for each label value (any one word where there is no
    label); None is not exported."""

    name: str
    text: str
    read: Callable[[Reading], Samples]
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def family(self, reading: Reading) -> Metric:
        """The samples of one scrape."""
        family = GaugeMetricFamily(f"crossover_{self.name}", self.text, labels=tuple(self.labels))
        for word, value in self.read(reading):
            if value is not None:
                family.add_metric([word] if self.labels else [], value)
        return family


def _of_proxy(name: str, text: str, value: Callable[[Reading], float]) -> Gauge:
    return Gauge(name, text, lambda reading: [("", value(reading))])


def _of_backends(name: str, text: str, value: Callable[[BackendReading], float | None]) -> Gauge:
    return Gauge(
        name, text, lambda reading: [(each.role.value, value(each)) for each in reading.backends], {"role": ROLE}
    )


GAUGES = (
    Gauge("build_info", "The running version.", lambda _: [(__version__, 1)], {"version": (__version__,)}),
    Gauge(
        "regime",
        "1 for the role that policy `threshold` favours now.",
        lambda now: [(role.value, role is now.regime) for role in ROLES],
        {"role": ROLE},
    ),
    Gauge(
        "threshold_sequences",
        "Thresholds in force.",
        lambda now: [("enter_at", now.enter_at), ("leave_at", now.leave_at)],
        {"bound": ("enter_at", "leave_at")},
    ),
    _of_proxy("regime_age_seconds", "Since the last change of regime.", lambda now: now.regime_age_s),
    _of_proxy("smoothed_in_flight", "The smoothed total in flight, in sequences.", lambda now: now.smoothed),
    _of_proxy("waiting_requests", "Requests waiting for room.", lambda now: now.waiting),
    _of_proxy("client_connections", "Open client connections.", lambda now: now.connections),
    _of_proxy("held_body_bytes", "Request bodies held in memory, all together.", lambda now: now.held_body_bytes),
    _of_proxy("ready", "1 while the proxy takes requests and has an eligible backend.", lambda now: now.ready),
    _of_proxy("config_reload_failed", "1 when the last reload was rejected.", lambda now: now.reload_failed),
    _of_backends(
        "in_flight", "Sequences leased and not settled, lingering ones included.", lambda each: each.in_flight
    ),
    _of_backends(
        "in_flight_lingering", "Sequences that still count though their client has left.", lambda each: each.lingering
    ),
    _of_backends("in_flight_requests", "Requests leased and not settled.", lambda each: each.requests),
    _of_backends("in_flight_oldest_seconds", "Age of the oldest request in flight.", lambda each: each.oldest_s),
    _of_backends(
        "max_in_flight",
        "The limit in force, in sequences; absent where none is known.",
        lambda each: each.max_in_flight,
    ),
    _of_backends("backend_up", "1 up, 0 down; absent while unknown.", lambda each: each.up),
    _of_backends("backend_eligible", "1 while requests may be sent there.", lambda each: each.eligible),
    _of_backends("backend_draining", "1 while the operator keeps new requests away.", lambda each: each.draining),
    _of_backends("circuit_state", "0 closed, 1 half open, 2 open.", lambda each: CIRCUIT_NUMBERS[each.circuit]),
    _of_backends(
        "circuit_state_age_seconds", "Since the circuit last changed; absent before.", lambda each: each.circuit_age_s
    ),
    _of_backends("engine_running", "Sequences running as the engine counts.", lambda each: each.engine_running),
    _of_backends("engine_waiting", "Sequences waiting as the engine counts.", lambda each: each.engine_waiting),
    _of_backends("engine_poll_age_seconds", "Since the engine last told its load.", lambda each: each.engine_age_s),
    _of_backends(
        "drift_sequences",
        "The engine's own count less ours: above 0 is traffic that goes round the proxy.",
        lambda each: each.drift,
    ),
    _of_backends(
        "engine_accept_length", "Mean tokens a verify step, as the engine says.", lambda each: each.accept_length
    ),
)


class _Readings(Collector):
    """Turns a Reading into gauges at the moment of a scrape."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        reading = self._read()
        for gauge in GAUGES:
            yield gauge.family(reading)
