"""What is read at a scrape, not counted: the proxy's state at that moment, as gauges.

Who fills a Reading is in reading.py; what is counted as it happens is in counting.py.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from proxy import __version__
from proxy.metrics.tallies import Family
from proxy.model import ROLES, CircuitState, Role

ROLE = tuple(role.value for role in ROLES)
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
    silent: bool = False
    learned_ratio: float | None = None
    engine_change_age_s: float | None = None
    curves_outdated: bool | None = None


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
    learning_suspended: bool | None = None
    measured_gain: float | None = None
    learned_gain: float | None = None
    suspension_predicted_s: float | None = None
    suspension_seen_s: float | None = None
    suspension_answers: int | None = None


Samples = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A gauge that is read at a scrape. `read` gives a value for each label value (any one word where there is no
    label); None is not exported."""

    name: str
    text: str
    read: Callable[[Reading], Samples]
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def described(self) -> Family:
        """What it is."""
        return Family(f"crossover_{self.name}", "gauge", self.text, self.labels)

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
        "1 for the role that policy `threshold` or `consolidate` favours now; says nothing under other policies.",
        lambda now: [(role.value, role is now.regime) for role in ROLES],
        {"role": ROLE},
    ),
    Gauge(
        "threshold_sequences",
        "Thresholds in force. Policy `threshold` goes by both, `overflow` by `leave_at` alone, others by neither.",
        lambda now: [("enter_at", now.enter_at), ("leave_at", now.leave_at)],
        {"bound": ("enter_at", "leave_at")},
    ),
    _of_proxy(
        "regime_age_seconds",
        "Since the last change of regime; says nothing where that does.",
        lambda now: now.regime_age_s,
    ),
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
    _of_backends(
        "learned_ratio",
        "Seconds for a token at the present load, as learned, by those of `curves_file`: above 1 is slower than "
        "measured; absent where nothing is learned.",
        lambda each: each.learned_ratio,
    ),
    Gauge(
        "learning_suspended",
        "1 while routing goes by `curves_file` alone since learned speeds did harm; absent where nothing is learned.",
        lambda now: [("", now.learning_suspended)],
    ),
    Gauge(
        "speculation_gain_ratio",
        "Output tok/s of the speculative backend by those of the baseline with as many sequences, where it is highest: "
        "by `curves_file`, and as learned. Below 1 speculation pays at no load; absent where nothing is learned.",
        lambda now: [("curves_file", now.measured_gain), ("learned", now.learned_gain)],
        {"by": ("curves_file", "learned")},
    ),
    _of_backends(
        "engine_change_age_seconds",
        "Since another model, version or way of drafting was found there; absent before.",
        lambda each: each.engine_change_age_s,
    ),
    _of_backends(
        "curves_outdated",
        "1 while the engine's version is not the one that `curves_file` was measured with; absent where either is "
        "unknown.",
        lambda each: each.curves_outdated,
    ),
    Gauge(
        "learning_suspension_seconds",
        "Why learning was last suspended: seconds that were predicted, and seen, for a token or for all answers "
        "together, as the log line says; absent before.",
        lambda now: [("predicted", now.suspension_predicted_s), ("seen", now.suspension_seen_s)],
        {"of": ("predicted", "seen")},
    ),
    Gauge(
        "learning_suspension_answers",
        "Over how many answers that was; absent before.",
        lambda now: [("", now.suspension_answers)],
    ),
)


class Readings(Collector):
    """Turns a Reading into gauges at the moment of a scrape."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Nothing: there is nothing to read before the proxy is whole."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family for each gauge."""
        reading = self._read()
        for gauge in GAUGES:
            yield gauge.family(reading)
