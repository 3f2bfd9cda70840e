"""What live traffic has taught of the speeds, in one sentence. What is known of them is in routing/deviation.py."""

from collections.abc import Mapping
from math import ceil, log

from proxy.model import ROLES, Role

# Per cents are told in fives: finer would change from one look to the next.
_STEP = 5
# What is less of a step is rounding.
_HARDLY = 0.01


def learned(standings: Mapping[Role, tuple[float | None, float] | None], *, suspended: bool) -> str:
    """One sentence on both backends. A standing is seconds for a token by those measured (None: they agree), and the
    difference, in ln, up to which they agree; no standing: too little is known of that one."""
    if suspended:
        return "What was learned of the speeds did harm: the curves as measured hold for now."
    known = {role: standing for role in ROLES if (standing := standings.get(role)) is not None}
    if not known:
        return "Live traffic has shown too little yet to say whether the measured speeds still hold."
    differ = [f"{role} takes {_pace(ratio)}" for role, (ratio, _) in known.items() if ratio is not None]
    agree = {role: within for role, (ratio, within) in known.items() if ratio is None}
    told = []
    if differ:
        told.append(f"Learned from live traffic: {' and '.join(differ)} for a token than measured; routing goes by it")
    if agree:
        names = " and ".join(agree)
        who = "live traffic" if len(agree) == len(ROLES) else f"live traffic on {names}"
        within = max(1, ceil(100.0 * max(agree.values()) / _STEP - _HARDLY)) * _STEP
        told.append(f"{who} agrees with what was measured, within {within} %")
    told += [f"of {role} too little has been seen yet" for role in ROLES if role not in known]
    sentence = "; ".join(told)
    return f"{sentence[0].upper()}{sentence[1:]}."


def taught(
    standings: Mapping[Role, tuple[float | None, float] | None], ratios: Mapping[str, float], *, suspended: bool
) -> dict[str, object]:
    """The sentence on both backends, and a few words on each at its load of the moment, as the status tells them."""
    words = {role: beside(standings.get(Role(role)), ratio) for role, ratio in ratios.items()}
    return {"sentence": learned(standings, suspended=suspended), "beside": words}


def beside(standing: tuple[float | None, float] | None, ratio: float) -> str:
    """The time for a token at the load of the moment, `ratio` by the measured one, in a few words; `standing` is what
    is told of that backend at any load."""
    times = f"{ratio:.2f}x"
    if standing is None:
        return "not known yet"
    within = standing[0] is None and abs(log(ratio)) <= standing[1]
    if within:
        return "as measured" if times == "1.00x" else f"agrees with measured ({times} the time for a token)"
    return f"{times} the measured time for a token at this load"


def _pace(ratio: float) -> str:
    """The time for a token beside the measured one."""
    if ratio > 1.0:
        return f"{100.0 * (ratio - 1.0):.0f} % longer"
    return f"{100.0 * (1.0 - ratio):.0f} % less"
