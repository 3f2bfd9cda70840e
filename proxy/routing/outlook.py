"""What one sequence more costs all in the end, those still to come included: looked up by demand and number in flight.

Were requests to come at random and each backend to get a fixed share of them, the best share and the cost that follows
could be reckoned exactly. Sending each request where that cost is less is then better still than any fixed share. How
demand is known is in demand.py, what else a request costs in marginal.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, floor, log

from proxy.model import Demand
from proxy.routing.curves import LEAST, MOST
from proxy.routing.delays import MAX_LISTED, Delays
from proxy.routing.paces import mean_held

# The demand is taken for less than it seems: half of it costs hardly anything, a tenth too much can fill a backend past
# the point where its speed falls. Exact on every shipped curve; the smoothed demand itself is off by a tenth or so.
CAUTION = 0.85

# Demands, and prompts by answers, are told apart by a tenth. Finer steps gain nothing and make tables more often.
STEP = 0.1

# Numbers in flight that are reckoned with where less was measured; beyond, speed stays as it is there.
LEAST_REACH = 128

# No backend is reckoned with nearer to the most that it gives: what follows from there on is all queue.
MAX_LOADED = 0.98
# Less than such a share of both is not believed: somebody is there who asks, and no more may be known of him yet.
LEAST_LOADED = 0.05
# More than such a share of both is a burst, and ends: to reckon with it for ever spreads conversations unevenly, until
# one backend is full and they lose what is cached. It alters nothing up to eight tenths of what both can give.
MOST_LOADED = 0.7

# Shares that are tried, first of all that are possible and twice of those between the neighbours of the best.
_SHARES, _ROUNDS = 16, 3

# Where speed falls as more run, one more may be the one after which it never recovers: so long a time is for ever.
_TRAPPED_S = 1e30

# Tables kept: an hour of changing demand in some buckets of context, a few kilobytes each.
_MAX_KEPT = 256


@dataclass(frozen=True, slots=True)
class Outlook:
    """What one sequence more costs on one backend, seconds for each of its tokens, by how many are in flight before;
    `rise` is what each further one adds to the last of `steps`. The reading of its own prompt is not in it: each second
    of that costs `stops`, with so many in flight and one, and `stops_rise` more for each beyond the last."""

    steps: tuple[float, ...]
    rise: float
    stops: tuple[float, ...]
    stops_rise: float

    def added(self, n: int, weight: int) -> float:
        """What `weight` sequences more cost, beside n."""
        steps = self.steps
        if weight == 1 and n < len(steps):
            return steps[n]
        # A body may claim thousands of sequences, and is weighed at each look into the queue: those beyond the list are
        # summed up at once.
        listed = steps[n : n + weight]
        beyond, first = weight - len(listed), max(1, n - len(steps) + 1)
        return sum(listed) + beyond * (steps[-1] + self.rise * (first + (beyond - 1) / 2.0))

    def stopped(self, n: int) -> float:
        """What a second costs in which none of n sequences, of which there is one at least, gains a token."""
        last = len(self.stops) - 1
        return self.stops[n - 1] if n <= last else self.stops[last] + (n - 1 - last) * self.stops_rise


def outlook(first: Delays, second: Delays, demand: Demand) -> tuple[Outlook, Outlook]:
    """Of both backends, for a demand like `demand`, whose prompts are read in between."""
    tok_s = demand.tok_s
    if tok_s <= LEAST:
        return _made(first, second, None, 0)
    per_token = min(demand.prompt_tok_s / tok_s, MOST)
    return _made(first, second, floor(log(min(tok_s, MOST)) / STEP), round(log(1.0 + per_token) / STEP))


@lru_cache(maxsize=_MAX_KEPT)
def _made(first: Delays, second: Delays, level: int | None, prompt_level: int) -> tuple[Outlook, Outlook]:
    per_token = exp(prompt_level * STEP) - 1.0
    stalls = [0.0, 0.0]
    if first.prefill_tok_s is not None and second.prefill_tok_s is not None:
        stalls = [per_token / first.prefill_tok_s, per_token / second.prefill_tok_s]
    both = [_speeds(side, stall_s) for side, stall_s in zip((first, second), stalls, strict=True)]
    tok_s = 0.0 if level is None else exp((level + 0.5) * STEP) * CAUTION
    shares = divided(both[0], both[1], tok_s)
    made = [costs_of(*each) for each in zip(both, shares, stalls, strict=True)]
    return made[0], made[1]


def divided(first: Sequence[float], second: Sequence[float], tok_s: float) -> tuple[float, float]:
    """The two parts of a demand with which the fewest are in flight in the mean, where `first` and `second` are the
    speeds of 1, 2, ... sequences; of no more than both can carry."""
    bounds = (MAX_LOADED * first[-1], MAX_LOADED * second[-1])
    tok_s = min(max(tok_s, LEAST_LOADED * sum(bounds)), MOST_LOADED * sum(bounds))
    low, high = max(0.0, tok_s - bounds[1]), min(tok_s, bounds[0])
    best = low
    for _ in range(_ROUNDS):
        step = (high - low) / _SHARES
        tried = [low + place * step for place in range(_SHARES + 1)]
        best = min(tried, key=lambda part: mean_held(first, part) + mean_held(second, tok_s - part))
        low, high = max(low, best - step), min(high, best + step)
    return best, tok_s - best


def _speeds(side: Delays, stall_s: float) -> list[float]:
    """Output tok/s with 1, 2, ... in flight where for each token the prompts hold all up for `stall_s`."""
    reach = min(MAX_LISTED, max(LEAST_REACH, int(side.curve.points[-1].in_flight)))
    return [1.0 / (delay / (n * n) + stall_s) for n, delay in enumerate(side.listed[1 : reach + 1], 1)]


def costs_of(speeds: Sequence[float], tok_s: float, stall_s: float) -> Outlook:
    """The outlook of a backend with these speeds that gets so much of the demand.

    Let D(n) be what one more beside n costs and g the mean in flight: each state says demand D(n) = g - n +
    speed(n) D(n - 1). That is solved upwards from none in flight to the likeliest state and downwards from the many,
    where speed is constant and D a straight line; the other way round an error would grow. A second in which none gains
    a token loses speed(n) tokens, each of them worth D(n - 1)."""
    held, reach = mean_held(speeds, tok_s), len(speeds)
    rise = 1.0 / (speeds[-1] - tok_s)
    costs = [0.0] * reach
    cost = rise * (reach - 1) + (speeds[-1] * rise - held) * rise
    likeliest = _likeliest(speeds, tok_s)
    costs[-1] = cost
    for n in range(reach - 1, likeliest, -1):
        costs[n - 1] = cost = min((n - held + tok_s * cost) / speeds[n - 1], _TRAPPED_S)
    cost = 0.0
    for n in range(likeliest):
        costs[n] = cost = min((held - n + (speeds[n - 1] * cost if n else 0.0)) / tok_s, _TRAPPED_S)
    stops = tuple(speed * each for speed, each in zip(speeds, costs, strict=True))
    steps = tuple(each - stall_s * stop for each, stop in zip(costs, stops, strict=True))
    return Outlook(steps, rise - stall_s * speeds[-1] * rise, stops, speeds[-1] * rise)


def _likeliest(speeds: Sequence[float], tok_s: float) -> int:
    """The number in flight with the greatest chance."""
    if tok_s <= LEAST:  # speeds are no less than that
        return 0
    best, at, chance = 0.0, 0, 0.0
    for n, speed in enumerate(speeds, 1):
        chance += log(tok_s / speed)
        if chance > best:
            best, at = chance, n
    return at
