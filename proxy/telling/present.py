"""Where new requests go now and why, in one sentence, for every policy and every state of the backends.

Why one request went where it went is in requests.py. Whoever fills a Present looks at the desk (reading.py).
"""

from dataclasses import dataclass

from proxy.model import ROLES, Costs, Policy, Role
from proxy.telling.figures import count, seconds, smooth

_STATES = {
    "draining": "is draining",
    "down": "does not answer its probes",
    "circuit open": "has its circuit open",
    "trial": "takes single trial requests after its failures",
    "full": "is full",
    "ramping": "has just come back and gets its share bit by bit",
}
# Why a backend takes nothing at all, or next to nothing; a full one, or one that ramps up, is not out for good.
_OUT = ("draining", "down", "circuit open", "trial")
# Shares between these are told as a split, others as one direction with exceptions not worth a word.
_SPLIT = (0.1, 0.9)
# Costs nearer than this differ by less than what is known of the speeds.
_ALIKE = 1.05
_STOPPING = {
    "starting": "The proxy is starting and takes no requests yet",
    "draining": "The proxy is stopping and takes no new requests",
    "stopped": "The proxy has stopped",
}


@dataclass(frozen=True, slots=True)
class Side:
    """One backend now. `in_flight` counts sequences, `max_in_flight` None is no known limit; `out` says why it takes
    nothing new (draining, down, circuit open), next to nothing (trial: single requests test it after failures), or not
    all it would be sent (full, ramping); None: it takes all."""

    role: Role
    in_flight: int = 0
    max_in_flight: int | None = None
    out: str | None = None


@dataclass(frozen=True, slots=True)
class Present:
    """What the sentence depends on.

    `policy` is the one in force, never auto; `pinned` the operator's pin, `pin` that of policy pinned; `regime` is
    favoured since `regime_age_s` seconds; `waiting` counts requests, of `max_waiting` that may; `next` is where a plain
    request would go now, at these `costs`, and `room` whether it would find a place; `lately` is the share of the
    latest decisions that went to speculative, None where there are too few.
    """

    policy: Policy
    speculative: Side
    baseline: Side
    phase: str = "serving"
    pinned: Role | None = None
    pin: Role = Role.BASELINE
    regime: Role = Role.SPECULATIVE
    regime_age_s: float = 0.0
    smoothed: float = 0.0
    enter_at: int = 0
    leave_at: int = 0
    waiting: int = 0
    max_waiting: int | None = None
    room: bool = True
    lately: float | None = None
    learning_suspended: bool = False
    next: Role | None = None
    costs: Costs | None = None

    def of(self, role: Role) -> Side:
        """One backend."""
        return self.speculative if role is Role.SPECULATIVE else self.baseline

    @property
    def refusing(self) -> bool:
        """Whether a plain request that came now would be refused."""
        return not self.room and self.max_waiting is not None and self.waiting >= self.max_waiting


def now(present: Present) -> str:
    """One sentence, its full stop included."""
    if present.phase in _STOPPING:
        return f"{_STOPPING[present.phase]}."
    out = [role for role in ROLES if present.of(role).out in _OUT]
    if not present.room:
        return f"{_no_room(present)}."
    if len(out) == len(ROLES):
        both = " and ".join(_state(present, role) for role in ROLES)
        told = f"No backend is eligible ({both}), so requests are tried on both"
    elif out and _wish(present) is None:
        told = f"{_all_but_trials(present, out[0])} go to {out[0].other}, since {_state(present, out[0])}"
    else:
        told = _wished(present, out) or _by_policy(present)
    more = [said for role in ROLES if role not in out and (said := _short(present, role))]
    if present.waiting:
        more.append(f"{count(present.waiting, 'request')} {_waits(present.waiting)} for room")
    if present.learning_suspended:
        more.append("what was learned did harm, so the speeds as measured hold for now")
    if present.phase == "settling":
        more.append("the proxy is about to stop")
    return "; ".join([told, *more]) + "."


def _no_room(present: Present) -> str:
    """New requests find no place: they wait, or not even that."""
    states = " and ".join(f"{role} {_short_state(present, role)}" for role in ROLES if present.of(role).out is not None)
    since = f", since {states}" if states else ", since no backend has room for them"
    waits = f"{count(present.waiting, 'request')} {_waits(present.waiting)}"
    most = "" if present.max_waiting is None else f" of at most {present.max_waiting:,}"
    if present.refusing:
        return f"New requests are refused{since}, and {waits} already{most} (queue.max_waiting)"
    return f"New requests wait for room{since}; {waits}{most}"


