"""The circuit breaker of one backend, as a table: (state, event) -> what becomes of the circuit.

What counts as a failure is decided by the caller (dispatch.py), and whether a backend answers probes by health.py.

To change this file:
 1. Every pair of a state and an event has one row in TABLE; a new state or event comes with all its rows.
 2. A row names two steps: for an ordinary request, and for one that was leased as a probe. It names no condition.
 3. A step makes one circuit out of another. It never reads the event, and it alone may compare times and counts.
 4. Only `_open`, `_close` and `_half_open` change the state, and they alone set `since_s`.
 5. Whatever becomes of a probe, its place is free again after `open_s`: no row may hold a circuit shut for longer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from proxy.model import CircuitState


class Event(StrEnum):
    """What a circuit is told of a request: that it was sent, and later how it ended."""

    ADMITTED = "admitted"  # sent to the backend
    SUCCESS = "success"  # the backend served it
    FAILURE = "failure"  # the backend failed it
    NEUTRAL = "neutral"  # ended and says nothing of the backend: a client's error, busy (429, 503), the client left


_CLOSED, _OPENED, _HALF = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """`max_failures` in a row open the circuit for `open_s` seconds; then `max_probes` requests at once may try it.

    5 and 10 s: a backend that is gone costs five first attempts, and no outage that is over lasts much longer.
    """

    max_failures: int = 5
    open_s: float = 10.0
    max_probes: int = 1


@dataclass(frozen=True, slots=True)
class Circuit:
    """One circuit: its state since when, the failures in a row, and the instants at which leased probes expire.

    Instants are monotonic seconds. An expired lease counts as free, so a probe that hangs or is lost blocks nobody.
    """

    state: CircuitState = _CLOSED
    since_s: float = float("-inf")
    failures: int = 0
    probes: tuple[float, ...] = ()


def admits(rules: BreakerRules, circuit: Circuit, now_s: float) -> bool:
    """Whether the circuit lets a request through at `now_s`. Reading changes nothing: tell it ADMITTED when sent."""
    if circuit.state is _CLOSED:
        return True
    if circuit.state is _OPENED:
        return now_s - circuit.since_s >= rules.open_s
    return len(_live(circuit, now_s)) < rules.max_probes


def is_probe(rules: BreakerRules, circuit: Circuit, now_s: float) -> bool:
    """Whether a request sent at `now_s` gets a probe's lease: ask before telling ADMITTED, and keep the answer."""
    return circuit.state is not _CLOSED and admits(rules, circuit, now_s)


def advance(
    rules: BreakerRules,
    circuit: Circuit,
    event: Event,
    now_s: float,
    *,
    probe: bool = False,
    sent_at_s: float = float("inf"),
) -> Circuit:
    """The circuit after `event`; the same object when nothing changes.

    `probe` is what `is_probe` said when the request was sent, `sent_at_s` the `now_s` of its ADMITTED. A request sent
    before the circuit came into its present state says nothing about it and is ignored: late failures of an outage
    must not open a circuit that has healed since. Left out, the request counts as sent in the present state.
    """
    if sent_at_s < circuit.since_s:
        return circuit
    if probe and event is Event.NEUTRAL and sent_at_s + rules.open_s <= now_s:
        return circuit  # its place was free already, and those that are taken are others'
    row = TABLE[circuit.state, event]
    return (row.probe if probe else row.ordinary)(rules, circuit, now_s)


def is_calm(circuit: Circuit) -> bool:
    """Whether only a failure can move the circuit, as the rows of a closed one say: so it is for almost every request,
    and whoever asks this first is spared the table."""
    return circuit.state is _CLOSED and not circuit.failures


# ---------------------------------------------------------------- steps

Step = Callable[[BreakerRules, Circuit, float], Circuit]


def _keep(_rules: BreakerRules, circuit: Circuit, _now_s: float) -> Circuit:
    return circuit


def _reset(_rules: BreakerRules, circuit: Circuit, _now_s: float) -> Circuit:
    return replace(circuit, failures=0) if circuit.failures else circuit


def _count(rules: BreakerRules, circuit: Circuit, now_s: float) -> Circuit:
    counted = replace(circuit, failures=circuit.failures + 1)
    return _open(rules, counted, now_s) if counted.failures >= rules.max_failures else counted


def _open(_rules: BreakerRules, circuit: Circuit, now_s: float) -> Circuit:
    return Circuit(_OPENED, now_s, circuit.failures)


def _close(_rules: BreakerRules, _circuit: Circuit, now_s: float) -> Circuit:
    return Circuit(_CLOSED, now_s)


def _half_open(rules: BreakerRules, circuit: Circuit, now_s: float) -> Circuit:
    """Before the cool-down is over a request comes only when no backend is eligible; it is no probe."""
    if not admits(rules, circuit, now_s):
        return circuit
    return Circuit(_HALF, now_s, circuit.failures, (now_s + rules.open_s,))


def _lease(rules: BreakerRules, circuit: Circuit, now_s: float) -> Circuit:
    live = _live(circuit, now_s)
    if len(live) >= rules.max_probes:
        return circuit
    return replace(circuit, probes=(*live, now_s + rules.open_s))


def _free(_rules: BreakerRules, circuit: Circuit, now_s: float) -> Circuit:
    return replace(circuit, probes=_live(circuit, now_s)[1:])


def _live(circuit: Circuit, now_s: float) -> tuple[float, ...]:
    return tuple(expiry_s for expiry_s in circuit.probes if expiry_s > now_s)


# ---------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Row:
    """What an event does to a circuit: told of an ordinary request, and of one that was leased as a probe."""

    ordinary: Step
    probe: Step


TABLE: dict[tuple[CircuitState, Event], Row] = {
    (_CLOSED, Event.ADMITTED): Row(_keep, _keep),
    (_CLOSED, Event.SUCCESS): Row(_reset, _reset),
    (_CLOSED, Event.FAILURE): Row(_count, _count),
    (_CLOSED, Event.NEUTRAL): Row(_keep, _keep),
    (_OPENED, Event.ADMITTED): Row(_half_open, _half_open),
    (_OPENED, Event.SUCCESS): Row(_keep, _keep),
    (_OPENED, Event.FAILURE): Row(_keep, _keep),
    (_OPENED, Event.NEUTRAL): Row(_keep, _keep),
    (_HALF, Event.ADMITTED): Row(_lease, _lease),
    (_HALF, Event.SUCCESS): Row(_keep, _close),
    (_HALF, Event.FAILURE): Row(_keep, _open),
    (_HALF, Event.NEUTRAL): Row(_keep, _free),
}
