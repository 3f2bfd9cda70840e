"""Policy `consolidate`: one favoured role at a time, the one that would serve all demand sooner by measured curves.

For backends on the same GPUs, where two busy ones slow each other down. Any number of crossings is followed, and where
speculation is never the faster one it is never favoured. Eligibility, room and wishes are not here (policy.py).
"""

from math import exp, inf, sqrt

from proxy.model import BASELINE, SPECULATIVE, Costs, Demand, LoadSnapshot, Placement, Reason, Regime, Role
from proxy.routing.delays import MAX_LISTED
from proxy.routing.demand import DEMAND_S, PEAK_S
from proxy.routing.lasting import POISSON_SPREAD, lasting
from proxy.routing.paces import OVERLOADED_S, Paces
from proxy.routing.rules import Rules

# Both are looked at so often at most. The dwell is a minute, and a look takes half as long as all else of a decision.
LOOK_S = 0.25

# A change is made when it has been due at every look for so long. A request is in the demand before its engine has
# taken it, and taken back when that calls it wrong, which engines do within some hundredths of a second: without, a
# burst of such requests would turn the role for a minute. Each quarter of a second lets a tenth more pile up in a rise.
STANDS_S = 0.75

# The other one must hold fewer by so much: less is within what a measurement is off, and a change is a risk.
MIN_GAIN = 0.02

# The demand is reckoned to last so long: what a change saves in this time must be more than it costs.
LASTS_S = 600.0

# The other one must be no worse for any demand that the mean may stand for: from so many standard deviations below it
# to so many above. Above is further, since a mean lags behind a rise. Where speeds cross twice, a rise that was on its
# way through a hump turned the role to one that was the slower where it ended.
BELOW, ABOVE = 1.0, 3.0

# Time constant at which what speaks against a change is forgotten while the other one is the better for the demand that
# lasts. A rush that nobody could carry adds up, within a minute, what a calm takes hours to pay back, and the next one
# as much again: that long they must not cost those who come in the calm. Forgotten so, twice as much holds off a change
# for three and a half minutes more. With half of this time rushes each half an hour were followed to and fro.
CALM_S = 300.0

# With more in flight than chance explains the other role must hold fewer by a tenth: what one count tells is rough, and
# bursts that pass must change nothing.
BURST_GAIN = 0.10

# A burst is reckoned to last two dwells. Under steady load, chance alone brings such counts within minutes, and a
# change for what they save in ten cost up to 14 % of a run.
BURST_LASTS_S = 120.0

# With so many times as many in flight as were measured, who fills up may be left for a straight line.
FURTHER = 2.0

# Demand comes and goes where the last seconds lie so many times as far from the mean as by chance (of the squares). Its
# mean is then one that is hardly ever asked for, and a new height of it tells nothing.
RESTLESS = 2.0

_REGIME, _OVERFLOW = Reason.REGIME, Reason.OVERFLOW


def first_role(rules: Rules) -> Role:
    """Who is favoured before any request has come: who serves a lone request sooner, in the shortest context."""
    if rules.paces is None:
        return SPECULATIVE
    speculative, baseline = rules.paces.at_context(0.0)
    return SPECULATIVE if speculative.at_demand(0.0) < baseline.at_demand(0.0) else BASELINE


def loaded(here: Paces, demand: Demand) -> float:
    """The tok/s that `demand` comes to on a backend that has served it.

    Answers may be longer than expected, and prompts slower to read: where more are in flight than what was asked for
    explains, the demand is the one at which so many would be.
    """
    asked = demand.lasting_tok_s if demand.lasted_s else demand.tok_s
    return max(asked, here.demand_of(demand.held) * here.decoding(demand.prompt_tok_s)) if asked else 0.0


