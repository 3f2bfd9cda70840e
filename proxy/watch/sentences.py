"""Sentences for people about what changed, with the numbers of that moment. Where requests go now is in telling/."""

from proxy.model import Change, ChangeKind, CircuitState, Policy, Regime, Role
from proxy.routing import consolidate
from proxy.routing.out import Out
from proxy.routing.rules import Rules
from proxy.telling import why_out
from proxy.watch.journal import Entry

# What the journal calls each change.
KINDS = {
    ChangeKind.REGIME: "regime",
    ChangeKind.CIRCUIT: "circuit",
    ChangeKind.HEALTH: "health",
    ChangeKind.PIN: "pin",
    ChangeKind.DRAIN: "drain",
    ChangeKind.LEARNING: "learning",
}


def of_change(
    change: Change,
    rules: Rules,
    regime: Regime,
    in_flight: tuple[int, int],
    at_s: float,
    *,
    trial: bool = False,
    beside: Out | None = None,
) -> Entry:
    """The entry of one change. `regime` is the one in force after it, `trial` whether its role has the favour to show
    how fast it is; `in_flight` speculative first. `beside` says why the other backend serves no better than one that
    goes out of service; None where it serves."""
    numbers: dict[str, str | float | None] = {
        "before": str(change.before),
        "after": str(change.after),
        "speculative_in_flight": in_flight[0],
        "baseline_in_flight": in_flight[1],
    }
    if change.kind is ChangeKind.REGIME:
        numbers |= {
            "smoothed": round(regime.smoothed, 2),
            "enter_at": rules.enter_at,
            "leave_at": rules.leave_at,
            "demand_tok_s": round(_lasting(regime), 1),
        }
        sentence = _tried(regime) if trial else _regime(rules, regime, in_flight)
    else:
        sentence = _TOLD[change.kind](change, beside)
    return Entry(at_s, KINDS[change.kind], change.role, sentence, numbers)


def _regime(rules: Rules, regime: Regime, in_flight: tuple[int, int]) -> str:
    role, total = regime.role, sum(in_flight)
    if rules.effective_policy is Policy.CONSOLIDATE:
        return f"{_name(role)} is favoured now: {_sooner(rules, regime, total)}."
    if role is Role.BASELINE:
        return (
            f"Requests now go to baseline: {total} in flight, smoothed {regime.smoothed:.1f}, "
            f"with leave_at {rules.leave_at}."
        )
    return (
        f"Requests now go to speculative: {total} in flight, smoothed {regime.smoothed:.1f}, "
        f"with enter_at {rules.enter_at}."
    )


def _tried(regime: Regime) -> str:
    return f"{_name(regime.role)} is favoured now for a while, to see how fast it is."


def _sooner(rules: Rules, regime: Regime, total: int) -> str:
    """What a role that consolidate favours from now on serves sooner: the demand that lasts, or, where that alone
    speaks against it, what is in flight beyond it."""
    demand = regime.demand
    mine, others = consolidate.expected(rules, demand, _lasting(regime))
    if regime.role is Role.BASELINE:
        mine, others = others, mine
    if mine < others:
        asked = f"the demand of the last minutes ({_lasting(regime):,.0f} output tok/s)"
        return f"by the measured speeds it serves {asked} sooner"
    return f"{total:,} are in flight, more than the demand of the last minutes explains, and it serves so many sooner"


def _lasting(regime: Regime) -> float:
    """The demand that the change was made by, output tok/s: the mean since it last changed by more than chance."""
    demand = regime.demand
    return demand.lasting_tok_s if demand.lasted_s else demand.tok_s


def _circuit(change: Change, beside: Out | None) -> str:
    name = _name(change.role)
    if change.after == CircuitState.OPEN:
        then = "so it gets none for a while" if beside is None else _nor(change, beside)
        return f"The circuit of {name.lower()} opened: its requests fail, {then}."
    if change.after == CircuitState.HALF_OPEN:
        return f"The circuit of {name.lower()} is half open: single requests test it."
    return f"The circuit of {name.lower()} closed: its requests succeed again."


def _health(change: Change, beside: Out | None) -> str:
    name = _name(change.role)
    if change.after == "up":
        return f"{name} answers" + (" again: it is up." if change.before == "down" else ": it is up.")
    if change.after == "down":
        then = f"so requests go to {_other(change)}" if beside is None else _nor(change, beside)
        return f"{name} is down: it does not answer, {then}."
    return f"The health of {name.lower()} is not known."


def _nor(change: Change, beside: Out) -> str:
    """What becomes of requests while a backend goes out of service beside one that serves as little."""
    if beside is Out.SILENT:
        return f"and {_other(change)} {why_out(beside)} either: requests are sent there all the same, and wait"
    return f"and {_other(change)} {why_out(beside)}: no backend serves, and requests are tried on both all the same"


def _pin(change: Change, _: Out | None) -> str:
    if change.role is None:
        return "An operator took the pin back: the policy decides again."
    return f"An operator pinned everything to {change.role}; the other is only its failover."


def _drain(change: Change, beside: Out | None) -> str:
    name = _name(change.role)
    if change.after == "true" and beside is not None:
        return f"An operator drains {name.lower()}: what runs there goes on, {_nor(change, beside)}."
    if change.after == "true":
        return f"An operator drains {name.lower()}: it gets nothing new, what runs there goes on."
    return f"An operator took {name.lower()} back into service."


def _learning(_: Change, beside: Out | None) -> str:
    return "What was learned of the speeds did harm and is put aside: routing goes by the curves as measured."


_TOLD = {
    ChangeKind.CIRCUIT: _circuit,
    ChangeKind.HEALTH: _health,
    ChangeKind.PIN: _pin,
    ChangeKind.DRAIN: _drain,
    ChangeKind.LEARNING: _learning,
}


def _other(change: Change) -> str:
    return "the other backend" if change.role is None else change.role.other.value


def _name(role: Role | None) -> str:
    return "The proxy" if role is None else role.value.capitalize()
