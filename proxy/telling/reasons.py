"""Why a request went where it went, for each reason: the rule that decided, and the numbers that counted for it.

What came of the request is not here (endings.py), nor where requests go at present (present.py).
"""

from collections.abc import Callable
from math import isfinite

from proxy.model import ROLES, Because, Decision, Policy, Reason, RequestFacts, Role
from proxy.telling.favour import favour_then
from proxy.telling.figures import count, seconds, smooth, title

# Reasons whose own sentence has the costs in it.
_TELL_COSTS = (Reason.CHEAPER, Reason.PROBE, Reason.AFFINITY)
# Reasons that say by themselves that the other backend was out, or take no notice of it.
_TELL_OUT = (
    Reason.ONLY_ELIGIBLE,
    Reason.OTHER_FULL,
    Reason.SILENT,
    Reason.RAMPING,
    Reason.FULL,
    Reason.ALL_DOWN,
)
_OUT_WORDS = {
    "draining": "an operator drains it",
    "down": "it does not answer its probes",
    "circuit open": "its circuit is open after too many failures",
    "silent": "its probe was unanswered, and nothing else had come from it since",
    "full": "it is at max_in_flight",
    "ramping": "it has just come back and gets its share bit by bit",
}


def why(decision: Decision, settled: RequestFacts | None) -> str:
    """The end of a sentence that says why, without its full stop; it begins with `no room` where there is no role.
    `settled` tells what kind of request it was."""
    return (_full if decision.role is None else _WHY[decision.reason])(decision, settled)


def beside(decision: Decision) -> list[str]:
    """What is to be known beside the reason: what either choice would have cost, and why a backend was out."""
    because, said = decision.because, []
    if decision.reason not in _TELL_COSTS and (told := costs(because)):
        said.append(f"{told[0].upper()}{told[1:]}.")
    if because.costs is not None and because.costs.extrapolated and _known(because):
        said.append("One of the two lies outside what was measured.")
    if decision.role is not None and _out(because, decision.role) == "silent":
        said.append(f"{title(decision.role)} was silent then: {_OUT_WORDS['silent']}.")
    if decision.reason not in _TELL_OUT:
        for role in ROLES:
            if role is not decision.role and (word := out(because, role)):
                said.append(f"{title(role)} took nothing new then: {word}.")
    return said


def out(because: Because, role: Role) -> str | None:
    """Why a backend took nothing new, in words; None where it did, or where that is not known."""
    word = _out(because, role)
    return None if word is None else _OUT_WORDS.get(word, str(word))


def _out(because: Because, role: Role) -> str | None:
    return because.speculative_out if role is Role.SPECULATIVE else because.baseline_out


def costs(because: Because) -> str | None:
    """What either choice was predicted to cost; None where no measured speeds tell it."""
    if because.costs is None or not _known(because):
        return None
    speeds = "by the measured speeds" + (", as live traffic has corrected them," if because.learned else "")
    first, second = because.costs.speculative_s, because.costs.baseline_s
    if because.policy is Policy.CONSOLIDATE:
        one, other = _if_alone(first), _if_alone(second)
        return (
            f"{speeds} an answer would take {one} on speculative and {other} on baseline if it served all demand alone"
        )
    return f"{speeds} it was to add a delay of {seconds(first)} on speculative and of {seconds(second)} on baseline"


def _known(because: Because) -> bool:
    """Whether there is a number to tell: infinite ones tell something under policy consolidate alone."""
    told = because.costs
    if told is None or told.speculative_s != told.speculative_s or told.baseline_s != told.baseline_s:
        return False
    return because.policy is Policy.CONSOLIDATE or (isfinite(told.speculative_s) and isfinite(told.baseline_s))


def _if_alone(cost_s: float) -> str:
    return seconds(cost_s) if isfinite(cost_s) else "without end (demand is above what it gives)"


def _in_flight(because: Because, role: Role) -> int:
    return because.speculative_in_flight if role is Role.SPECULATIVE else because.baseline_in_flight


def _loads(because: Because) -> str:
    first, second = because.speculative_in_flight, because.baseline_in_flight
    return f"beside {first:,} in flight on speculative and {second:,} on baseline"


def _busy(because: Because) -> str:
    """What speculative had, its recent failures counted in, as the policies do."""
    said = f"speculative had {count(because.speculative_in_flight, 'sequence')} in flight"
    if because.recent_failures:
        said += f" and {count(because.recent_failures, 'recent failure')}, which count as load"
    return said


def _pinned(decision: Decision, settled: RequestFacts | None) -> str:
    return "policy pinned sends every request there"


def _operator_pin(decision: Decision, settled: RequestFacts | None) -> str:
    return "an operator had pinned every request to it"


def _header(decision: Decision, settled: RequestFacts | None) -> str:
    return "the client asked for it by x-crossover-backend"


def _rule(decision: Decision, settled: RequestFacts | None) -> str:
    said = "a rule of routing.rules sends requests of this kind there"
    if settled is None:
        return said
    traits, kinds = settled.traits, []
    if traits.constrained:
        kinds.append("its output was constrained")
    if traits.session:
        kinds.append("it named a session")
    kinds.append(f"its body had {count(traits.prompt_bytes, 'byte')}")
    return f"{said} ({', '.join(kinds)})"