def weighed(rules: Rules, regime: Regime, demand: Demand, smoothed: float, now_s: float) -> tuple[Demand, bool]:
    """`demand`, aged since `regime`, with its mean, its peak on the favoured backend, and what the two would have held
    of late; and whether the favoured role is to change now, with `smoothed` sequences in flight.

    Within LOOK_S of the last look nothing is made of it. The dwell must have passed, and the change have been due for
    STANDS_S, see `_due`.
    """
    elapsed_s = now_s - demand.looked_at_s
    if rules.paces is None or not demand.tok_s or elapsed_s < LOOK_S:
        return demand, False
    due_at_s, passed = demand.due_at_s, elapsed_s < inf
    if passed:
        demand = lasting(demand, elapsed_s)
    both = _here_first(rules.paces.at_context(demand.context_tokens), regime.role)
    asked = loaded(both[0], demand)
    peak, excess = demand.peak_tok_s, demand.excess
    if passed:
        here, there = held(both, demand, asked)
        sign = 1.0 if regime.role is SPECULATIVE else -1.0
        calm = sign * excess < 0.0 and here >= (1.0 + MIN_GAIN) * there
        peak *= exp(-elapsed_s / PEAK_S)
        excess = excess * exp(-elapsed_s / (CALM_S if calm else PEAK_S)) + sign * (here - there) * elapsed_s
    demand = demand._replace(peak_tok_s=max(asked, peak), excess=excess, looked_at_s=now_s, flown=0.0, due_at_s=inf)
    stands = due_at_s < inf
    if now_s - regime.since_s < rules.dwell_s or not _due(regime, demand, both, asked, smoothed, stands=stands):
        return demand, False
    due_at_s = min(due_at_s, now_s)
    return demand._replace(due_at_s=due_at_s), now_s - due_at_s >= STANDS_S


def _due(
    regime: Regime, demand: Demand, both: tuple[Paces, Paces], asked: float, smoothed: float, *, stands: bool
) -> bool:
    """Whether a change pays (see `_pays`) by the demand that lasts, which comes to `asked`, or by the number in flight
    of this moment (see `crowding`). One that `stands`, due at the last look, still is while the other one is better by
    as much: a new height of demand is one for a moment only, since the mean falls until the next comes.
    """
    if min(held(both, demand, asked)) >= MAX_LISTED and goes_further(both, regime.held):
        return True
    burst = crowding(both[0], regime.held, demand, asked)
    firm = is_firm(both, demand, asked)
    claims = [(asked, MIN_GAIN, LASTS_S)] if firm else []
    if burst > (asked if firm else reach(demand, asked)[1]):
        claims.append((burst, BURST_GAIN, BURST_LASTS_S))
    for tok_s, gain, lasts_s in claims:
        here, there = held(both, demand, tok_s)
        better = 0.0 < (1.0 + gain) * there <= here
        if better and (stands or _pays(regime.role, demand, tok_s, here - there, smoothed * there, lasts_s)):
            return True
    return False


def goes_further(both: tuple[Paces, Paces], in_flight: float) -> bool:
    """Whether with so many in flight, FURTHER times what was measured, the second one would give more by BURST_GAIN,
    where both were measured to give less than is asked for, and it more than the first. Straight lines beyond the
    last measurement are believed for nothing else; but here the measurements speak for neither, and whoever fills up
    would stay."""
    ours, theirs = both[0].curve, both[1].curve
    known = max(ours.points[-1].in_flight, theirs.points[-1].in_flight)
    if in_flight < FURTHER * known or theirs.tok_s(known) <= ours.tok_s(known):
        return False
    return theirs.tok_s(in_flight) >= (1.0 + BURST_GAIN) * ours.tok_s(in_flight)


def is_firm(both: tuple[Paces, Paces], demand: Demand, asked: float) -> bool:
    """Whether the second one is no worse at either end of what the demand may be."""
    (low, low_there), (high, high_there) = (held(both, demand, tok_s) for tok_s in reach(demand, asked))
    return low >= low_there and high >= high_there


def reach(demand: Demand, asked: float) -> tuple[float, float]:
    """Between what the demand may lie of which `asked` is the mean so far."""
    off = deviation(demand, asked)
    return max(0.0, asked - BELOW * off), asked + ABOVE * off


