"""Why policy consolidate keeps its role though the other one would serve the demand of late sooner, and for how long.

It tells people what consolidate.py has decided, by the same numbers; nothing is decided here.
"""

from enum import StrEnum
from math import inf, log
from typing import NamedTuple

from proxy.model import SPECULATIVE, Demand, Regime
from proxy.routing.consolidate import CALM_S, LASTS_S, MIN_GAIN, RESTLESS, held, is_firm, loaded
from proxy.routing.delays import MAX_LISTED
from proxy.routing.demand import PEAK_S
from proxy.routing.lasting import POISSON_SPREAD
from proxy.routing.rules import Rules


class Why(StrEnum):
    """What speaks against a change. A closed set."""

    TRIAL = "trial"  # the role is favoured for a while to see how fast it is
    LITTLE = "little"  # the other one would hold hardly fewer
    DOUBT = "doubt"  # the demand may still be one that is served sooner here
    DWELL = "dwell"  # the last change is too young
    DUE = "due"  # nothing, and it must be seen for a moment
    COST = "cost"  # it would cost more than it saves
    PAST = "past"  # the demand of the last half hour was served sooner here


class Kept(NamedTuple):
    """Why a role is kept; `changes_in_s` is in how many seconds it changes if the demand stays as it is, None where
    that is not known."""

    why: Why
    changes_in_s: float | None = None


def kept(rules: Rules, regime: Regime, now_s: float) -> Kept | None:
    """Why `regime`, as it is at `now_s`, keeps its role; None where that serves the demand that lasts
    sooner, where there was none yet, and without curves."""
    demand = regime.demand
    if rules.paces is None or not demand.tok_s:
        return None
    first, second = rules.paces.at_context(demand.context_tokens)
    both = (first, second) if regime.role is SPECULATIVE else (second, first)
    asked = loaded(both[0], demand)
    mine, others = held(both, demand, asked)
    if mine <= others:
        return None
    little = mine < (1.0 + MIN_GAIN) * others
    if little or not is_firm(both, demand, asked):
        return Kept(Why.LITTLE if little else Why.DOUBT)
    fewer, cost = mine - others, regime.smoothed * others * demand.answer_tokens / asked
    if fewer * LASTS_S <= cost:
        return Kept(Why.COST)
    excess = demand.excess if regime.role is SPECULATIVE else -demand.excess
    # After a burst the mean still falls, and what a change saves comes near to what it does at the latest demand.
    mine_now, others_now = held(both, demand, min(asked, demand.tok_s))
    nearer = max(fewer, mine_now - others_now)
    dwells_s, pays_in_s = rules.dwell_s - (now_s - regime.since_s), _pays_in_s(demand, asked, nearer, cost, excess)
    if pays_in_s > 0.0 and demand.due_at_s == inf and fewer < MAX_LISTED:
        return Kept(Why.PAST, max(pays_in_s, dwells_s) if pays_in_s < inf else None)
    return Kept(Why.DWELL, dwells_s) if dwells_s > 0.0 else Kept(Why.DUE)


def _pays_in_s(demand: Demand, asked: float, fewer: float, cost: float, excess: float) -> float:
    """In how many seconds of this demand the half hour before no longer speaks against a change: the other one would
    have saved the cost over it, or its highest demand has faded. 0 where it does not now."""
    faded_s, peak = inf, demand.peak_tok_s
    if demand.spread <= RESTLESS * POISSON_SPREAD:
        faded_s = PEAK_S * log(peak / asked) if peak > asked else 0.0
    if excess > cost:
        return 0.0
    # What speaks for this one is outweighed first, and then as much saved as a change costs. Both move towards what the
    # demand comes to in the time that is remembered.
    balanced_s = CALM_S * log(1.0 + max(0.0, -excess) / (CALM_S * fewer))
    saves, saved = PEAK_S * fewer, max(0.0, excess)
    saved_s = balanced_s + PEAK_S * log((saves - saved) / (saves - cost)) if saves > cost else inf
    return min(faded_s, saved_s)
