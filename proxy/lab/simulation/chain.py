"""Two engines as a Markov chain over their numbers in flight: what a table of choices costs, and the best table.

Requests come at random (Poisson) with exponential lengths. Where the rates come from is in pace.py, and how a table is
used in a simulation in arms.py.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Table = NDArray[np.bool_]

# A choice is changed only for a gain that rounding does not make, as a share of the longest delay of any state. Equal
# choices would otherwise be changed to and fro for ever.
_GAIN = 1e-9
# How much more time than in the state that everything is reckoned from may be spent in another one. Reckoned from one
# that is hardly ever visited, all delays are as long as the way back to it, and their differences are lost.
_RARE = 30.0
# So many rounds in a row that gain less than such a share are enough: what still changes are states that are as good as
# never visited, and on shared GPUs there are dozens of rounds of these.
_IDLE_ROUNDS, _LEAST = 3, 1e-10
# Improvement ends after a handful of rounds; one that does not is a defect.
_MAX_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Chain:
    """`arrivals_per_s` requests come; `speculative` and `baseline` are requests that end per second, by both numbers in
    flight (speculative first). Both have the same shape, which bounds what may be in flight."""

    arrivals_per_s: float
    speculative: Numbers
    baseline: Numbers

    @property
    def shape(self) -> tuple[int, int]:
        """States of the speculative and of the baseline engine: one more than each may have in flight."""
        rows, columns = self.speculative.shape
        return rows, columns


class Worth(NamedTuple):
    """What a table gives in the long run.

    `response_s` is the mean time of a request; `edge` the share of time in which one of the engines is at its bound,
    where the chain is no model of an endless one; `delay_s` is by state how much longer all requests together take
    from there on than from some one state, and `usual` is the state with the most time.
    """

    response_s: float
    in_flight: float
    speculative_share: float
    edge: float
    delay_s: Numbers
    usual: tuple[int, int]


def best(chain: Chain) -> tuple[Table, Worth]:
    """The table with the least mean time of a request, by policy iteration, and its worth.

    True sends to speculative. The table found is the fixed point of relative value iteration, without its tolerance.
    """
    starts = (np.ones(chain.shape, dtype=np.bool_), np.zeros(chain.shape, dtype=np.bool_), least_delay(chain))
    table, worth = min(((start, weigh(chain, start)) for start in starts), key=lambda pair: pair[1].response_s)
    idle = 0
    for _ in range(_MAX_ROUNDS):
        better = _improved(table, worth.delay_s)
        if idle == _IDLE_ROUNDS or bool((better == table).all()):
            return table, worth
        before, table, worth = worth, better, weigh(chain, better, worth.usual)
        idle = 0 if worth.response_s < before.response_s * (1.0 - _LEAST) else idle + 1
    raise RuntimeError(f"no table was best after {_MAX_ROUNDS} rounds")


def least_delay(chain: Chain) -> Table:
    """The table that sends each request where it delays all that are there least, were nobody to come after it and
    the other engine idle."""
    grown = [_delay_grown(rates) for rates in (chain.speculative[:, 0], chain.baseline[0, :])]
    return np.asarray(np.less_equal.outer(*grown), dtype=np.bool_)


def _delay_grown(rates: Numbers) -> Numbers:
    """By how much n d(n), the delay of all together, grows with one more; there is no more than the last."""
    counts = np.arange(rates.size, dtype=float)
    delay = np.divide(counts * counts, rates, out=np.zeros_like(rates), where=counts > 0)
    return np.append(np.diff(delay), np.inf)


def weigh(chain: Chain, table: Table, around: tuple[int, int] | None = None) -> Worth:
    """What a table of choices (True: to speculative) is worth; one that names a full engine means the other.

    `around` is a state to reckon from, by default where the chain comes to rest; a rare one costs a second solution.
    """
    table = _possible(table)
    rest = _place(chain, _rest(chain, table))
    place = rest if around is None else _place(chain, around)
    failed: set[int] = set()
    while True:
        try:
            solver, out = _system(chain, table, place)
        except RuntimeError:  # singular: hardly ever there by this table, so that the others are a chain without it
            if place in failed or place == rest:
                raise
            failed.add(place)
            place = rest
            continue
        share = np.insert(solver.solve(-out, trans="T"), place, 1.0)
        # Reckoned from a rare state all other shares are huge, and of either sign: their proportions are right.
        share /= share.sum()
        usual = int(share.argmax())
        if share[usual] <= _RARE * share[place]:
            break
        place = usual
    share = share.reshape(chain.shape)
    held = np.add.outer(*(np.arange(size, dtype=float) for size in chain.shape)).ravel()
    # With h the delay by state, zero in one, and g the mean number in flight, each state says held - g + Q h = 0: h is
    # linear in g, which is known from the shares.
    mean = float(share.ravel() @ held)
    delay_s = np.insert(solver.solve(mean - np.delete(held, place)), place, 0.0).reshape(chain.shape)
    taken = 1.0 - float(share[-1, -1])
    edge = float(share[-1, :].sum() + share[:-1, -1].sum())
    speculative = float(share[table].sum()) / taken
    return Worth(mean / (chain.arrivals_per_s * taken), mean, speculative, edge, delay_s, divmod(usual, chain.shape[1]))


def _place(chain: Chain, state: tuple[int, int]) -> int:
    return state[0] * chain.shape[1] + state[1]


def _rest(chain: Chain, table: Table) -> tuple[int, int]:
    """Where the chain would stay, or go to and fro, without chance, when it begins empty."""
    row = column = 0
    for _ in range(2 * sum(chain.shape)):
        speculates = bool(table[row, column])
        drift = chain.arrivals_per_s * speculates - chain.speculative[row, column]
        other = chain.arrivals_per_s * (not speculates) - chain.baseline[row, column]
        if abs(drift) >= abs(other):
            row = min(max(row + (1 if drift > 0 else -1), 0), chain.shape[0] - 1)
        else:
            column = min(max(column + (1 if other > 0 else -1), 0), chain.shape[1] - 1)
    return row, column


def _possible(table: Table) -> Table:
    """The table with what a full engine cannot take given to the other one."""
    table = table.copy()
    table[:, -1] = True
    table[-1, :] = False  # in the corner nobody comes in
    return table


def _improved(table: Table, delay_s: Numbers) -> Table:
    after_speculative = np.full(table.shape, np.inf)
    after_baseline = np.full(table.shape, np.inf)
    after_speculative[:-1, :] = delay_s[1:, :]
    after_baseline[:, :-1] = delay_s[:, 1:]
    with np.errstate(invalid="ignore"):  # both are full in the corner
        gain = np.where(table, after_speculative - after_baseline, after_baseline - after_speculative)
    return np.asarray(table ^ (gain > _GAIN * np.abs(delay_s).max()), dtype=np.bool_)


def _system(chain: Chain, table: Table, place: int) -> tuple[Any, Numbers]:
    """The rates between all states but the one at `place`, ready to solve with, and the rates out of that one."""
    from scipy.sparse import coo_matrix  # noqa: PLC0415 - takes a while to load, and needs the optional extra
    from scipy.sparse.linalg import splu  # noqa: PLC0415

    rows, columns = chain.shape
    states = rows * columns
    index = np.arange(states).reshape(rows, columns)
    ways = [
        (index[1:, :], index[:-1, :], chain.speculative[1:, :]),
        (index[:, 1:], index[:, :-1], chain.baseline[:, 1:]),
        (index[:-1, :], index[1:, :], chain.arrivals_per_s * table[:-1, :]),
        (index[:, :-1], index[:, 1:], chain.arrivals_per_s * ~table[:, :-1]),
    ]
    start, end, rate = (np.concatenate([way[part].ravel() for way in ways]) for part in range(3))
    leaving = np.bincount(start, weights=rate, minlength=states)
    inside = (start != place) & (end != place)
    other = np.delete(np.arange(states), place)
    cells = (
        np.concatenate([rate[inside], -leaving[other]]),
        (np.concatenate([start[inside], other]), np.concatenate([end[inside], other])),
    )
    body = coo_matrix(cells, shape=(states, states)).tocsr()[other][:, other].tocsc()
    out = np.zeros(states)
    np.add.at(out, end[start == place], rate[start == place])
    # A grid has symmetric places: ordered for that, the factors are a fifth of the default's size.
    return splu(body, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}), out[other]
