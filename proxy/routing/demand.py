"""The demand: what clients lately asked for, in tokens a second. What follows from it is in the policies."""

from math import exp

from proxy.model import Demand, Regime, Traits

# Time constant of the smoothed demand. Simulated on shared GPUs, twice as long follows a rise so late that a backend
# which cannot carry it has filled up by then; it still holds some tens of requests at a few a second.
DEMAND_S = 15.0

# Time constant at which what happened is forgotten: the highest demand, and who would have served it all sooner. Load
# that rises again and again is remembered from one rise to the next; after a day's end the night is served by who
# serves it sooner, within half an hour.
PEAK_S = 1800.0

# Bytes of a request's body for a token of its context: English and code in JSON.
BYTES_PER_TOKEN = 4.0

# A longer prompt is none that any of these engines takes: such a body is images, of which bytes tell nothing.
MAX_PROMPT_TOKENS = 131_072.0


def aged(regime: Regime, now_s: float) -> Demand:
    """The demand of `regime` as it has become by `now_s`."""
    demand, elapsed_s = regime.demand, now_s - regime.smoothed_at_s
    if elapsed_s <= 0.0 or not demand.tok_s:
        return demand
    left = exp(-elapsed_s / DEMAND_S)
    tok_s, context, answer, held, peak_tok_s, prompt_tok_s, lasting_tok_s, lasted_s, spread, excess = demand
    tok_s, prompt_tok_s = tok_s * left, prompt_tok_s * left
    return Demand(tok_s, context, answer, held, peak_tok_s, prompt_tok_s, lasting_tok_s, lasted_s, spread, excess)


def unread(traits: Traits, cached: int) -> float:
    """Tokens of a request's prompt that a backend must read which has cached so many of them."""
    return max(0.0, min(traits.prompt_bytes / BYTES_PER_TOKEN, MAX_PROMPT_TOKENS) - cached)


def arrived(regime: Regime, traits: Traits, tokens: float, cached: int = 0) -> Regime:
    """`regime` with what a request asks for in its demand, and its context and answer in the means, by what each asks;
    each of its sequences is expected to generate `tokens`, and of its prompt so many are cached where it goes."""
    role, since_s, smoothed, smoothed_at_s, held, demand = regime
    before, context, answer, mean_held, peak, prompt_tok_s, lasting_tok_s, lasted_s, spread, excess = demand
    more = traits.weight * tokens / DEMAND_S
    if not more:
        return regime
    share = more / (before + more)
    told = traits.prompt_bytes / BYTES_PER_TOKEN
    context += (told - context) * share
    if told > cached:  # as `unread`, without a call
        prompt_tok_s += (min(told, MAX_PROMPT_TOKENS) - min(cached, MAX_PROMPT_TOKENS)) / DEMAND_S
    answer += (tokens - answer) * share
    lasting_tok_s += more * DEMAND_S / max(lasted_s, DEMAND_S)
    demand = Demand(
        before + more, context, answer, mean_held, peak, prompt_tok_s, lasting_tok_s, lasted_s, spread, excess
    )
    return Regime(role, since_s, smoothed, smoothed_at_s, held, demand)