def _regime(decision: Decision, settled: RequestFacts | None) -> str:
    because = decision.because
    if because.policy is Policy.CONSOLIDATE:
        return favour_then(decision)
    said = f"policy {because.policy} favoured it"
    if because.smoothed is None or because.enter_at is None or because.leave_at is None:
        return said
    smoothed = f"{smooth(because.smoothed)} sequences in flight, smoothed"
    if decision.role is Role.SPECULATIVE:
        return f"{said}, with {smoothed}; it is left at {because.leave_at:,} (leave_at)"
    return f"{said}, with {smoothed}; speculative is entered again at {because.enter_at:,} (enter_at)"


def _state(decision: Decision, settled: RequestFacts | None) -> str:
    return "the request names a stored response or a session that only this engine has"


def _affinity(decision: Decision, settled: RequestFacts | None) -> str:
    because = decision.because
    here, there = because.speculative_cached, because.baseline_cached
    if decision.role is Role.BASELINE:
        here, there = there, here
    if here > there:
        said = f"it had {count(here, 'token')} of the prompt cached, the other one {count(there, 'token')}"
    else:
        said = "its conversation was there last"
    told = costs(because)
    return f"{said}; {told}" if told else said


def _cheaper(decision: Decision, settled: RequestFacts | None) -> str:
    told = costs(decision.because)
    if told is None:
        return f"it was predicted to add the smaller delay there, {_loads(decision.because)}"
    return f"{told}, {_loads(decision.because)}"


def _room(decision: Decision, settled: RequestFacts | None) -> str:
    because = decision.because
    limit = "" if because.leave_at is None else f", and gets up to {because.leave_at:,} (leave_at)"
    return f"{_busy(because)}{limit}"


def _overflow(decision: Decision, settled: RequestFacts | None) -> str:
    because = decision.because
    if because.policy is Policy.CONSOLIDATE:
        return "the backend that policy consolidate favoured had recent failures, which count as load"
    limit = "" if because.leave_at is None else f", and gets no more than {because.leave_at:,} (leave_at)"
    return f"{_busy(because)}{limit}"


def _only_eligible(decision: Decision, settled: RequestFacts | None) -> str:
    if decision.role is None:
        return "the other backend took nothing new"
    word = out(decision.because, decision.role.other)
    return f"{decision.role.other} took nothing new" + (f": {word}" if word else " (down, circuit open or draining)")


def _other_full(decision: Decision, settled: RequestFacts | None) -> str:
    if decision.role is None:
        return "the other backend had no room"
    other = decision.role.other
    held = count(_in_flight(decision.because, other), "sequence")
    return f"{other} was asked first and had no room beside its {held} in flight (max_in_flight)"


def _silent(decision: Decision, settled: RequestFacts | None) -> str:
    other = "the other backend" if decision.role is None else decision.role.other.value
    return f"{other} was asked first, and was silent: {_OUT_WORDS['silent']}"


def _ramping(decision: Decision, settled: RequestFacts | None) -> str:
    other = "the other backend" if decision.role is None else decision.role.other.value
    return f"{other} was asked first, and had just come back: it gets its share bit by bit"


def _failover(decision: Decision, settled: RequestFacts | None) -> str:
    return "the other backend had failed it before the answer began"


def _probe(decision: Decision, settled: RequestFacts | None) -> str:
    said = "a few requests go to the backend that is not chosen, to see how fast it is now"
    told = costs(decision.because)
    return f"{said}; {told}" if told else said


def _all_down(decision: Decision, settled: RequestFacts | None) -> str:
    because = decision.because
    if because.speculative_out == because.baseline_out == "draining":
        return "no backend took requests, since an operator drains both; then requests are routed as if both did"
    reasons = [f"{role}: {word}" for role in ROLES if (word := out(because, role))]
    told = f" ({'; '.join(reasons)})" if reasons else ""
    return f"no backend was eligible{told}, and then requests are routed as if both were"


def _full(decision: Decision, settled: RequestFacts | None) -> str:
    return f"no room on any backend that it may use, {_loads(decision.because)}"


_WHY: dict[Reason, Callable[[Decision, RequestFacts | None], str]] = {
    Reason.PINNED: _pinned,
    Reason.OPERATOR_PIN: _operator_pin,
    Reason.HEADER: _header,
    Reason.RULE: _rule,
    Reason.REGIME: _regime,
    Reason.STATE: _state,
    Reason.AFFINITY: _affinity,
    Reason.CHEAPER: _cheaper,
    Reason.ROOM: _room,
    Reason.OVERFLOW: _overflow,
    Reason.ONLY_ELIGIBLE: _only_eligible,
    Reason.OTHER_FULL: _other_full,
    Reason.SILENT: _silent,
    Reason.RAMPING: _ramping,
    Reason.FAILOVER: _failover,
    Reason.PROBE: _probe,
    Reason.ALL_DOWN: _all_down,
    Reason.FULL: _full,
}
