"""What a way of choosing costs, without seeds or noise: its table on the Markov chain that the exact optimum is of."""

from bisect import bisect_left as bisect
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy.lab import curves
from proxy.lab.simulation.arms import Bench, measured
from proxy.lab.simulation.arrivals import OUTPUT_TOKENS, Means
from proxy.lab.simulation.chain import Chain, Table, best, weigh
from proxy.lab.simulation.oracles import MAX_EDGE, chain_of, works
from proxy.lab.simulation.pace import capacity, paces
from proxy.model import Demand, Placement
from proxy.routing.delays import delays
from proxy.routing.outlook import outlook

MOST = 128
# States kept on each side, tried in turn: the fewest at which next to no time is spent where they end.
_SIZES, _UNSEEN = (33, 65, MOST + 1), 1e-8
# Above such a load so few were never enough.
_FITS = (0.3, 0.5)

Numbers = NDArray[np.float64]


class Case(NamedTuple):
    """A curve on GPUs of their own at a share of what both can take, and prompts of so many tokens."""

    curve: str
    load: float
    prompt: float


class Exact(NamedTuple):
    """The mean time of a request in the optimum, and by how much each way is above it, as a share. The time at a bound
    is `edge`; where that is more than MAX_EDGE the chain is no model any more."""

    optimum_s: float
    edge: float
    regret: dict[str, float]

    @property
    def counts(self) -> bool:
        """Whether the chain is a model of engines behind a queue here."""
        return self.edge <= MAX_EDGE


@cache
def bench_of(name: str, placement: Placement = Placement.SEPARATE) -> Bench:
    """A shipped curve's bench, as `crossover simulate` makes it."""
    curve = curves.find(name)
    return Bench(curve, placement, paces(curve, MOST, Means(400.0, OUTPUT_TOKENS, 400.0 + OUTPUT_TOKENS).context), MOST)


def judged(case: Case) -> Exact:
    """The optimum of a case and every way beside it."""
    bench = bench_of(case.curve)
    asked = works(bench, Means(case.prompt, OUTPUT_TOKENS, case.prompt + OUTPUT_TOKENS))
    rate_per_s = case.load * capacity(bench.paces, bench.placement, asked)
    whole = chain_of(bench, rate_per_s, asked)
    for size in _SIZES[bisect(_FITS, case.load) :]:
        chain = Chain(rate_per_s, whole.speculative[:size, :size], whole.baseline[:size, :size])
        _, worth = best(chain)
        if worth.edge < _UNSEEN:
            break
    tables = {name: make(case, rate_per_s)[:size, :size] for name, make in WAYS.items()}
    found = {name: weigh(chain, table).in_flight / worth.in_flight - 1.0 for name, table in tables.items()}
    return Exact(worth.response_s, worth.edge, found)


def _marginal(case: Case, rate_per_s: float) -> Table:
    context = measured(bench_of(case.curve)).contexts[0]
    assert context.speculative is not None
    assert context.baseline is not None
    sides = [
        delays(speeds, prefill)
        for speeds, prefill in zip((context.speculative, context.baseline), context.prefill_tok_s, strict=True)
    ]
    demand = Demand(rate_per_s * OUTPUT_TOKENS, case.prompt, OUTPUT_TOKENS, prompt_tok_s=rate_per_s * case.prompt)
    both = outlook(sides[0], sides[1], demand)
    costs = []
    for ahead, side in zip(both, sides, strict=True):
        stall_s = case.prompt / (side.prefill_tok_s or 1e9)
        told = [OUTPUT_TOKENS * ahead.added(n, 1) + stall_s * ahead.stopped(n + 1) for n in range(MOST + 1)]
        costs.append(np.array(told))
    return _cheaper(*costs)


def _grown(case: Case, _rate_per_s: float) -> Table:
    """The delay of all in flight, were nobody to come or to go."""
    return _cheaper(*(np.diff(np.arange(MOST + 2) * own) for own in _own_s(case, MOST + 1)))


def _faster(case: Case, _rate_per_s: float) -> Table:
    """The cost of only oneself."""
    return _cheaper(*(own[1:] for own in _own_s(case, MOST + 1)))


def _own_s(case: Case, most: int) -> list[Numbers]:
    context = measured(bench_of(case.curve)).contexts[0]
    found = []
    for speeds, prefill in zip((context.speculative, context.baseline), context.prefill_tok_s, strict=True):
        assert speeds is not None
        step_s = [0.0, *(speeds.seconds_per_token(n) for n in range(1, most + 1))]
        stall_s = case.prompt / (prefill or 1e9)
        found.append(OUTPUT_TOKENS * np.array(step_s) + stall_s * np.arange(most + 1))
    return found


def _first(case: Case, _rate_per_s: float) -> Table:
    """HAProxy's `balance first` with the crossing for maxconn."""
    at = curves.crossing(curves.find(case.curve))
    table = np.zeros((MOST + 1, MOST + 1), dtype=np.bool_)
    table[: MOST if at is None else max(1, min(MOST, int(np.ceil(at)))), :] = True
    return table


def _cheaper(first: Numbers, second: Numbers) -> Table:
    return np.asarray(np.less.outer(first, second), dtype=np.bool_)


WAYS: dict[str, Callable[[Case, float], Table]] = {
    "marginal": _marginal,
    "nobody to come": _grown,
    "faster": _faster,
    "first:N": _first,
}