def _all_but_trials(present: Present, role: Role) -> str:
    return "All but trial requests" if present.of(role).out == "trial" else "All requests"


def _waits(waiting: int) -> str:
    return "waits" if waiting == 1 else "wait"


def _wish(present: Present) -> Role | None:
    """The role that everything is pinned to."""
    if present.pinned is not None:
        return present.pinned
    return present.pin if present.policy is Policy.PINNED else None


def _wished(present: Present, out: list[Role]) -> str | None:
    wish = _wish(present)
    if wish is None:
        return None
    source = "an operator pinned them there" if present.pinned is not None else "policy pinned sends them there"
    if wish not in out:
        return f"All requests go to {wish}: {source}"
    source = source.replace("there", f"to {wish}")
    return f"All requests go to {wish.other}: {source}, which {why_out(present.of(wish).out)}"


def _by_policy(present: Present) -> str:
    match present.policy:
        case Policy.MARGINAL:
            return _marginal(present)
        case Policy.CONSOLIDATE:
            return (
                f"New requests go to {present.regime}, favoured for {seconds(present.regime_age_s)} as the one that "
                f"serves the present demand sooner by the measured speeds, {_counts(present)}"
            )
        case Policy.THRESHOLD:
            return _threshold(present)
        case _:
            return _overflow(present)


def _marginal(present: Present) -> str:
    role, costs = present.next, present.costs
    if role is None or costs is None:
        return f"Each request goes where by the measured speeds it delays all requests least, {_counts(present)}"
    least = f"{_delays(role, costs)}, {_counts(present)}"
    if present.lately is not None and _SPLIT[0] < present.lately < _SPLIT[1]:
        split = f"New requests are split, lately {round(present.lately * 100)} % to speculative"
        rule = "each goes where by the measured speeds it delays all requests least"
        return f"{split}: {rule}, the next to {role} ({least})"
    return f"New requests go to {role}: by the measured speeds one more delays all requests least there ({least})"


def _delays(role: Role, costs: Costs) -> str:
    mine, others = costs.speculative_s, costs.baseline_s
    if role is Role.BASELINE:
        mine, others = others, mine
    if mine <= others <= mine * _ALIKE:
        return f"by {seconds(mine)}, hardly less than on {role.other}"
    return f"by {seconds(mine)}, on {role.other} by {seconds(others)}"


def _threshold(present: Present) -> str:
    role = present.regime
    if role is Role.SPECULATIVE:
        change = f"it is left at {present.leave_at:,} (leave_at)"
    else:
        change = f"speculative is entered again at {present.enter_at:,} (enter_at)"
    smoothed = f"with {smooth(present.smoothed)} sequences in flight (smoothed)"
    return f"New requests go to {role}, favoured for {seconds(present.regime_age_s)}, {smoothed}; {change}"


def _overflow(present: Present) -> str:
    held, most = present.speculative.in_flight, f"{present.leave_at:,} sequences (leave_at)"
    if held < present.leave_at:
        return f"New requests go to speculative, which has {held:,} of the {most} that it gets before baseline"
    return f"New requests go to baseline, since speculative has {held:,} of its {most}"


def _counts(present: Present) -> str:
    first, second = present.speculative.in_flight, present.baseline.in_flight
    return f"with {first:,} in flight on speculative and {second:,} on baseline"


def _short(present: Present, role: Role) -> str | None:
    """Why a backend that serves does not take all it would be sent."""
    return None if present.of(role).out is None else f"{role} {_short_state(present, role)}"


def _short_state(present: Present, role: Role) -> str:
    side = present.of(role)
    limit = "" if side.max_in_flight is None else f" ({side.in_flight:,} of {side.max_in_flight:,})"
    return f"{why_out(side.out)}{limit if side.out == 'full' else ''}"


def _state(present: Present, role: Role) -> str:
    return f"{role} {why_out(present.of(role).out)}"


def why_out(out: str | None) -> str:
    """Why a backend takes nothing new or not all, as the rest of a sentence about it."""
    return "takes nothing new" if out is None else _STATES.get(out, out)
