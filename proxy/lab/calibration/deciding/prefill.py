"""How fast an arm takes prompts in: which are asked, and what their first tokens say. Asking is the stand's.

The time to a first token is that of the prompt and something that no prompt changes: the way, a step. So prompts of two
lengths are asked by turns, one at a time, and the difference in time is divided by the difference in tokens.
"""

from collections.abc import Sequence
from math import isfinite

from proxy.lab.calibration.deciding.estimates import interval
from proxy.lab.calibration.values import Arm, FirstToken, Prefill

# A prompt of the bucket's own length, since long ones are taken in more slowly; but none so short that what it takes
# drowns in what a step scatters by.
LEAST_LONG_TOKENS = 2048

# The short one by the long one. Nearer to one another they would differ by less than noise, and of nearly none most is
# the chat's template.
SHORT_SHARE = 0.25

# Of what an engine takes at most: a prompt comes out some per cent longer than it was asked for.
MOST_SHARE = 0.9

# A prompt that takes this long stands out of what steps scatter by; engines on a processor take some seconds for it.
SLOW_S = 1.0

# Pairs of an arm and bucket: as many as narrow the interval to some per cent, but none is begun after this time.
MAX_PAIRS = 6
WITHIN_S = 12.0


def lengths(context_tokens: int, most: int | None = None) -> tuple[int, int]:
    """The tokens of a short and a long prompt for one bucket of context, on an engine that takes `most`."""
    long = max(LEAST_LONG_TOKENS, context_tokens)
    if most is not None:
        long = min(long, round(MOST_SHARE * most))
    return round(SHORT_SHARE * long), long


def affordable(context_tokens: int, short: int, long: int, short_took_s: float) -> tuple[int, int]:
    """The two lengths again, or shorter ones where the engine is so slow that a short prompt is long enough to tell."""
    if short_took_s < SLOW_S or context_tokens > short:
        return short, long
    return round(SHORT_SHARE * short), short


def prefill(arm: Arm, context_tokens: int, pairs: Sequence[tuple[FirstToken, FirstToken]]) -> Prefill | None:
    """What pairs of a short and a long prompt say; None where it is not certain that the longer ones took longer."""
    slopes = [_slope_s(short, long) for short, long in pairs if long.prompt_tokens > short.prompt_tokens]
    if not slopes:
        return None
    found = interval(slopes)
    if found.mean <= 0.0 or (isfinite(found.low) and found.low <= 0.0):
        return None
    low, high = (1.0 / found.high, 1.0 / found.low) if isfinite(found.low) else (None, None)
    return Prefill(arm, context_tokens, 1.0 / found.mean, low, high, len(slopes))


def _slope_s(short: FirstToken, long: FirstToken) -> float:
    return (long.ttft_s - short.ttft_s) / (long.prompt_tokens - short.prompt_tokens)