def deviation(demand: Demand, asked: float) -> float:
    """The standard deviation of the mean so far. It is known as well as a count of the requests that come in twice its
    time constant, less where they come in bursts."""
    bursts = max(1.0, demand.spread / POISSON_SPREAD)
    return sqrt(asked * max(demand.answer_tokens, 1.0) * bursts / (2.0 * max(demand.lasted_s, DEMAND_S)))


def held(both: tuple[Paces, Paces], demand: Demand, tok_s: float) -> tuple[float, float]:
    """How many would be in flight on each if it served `tok_s` alone, with prompts like those of `demand`."""
    prompts = demand.prompt_tok_s / demand.tok_s if demand.tok_s else 0.0
    return both[0].alone(tok_s, prompts), both[1].alone(tok_s, prompts)


def expected(rules: Rules, demand: Demand, asked: float) -> tuple[float, float]:
    """How many would be in flight in the mean if either backend served all of `asked` tok/s, speculative first."""
    assert rules.paces is not None
    return held(rules.paces.at_context(demand.context_tokens), demand, asked)


def settled(rules: Rules, left: Role, demand: Demand) -> Demand:
    """`demand` as it is to be seen after `left` has lost the favour: with as many in flight as the other one would
    hold. Those that still run out where they were would be taken for demand."""
    if rules.paces is None or not demand.tok_s:
        return demand
    both = _here_first(rules.paces.at_context(demand.context_tokens), left)
    return demand._replace(held=held(both, demand, loaded(both[0], demand))[1], due_at_s=inf)


def crowding(here: Paces, held: float, demand: Demand, asked: float) -> float:
    """The demand, tok/s, that so many in flight come to; 0 where chance alone can make as many of `asked`, as requests
    came so far. It tells of a steep rise before the mean does, when those that came are already there."""
    share = here.decoding(demand.prompt_tok_s)
    likely = (asked + deviation(demand, asked)) / share
    if held <= here.at_most(likely, sqrt(max(1.0, demand.spread / POISSON_SPREAD))):
        return 0.0
    return here.demand_of(held) * share


def _pays(  # noqa: PLR0917 - a look makes it
    role: Role, demand: Demand, asked: float, fewer: float, waits: float, lasts_s: float
) -> bool:
    """Whether a change from `role` to the other one pays which would hold so many fewer while `asked` are asked for,
    for `lasts_s`.

    What is saved must be more than the change costs: while those in flight run out, each of their tokens waits for a
    step of the other backend too (`waits`: their number times that of those in flight there). And unless the one in
    favour cannot give what is asked for, the other one would also have saved as much of late, or there was never as
    much demand and it does not come and go: to be caught by the next rise on who cannot carry it costs more than a calm
    saves.
    """
    cost = waits * demand.answer_tokens / asked
    if fewer * lasts_s <= cost:
        return False
    if fewer >= MAX_LISTED or (asked >= demand.peak_tok_s and demand.spread <= RESTLESS * POISSON_SPREAD):
        return True
    return (demand.excess if role is SPECULATIVE else -demand.excess) > cost


def costs(rules: Rules, regime: Regime, tokens: float, baseline_failures: int) -> Costs | None:
    """How long an answer of so many tokens would take on each backend if it served all demand alone; infinite where
    demand is more than it was measured to give, which is also told as extrapolated. None without curves."""
    if rules.paces is None:
        return None
    demand = regime.demand
    speculative, baseline = rules.paces.at_context(demand.context_tokens)
    asked = loaded(speculative if regime.role is SPECULATIVE else baseline, demand)
    first_s, second_s = (tokens * pace_s(each, demand, asked) for each in (speculative, baseline))
    return Costs(first_s, second_s, inf in (first_s, second_s), baseline_failures)


def pace_s(paces: Paces, demand: Demand, asked: float) -> float:
    """Seconds for a token, prompts like those of `demand` included, while `asked` tok/s are asked for; infinite where
    that is more than the backend was measured to give."""
    share = paces.decoding(asked * demand.prompt_tok_s / demand.tok_s) if demand.tok_s else 1.0
    found_s = paces.at_demand(asked / share)
    return inf if found_s >= OVERLOADED_S else found_s / share


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
