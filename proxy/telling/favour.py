"""Why policy consolidate favours a role: it serves the demand of late sooner, or why it is kept though it does not.

What the words of `Favour.why` mean is in routing/kept.py.
"""

from math import isfinite

from proxy.model import Costs, Decision, Role
from proxy.telling.figures import about, favoured, seconds
from proxy.telling.state import Favour, Present

# Nearer than this the two are told as alike: policy consolidate does not change for less than a fiftieth.
_HARDLY = 1.02
# What counts is the mean since it last changed by more than chance, over five minutes at most (routing/lasting.py).
_DEMAND = "the demand of the last minutes"


def kept(present: Present, who: str) -> str:
    """Where requests go under consolidate and why, as a sentence without its full stop."""
    role, why = present.regime, present.favour.why
    mine, others = _both(present.costs, role)
    begun = f"{who} go to {role}, {favoured(present.regime_age_s)}"
    if why == "trial":
        return f"{begun} for a while to see how fast it is"
    if why is None and not others < mine:
        told = f": {_paces(present, mine, others)}" if isfinite(mine) else ""
        return f"{begun} as the one that serves {_DEMAND} sooner by the measured speeds{told}"
    paces = f" ({_paces(present, mine, others)})" if present.costs is not None else ""
    if why == "past":
        return f"{begun}, since the demand of the last half hour was served sooner there; {_past(present, paces)}"
    hardly = why in (None, "little")
    sooner = f"by the measured speeds {role.other} would serve {_DEMAND} {'hardly ' if hardly else ''}sooner"
    return f"{begun}: {sooner}{paces}, {_until(present.favour)}"


def _past(present: Present, paces: str) -> str:
    """What a role is kept against, and for how long."""
    other, in_s = present.regime.other, present.favour.changes_in_s
    when = "once such demand outweighs that" if in_s is None else f"after some {seconds(in_s)} of such demand"
    sooner = f"that of the last minutes {other} would serve sooner by the measured speeds{paces}"
    return f"{sooner}, and takes over {when}"


def _until(favour: Favour) -> str:
    """What speaks against a change, and when it comes."""
    match favour.why:
        case "dwell":
            earliest = f"in {seconds(favour.changes_in_s or 0.0)} at the earliest"
            return f"and takes over {earliest}, since the last change is too young"
        case "due":
            return "and takes over once that has lasted for a moment"
        case "doubt":
            return "but the demand may yet turn out to be one for which it would not"
        case "cost":
            return "but a change would cost more than it saves"
        case _:
            return "too little for a change"


def _paces(present: Present, mine: float, others: float) -> str:
    """What an answer takes on both if each served all demand alone, the shorter time first."""
    both = [(mine, present.regime), (others, present.regime.other)]
    if others < mine:
        both.reverse()
    told = ", ".join(f"{seconds(each) if isfinite(each) else 'without end'} on {role}" for each, role in both)
    return f"an answer of the expected {about(present.tokens)} tokens takes {told}"


def favour_then(decision: Decision) -> str:
    """Why consolidate had its role when it decided on a request, by the numbers of that decision."""
    role = decision.because.regime or decision.role
    mine, others = _both(decision.because.costs, role)
    if role is None or not others < mine:
        return f"policy consolidate favoured it as the one that serves {_DEMAND} sooner"
    if mine < _HARDLY * others:
        return f"policy consolidate kept it in favour, since {role.other} would serve {_DEMAND} hardly sooner"
    kept_it = f"policy consolidate kept it in favour, though {role.other} would serve {_DEMAND} sooner"
    excess = decision.regime.demand.excess
    if (excess if role is Role.SPECULATIVE else -excess) < 0.0:
        return f"{kept_it}: the demand of the last half hour was served sooner there, and a calm must outweigh that"
    return f"{kept_it}: a change waits until that has lasted, and a minute after the one before"


def _both(costs: Costs | None, role: Role | None) -> tuple[float, float]:
    """Seconds for an answer on the favoured role and on the other one; nan where not known."""
    if costs is None:
        return float("nan"), float("nan")
    first, second = costs.speculative_s, costs.baseline_s
    return (first, second) if role is Role.SPECULATIVE else (second, first)
