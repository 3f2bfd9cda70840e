"""The demand: what clients lately asked for, in tokens a second. What follows from it is in the policies."""

from math import exp

from proxy.model import NO_DEMAND, Demand, Regime, Traits

# Time constant of the smoothed demand. Simulated on shared GPUs, twice as long follows a rise so late that a backend
# which cannot carry it has filled up by then; it still holds some tens of requests at a few a second.
DEMAND_S = 15.0

# Time constant at which what happened is forgotten: the highest demand, and who would have served it all sooner. Load
# that rises again and again is remembered from one rise to the next. What a rush has added up may be far more than a
# calm pays back in that time; so a calm forgets it sooner, see `CALM_S` in consolidate.py.
PEAK_S = 1800.0

# Bytes of a request's body for a token of its context: English and code in JSON.
BYTES_PER_TOKEN = 4.0

# Demand below this share of what was just taken out of it is none. Lengths that are expected move by a twentieth with
# each answer, so that a few requests are taken out with a little more or less than they were put in with.
LEFT_OVER = 0.01

# A longer prompt is none that any of these engines takes: such a body is images, of which bytes tell nothing.
MAX_PROMPT_TOKENS = 131_072.0


def aged(regime: Regime, now_s: float) -> Demand:
    """The demand of `regime` as it has become by `now_s`."""
    demand, elapsed_s = regime.demand, now_s - regime.smoothed_at_s
    if elapsed_s <= 0.0 or not demand.tok_s:
        return demand
    left = exp(-elapsed_s / DEMAND_S)
    tok_s, context, answer, held, peak, prompt_tok_s, mean, lasted_s, spread, excess, looked_at_s, flown, *rest = demand
    tok_s, prompt_tok_s, flown = tok_s * left, prompt_tok_s * left, flown + regime.held * elapsed_s
    return Demand(
        tok_s, context, answer, held, peak, prompt_tok_s, mean, lasted_s, spread, excess, looked_at_s, flown, *rest
    )


def unread(traits: Traits, cached: int) -> float:
    """Tokens of a request's prompt that a backend must read which has cached so many of them."""
    return max(0.0, min(traits.prompt_bytes / BYTES_PER_TOKEN, MAX_PROMPT_TOKENS) - cached)


def withdrawn(
    demand: Demand,
    traits: Traits,
    tokens: float,
    cached: int,
    *,
    age_s: float,
    peak_tok_s: float,
    unseen_s: float = 0.0,
) -> Demand:
    """`demand` without what `arrived` put into it for a request so long ago, and without those of its sequences that
    were in flight since: nobody is to do that work.

    All of it is taken back at once, and next to nothing after a minute: who waits so long did want it, and was kept
    waiting. `peak_tok_s` is the highest of late as it was before; since then others may have raised it. The means have
    not aged for `unseen_s`.
    """
    age_s = max(0.0, age_s)
    left = exp(-age_s / DEMAND_S)
    less = traits.weight * tokens / DEMAND_S * left
    tok_s = demand.tok_s - less
    held, flown = _landed(demand, traits.weight * left, age_s, unseen_s)
    if tok_s <= LEFT_OVER * less:  # it was the only one, and what is left is what rounding made of it
        return NO_DEMAND._replace(
            held=held,
            peak_tok_s=_lowered(demand, peak_tok_s, less),
            spread=demand.spread,
            excess=demand.excess,
        )
    share, lasted_s = less / tok_s, demand.lasted_s
    context = max(0.0, demand.context_tokens + (demand.context_tokens - traits.prompt_bytes / BYTES_PER_TOKEN) * share)
    answer = max(0.0, demand.answer_tokens + (demand.answer_tokens - tokens) * share)
    prompt_tok_s = max(0.0, demand.prompt_tok_s - unread(traits, cached) / DEMAND_S * left)
    # A mean no longer than the demand's own is of the same time.
    part = less / demand.tok_s * demand.lasting_tok_s if lasted_s <= DEMAND_S else less * DEMAND_S / lasted_s
    return demand._replace(
        tok_s=tok_s,
        context_tokens=context,
        answer_tokens=answer,
        held=held,
        peak_tok_s=_lowered(demand, max(tok_s, peak_tok_s), less),
        prompt_tok_s=prompt_tok_s,
        lasting_tok_s=max(0.0, demand.lasting_tok_s - part),
        flown=flown,
    )


def _landed(demand: Demand, sequences: float, age_s: float, unseen_s: float) -> tuple[float, float]:
    """The mean in flight, and the sum since it was made, without so many that were there for `age_s`."""
    unseen_s = min(age_s, unseen_s)
    since_s = max(demand.lasted_s, DEMAND_S)
    held = demand.held - sequences * min(1.0, (age_s - unseen_s) / since_s)
    return max(0.0, held), max(0.0, demand.flown - sequences * unseen_s)


def _lowered(demand: Demand, peak_tok_s: float, less: float) -> float:
    """The highest demand of late without `less`, and no lower than it was before or is now, which is `peak_tok_s`."""
    return max(min(demand.peak_tok_s, peak_tok_s), demand.peak_tok_s - less)


def arrived(regime: Regime, traits: Traits, tokens: float, cached: int = 0) -> Regime:
    """`regime` with what a request asks for in its demand, and its context and answer in the means, by what each asks;
    each of its sequences is expected to generate `tokens`, and of its prompt so many are cached where it goes."""
    role, since_s, smoothed, smoothed_at_s, held, demand = regime
    before, context, answer, mean_held, peak, prompt_tok_s, mean, lasted_s, *rest = demand
    more = traits.weight * tokens / DEMAND_S
    if not more:
        return regime
    share = more / (before + more)
    told = traits.prompt_bytes / BYTES_PER_TOKEN
    context += (told - context) * share
    if told > cached:  # as `unread`, without a call
        prompt_tok_s += (min(told, MAX_PROMPT_TOKENS) - min(cached, MAX_PROMPT_TOKENS)) / DEMAND_S
    answer += (tokens - answer) * share
    if lasted_s:  # policy consolidate keeps a mean
        mean += more * DEMAND_S / max(lasted_s, DEMAND_S)
    asked = before + more
    demand = Demand(asked, context, answer, mean_held, peak, prompt_tok_s, mean, lasted_s, *rest)
    return Regime(role, since_s, smoothed, smoothed_at_s, held, demand)
