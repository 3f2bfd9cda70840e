"""What the ways are held against: the exact optimum, one that knows all lengths, and the best fixed rule in hindsight.

The optimum is that of the Markov chain (chain.py) with the curve's speeds: of engines without steps, where prefill only
makes each request's work longer, and requests that come at random. It is run as an arm of its own on the same requests
as the policies, so that what the chain leaves out is in both.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from proxy.lab.simulation.arms import Arm, Bench, View, arm, chosen_by
from proxy.lab.simulation.arrivals import Means
from proxy.lab.simulation.chain import Chain, Numbers, best
from proxy.lab.simulation.pace import Pace, Work
from proxy.lab.simulation.sharing import Task
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Role

# With more of the time at a bound the chain is no model of engines behind a queue any more.
MAX_EDGE = 0.002

# Numbers that a careful operator would try: each about a third above the one before.
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Optimum(NamedTuple):
    """The best table as an arm; `response_s` is the mean time that the chain foretells, `edge` its time at a bound."""

    arm: Arm
    response_s: float
    edge: float


def works(bench: Bench, means: Means) -> dict[Role, Work]:
    """What a request asks of each engine."""
    prefill_s = means.prompt / bench.curve.prefill_tokens_per_s
    return {role: Work(means.output + bench.paces[role].surplus_tokens, prefill_s) for role in ROLES}


def optimum(bench: Bench, rate_per_s: float, asked: Mapping[Role, Work]) -> Optimum:
    """The best choices for requests that come at random at this rate."""
    table, worth = best(chain_of(bench, rate_per_s, asked))
    choices = [[SPECULATIVE if speculates else BASELINE for speculates in row] for row in table.tolist()]

    def choose(view: View, _task: Task) -> Role:
        return choices[view.speculative][view.baseline]

    return Optimum(chosen_by("optimum", choose, bench), worth.response_s, worth.edge)


def chain_of(bench: Bench, rate_per_s: float, asked: Mapping[Role, Work]) -> Chain:
    """The bench as a chain."""
    held = np.arange(bench.max_in_flight + 1, dtype=float)
    sides = [_side(bench.paces[role], asked[role], held) for role in ROLES]
    grids = (sides[0].cycle_s[:, None], sides[1].cycle_s[None, :])
    if bench.placement is Placement.SHARED:
        cycle_s = grids[0] + grids[1]
        cycles = (cycle_s, cycle_s)
    else:
        cycles = (np.repeat(grids[0], held.size, axis=1), np.repeat(grids[1], held.size, axis=0))
    ends = (np.repeat(sides[0].ends[:, None], held.size, 1), np.repeat(sides[1].ends[None, :], held.size, 0))
    speculative, baseline = (
        np.divide(end, cycle_s, out=np.zeros_like(end), where=end > 0)
        for end, cycle_s in zip(ends, cycles, strict=True)
    )
    return Chain(rate_per_s, speculative, baseline)


class _Side(NamedTuple):
    """One engine by its batch: seconds of a step with its share of prefill, and the requests that end in it."""

    cycle_s: Numbers
    ends: Numbers


def _side(pace: Pace, asked: Work, held: Numbers) -> _Side:
    ends = held * np.array(pace.tokens[: held.size]) / asked.tokens
    return _Side(np.array(pace.step_s[: held.size]) + ends * asked.prefill_s, ends)


def alone(bench: Bench) -> Iterator[Arm]:
    """Each engine alone."""
    yield arm("only_speculative", bench)
    yield arm("only_baseline", bench)


def fixed(bench: Bench) -> Iterator[Arm]:
    """Rules that never change: each engine alone, and every fixed number for the policy without curves."""
    yield from alone(bench)
    for number in _LADDER:
        if number <= bench.max_in_flight:
            shared = bench.placement is Placement.SHARED
            yield arm(f"threshold:{number}/{number // 2}" if shared else f"overflow:{number}", bench)
