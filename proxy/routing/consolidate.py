"""Policy `consolidate`: one favoured role at a time, the one that would serve all demand sooner by measured curves.

For backends on the same GPUs, where two busy ones slow each other down. Any number of crossings is followed, and where
speculation is never the faster one it is never favoured. Eligibility, room and wishes are not here (policy.py).
"""

from math import exp, inf

from proxy.model import BASELINE, SPECULATIVE, Costs, Demand, LoadSnapshot, Reason, Regime, Role, Traits
from proxy.routing.marginal import BYTES_PER_TOKEN
from proxy.routing.paces import OVERLOADED_S, Paces
from proxy.routing.rules import Rules

# Time constant of the smoothed demand. Shorter than a minute, so that a rise is followed within a dwell; long enough to
# hold some tens of requests at a few a second, whose sizes vary.
DEMAND_S = 30.0

# The other role must serve sooner by a tenth: repeats of one measurement differ by 1 to 3 %, and acceptance drifts.
MIN_GAIN = 0.10

_REGIME, _OVERFLOW = Reason.REGIME, Reason.OVERFLOW


def first_role(rules: Rules) -> Role:
    """Who is favoured before any request has come: who serves a lone request sooner, in the shortest context."""
    if rules.paces is None:
        return SPECULATIVE
    speculative, baseline = rules.paces.at_context(0.0)
    return SPECULATIVE if speculative.at_demand(0.0) < baseline.at_demand(0.0) else BASELINE


def aged(regime: Regime, now_s: float) -> Demand:
    """The demand of `regime` as it has become by `now_s`."""
    demand, elapsed_s = regime.demand, now_s - regime.smoothed_at_s
    if elapsed_s <= 0.0 or not demand.tok_s:
        return demand
    return Demand(demand.tok_s * exp(-elapsed_s / DEMAND_S), demand.context_tokens, demand.answer_tokens)


def turned(rules: Rules, regime: Regime, demand: Demand, smoothed: float, now_s: float) -> bool:
    """Whether the favoured role is to change now, with `smoothed` sequences in flight.

    The dwell must have passed, the other role serve sooner by MIN_GAIN, and what that saves over a dwell be more than
    the change costs: while those in flight run out, each of their tokens waits for a step of the other backend too.
    """
    if rules.paces is None or now_s - regime.since_s < rules.dwell_s:
        return False
    speculative, baseline = rules.paces.at_context(demand.context_tokens)
    here, there = (speculative, baseline) if regime.role is SPECULATIVE else (baseline, speculative)
    here_s, there_s = here.at_demand(demand.tok_s), there.at_demand(demand.tok_s)
    if here_s < (1.0 + MIN_GAIN) * there_s:
        return False
    return demand.tok_s * (here_s - there_s) * rules.dwell_s > smoothed * demand.answer_tokens * there_s


def arrived(regime: Regime, traits: Traits, tokens: float) -> Regime:
    """`regime` with what a request asks for in its demand, and its context and answer in the means, by what each asks;
    each of its sequences is expected to generate `tokens`."""
    role, since_s, smoothed, smoothed_at_s, held, (before, context, answer) = regime
    more = traits.weight * tokens / DEMAND_S
    if not more:
        return regime
    share = more / (before + more)
    context += (traits.prompt_bytes / BYTES_PER_TOKEN - context) * share
    demand = Demand(before + more, context, answer + (tokens - answer) * share)
    return Regime(role, since_s, smoothed, smoothed_at_s, held, demand)


def costs(rules: Rules, regime: Regime, tokens: float, baseline_failures: int) -> Costs | None:
    """How long an answer of so many tokens would take on each backend if it served all demand alone; infinite where
    demand is more than it was measured to give, which is also told as extrapolated. None without curves."""
    if rules.paces is None:
        return None
    tok_s, context_tokens, _ = regime.demand
    speculative, baseline = rules.paces.at_context(context_tokens)
    first_s, second_s = (tokens * _pace_s(speculative, tok_s), tokens * _pace_s(baseline, tok_s))
    return Costs(first_s, second_s, inf in (first_s, second_s), baseline_failures)


def prefer(rules: Rules, regime: Regime, snapshot: LoadSnapshot, traits: Traits) -> tuple[Role, Reason]:
    """The role that the regime favours (REGIME), or the other one (OVERFLOW) while recent failures, weighed as load,
    make the favoured one the slower; the regime stays."""
    role, load = regime.role, snapshot.of(regime.role)
    if load.recent_failures and rules.paces is not None:
        speculative, baseline = rules.paces.at_context(regime.demand.context_tokens)
        here, there = (speculative, baseline) if role is SPECULATIVE else (baseline, speculative)
        other = snapshot.of(role.other)
        here_s = here.curve.seconds_per_token(load.in_flight + load.recent_failures + traits.weight)
        if here_s > there.curve.seconds_per_token(other.in_flight + other.recent_failures + traits.weight):
            return role.other, _OVERFLOW
    return role, _REGIME


def _pace_s(paces: Paces, demand_tok_s: float) -> float:
    pace_s = paces.at_demand(demand_tok_s)
    return inf if pace_s >= OVERLOADED_S else pace_s
