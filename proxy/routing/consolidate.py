"""Policy `consolidate`: one favoured role at a time, the one that would serve all demand sooner by measured curves.

For backends on the same GPUs, where two busy ones slow each other down. Any number of crossings is followed, and where
speculation is never the faster one it is never favoured. Eligibility, room and wishes are not here (policy.py).
"""

from math import inf, sqrt

from proxy.model import BASELINE, SPECULATIVE, Costs, Demand, LoadSnapshot, Placement, Reason, Regime, Role
from proxy.routing.paces import OVERLOADED_S, Paces
from proxy.routing.rules import Rules

# The other role must serve sooner by a tenth: repeats of one measurement differ by 1 to 3 %, and acceptance drifts.
MIN_GAIN = 0.10

# A burst is more in flight than twice the spread of a Poisson count above what the demand explains, and the other role
# must then serve sooner by half: what one count tells is rough, and bursts that pass must change nothing.
BURST_SPREADS, BURST_GAIN = 2.0, 0.50

_REGIME, _OVERFLOW = Reason.REGIME, Reason.OVERFLOW


def first_role(rules: Rules) -> Role:
    """Who is favoured before any request has come: who serves a lone request sooner, in the shortest context."""
    if rules.paces is None:
        return SPECULATIVE
    speculative, baseline = rules.paces.at_context(0.0)
    return SPECULATIVE if speculative.at_demand(0.0) < baseline.at_demand(0.0) else BASELINE


def loaded(here: Paces, demand: Demand) -> float:
    """The tok/s that `demand` comes to on a backend that has served it.

    Prefill takes time too, which no curve of decoding knows, and answers may be longer than expected: where more are in
    flight than what was asked for explains, the demand is the one at which so many would be.
    """
    return max(demand.tok_s, here.demand_of(demand.held))


def remembered(rules: Rules, role: Role, demand: Demand) -> Demand:
    """`demand` with what it comes to on the favoured backend in its peak."""
    if rules.paces is None:
        return demand
    here, _ = _here_first(rules.paces.at_context(demand.context_tokens), role)
    asked = loaded(here, demand)
    return demand if asked <= demand.peak_tok_s else demand._replace(peak_tok_s=asked)


def settled(rules: Rules, left: Role, demand: Demand) -> Demand:
    """`demand` as it is to be seen after `left` has lost the favour: with as many in flight as the other one would
    hold. Those that still run out where they were would be taken for demand."""
    if rules.paces is None:
        return demand
    here, there = _here_first(rules.paces.at_context(demand.context_tokens), left)
    asked = loaded(here, demand)
    pace_s = there.at_demand(asked)
    return demand if pace_s >= OVERLOADED_S else demand._replace(held=asked * pace_s)


def turned(rules: Rules, regime: Regime, demand: Demand, smoothed: float, now_s: float) -> bool:
    """Whether the favoured role is to change now, with `smoothed` sequences in flight.

    The dwell must have passed, the other role serve sooner by MIN_GAIN, and no later were demand as high again as it
    was: to be caught by the next rise on who cannot carry it costs more than a calm saves. What the change saves over a
    dwell must be more than it costs: while those in flight run out, each of their tokens waits for a step of the other
    backend too. The number in flight of this moment counts as well, see `crowding`.
    """
    if rules.paces is None or now_s - regime.since_s < rules.dwell_s:
        return False
    here, there = _here_first(rules.paces.at_context(demand.context_tokens), regime.role)
    asked = loaded(here, demand)
    if _pays(rules, (here, there), demand, asked, smoothed, MIN_GAIN):
        return True
    burst = crowding(here, regime.held)
    return burst > asked > 0.0 and _pays(rules, (here, there), demand, burst, smoothed, BURST_GAIN)


def crowding(here: Paces, held: float) -> float:
    """The least demand, tok/s, at which so many in flight are no more than chance. It tells of a steep rise before the
    smoothed demand does, when those that came are already there."""
    return here.demand_of(held - BURST_SPREADS * sqrt(held))


def _pays(  # noqa: PLR0917 - all of them are what a change is weighed by
    rules: Rules, both: tuple[Paces, Paces], demand: Demand, asked: float, smoothed: float, gain: float
) -> bool:
    """Whether a change from the first to the second of `both` saves more than it costs while `asked` are asked for."""
    here, there = both
    here_s, there_s = here.at_demand(asked), there.at_demand(asked)
    peak_tok_s = max(asked, demand.peak_tok_s)
    if here_s < (1.0 + gain) * there_s or here.at_demand(peak_tok_s) < there.at_demand(peak_tok_s):
        return False
    return asked * (here_s - there_s) * rules.dwell_s > smoothed * demand.answer_tokens * there_s


def costs(rules: Rules, regime: Regime, tokens: float, baseline_failures: int) -> Costs | None:
    """How long an answer of so many tokens would take on each backend if it served all demand alone; infinite where
    demand is more than it was measured to give, which is also told as extrapolated. None without curves."""
    if rules.paces is None:
        return None
    speculative, baseline = rules.paces.at_context(regime.demand.context_tokens)
    tok_s = loaded(speculative if regime.role is SPECULATIVE else baseline, regime.demand)
    first_s, second_s = (tokens * _pace_s(speculative, tok_s), tokens * _pace_s(baseline, tok_s))
    return Costs(first_s, second_s, inf in (first_s, second_s), baseline_failures)


def prefer(rules: Rules, regime: Regime, snapshot: LoadSnapshot, weight: int) -> tuple[Role, Reason]:
    """The role that the regime favours (REGIME), or the other one (OVERFLOW) while recent failures, weighed as load,
    make the favoured one the slower; the regime stays."""
    role, load = regime.role, snapshot.of(regime.role)
    if load.recent_failures and rules.paces is not None:
        here, there = _here_first(rules.paces.at_context(regime.demand.context_tokens), role)
        other = snapshot.of(role.other)
        here_s = here.curve.seconds_per_token(load.in_flight + load.recent_failures + weight)
        if here_s > there.curve.seconds_per_token(other.in_flight + other.recent_failures + weight):
            return role.other, _OVERFLOW
    return role, _REGIME


def may_spill(rules: Rules, regime: Regime, snapshot: LoadSnapshot, weight: int) -> bool:
    """Whether a request that finds the favoured backend full goes to the other one instead of waiting.

    While both are busy their steps alternate, and together they give less than the faster of the two. So only where the
    other one would be that, or shares no GPU, or the favoured one is not eligible and so not what it waits for.
    """
    here, there = snapshot.of(regime.role), snapshot.of(regime.role.other)
    if rules.paces is None or rules.placement is Placement.SEPARATE or not here.eligible or not there.eligible:
        return True
    ours, theirs = _here_first(rules.paces.at_context(regime.demand.context_tokens), regime.role)
    return theirs.curve.tok_s(there.in_flight + weight) >= ours.curve.tok_s(max(1, here.in_flight))


def _here_first(both: tuple[Paces, Paces], role: Role) -> tuple[Paces, Paces]:
    return both if role is SPECULATIVE else (both[1], both[0])


def _pace_s(paces: Paces, demand_tok_s: float) -> float:
    pace_s = paces.at_demand(demand_tok_s)
    return inf if pace_s >= OVERLOADED_S else pace_s
