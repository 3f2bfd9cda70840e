"""What a calibration is to find out, and what its time holds: which concurrencies, and how long each."""

from dataclasses import dataclass

from proxy.lab.calibration.values import Arm, Condition, Span
from proxy.lab.prompts import PromptKind
from proxy.routing.verdict import MIN_REPEATS

DEFAULT_CONCURRENCIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 250)

DEFAULT_BUDGET_S = 3600.0

# What a cell takes besides its span before any was measured: prefill, first tokens, and running answers let go.
OVERHEAD_S = 4.0

# Sweeps may plan with this share of the budget; the rest closes in on crossings and narrows intervals.
_SWEEP_SHARE = 0.55

# Where the shortest windows do not fit into that share, sweeps may take so much before concurrencies are left out.
_MOST_SWEEPS = 0.8

# Two ends and a middle.
_LEAST_GRID = 3

_WINDOW_S = (5.0, 60.0)

_SETTLE_S = (1.5, 20.0)

_SETTLE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Aim:
    """What a calibration is to find out, and at what expense.

    `contexts` are buckets of context, tokens, the first the most usual; `prompts` classes of prompts, the first the
    main one; `precision` the half-width at which an interval of ln(ratio) is narrow enough; `budget_s` the time for
    all.
    """

    concurrencies: tuple[int, ...] = DEFAULT_CONCURRENCIES
    contexts: tuple[int, ...] = (1024,)
    arms: tuple[Arm, ...] = (Arm.SPECULATIVE, Arm.BASELINE)
    prompts: tuple[PromptKind, ...] = (PromptKind.MIXED, PromptKind.PROSE)
    budget_s: float = DEFAULT_BUDGET_S
    max_tokens: int = 256
    precision: float = 0.02
    quick: bool = False

    @property
    def contrasting(self) -> bool:
        """Whether both backends are measured, so that there is anything to compare."""
        return Arm.SPECULATIVE in self.arms and Arm.BASELINE in self.arms

    def main(self, context_tokens: int) -> Condition:
        """The condition that the verdict for one bucket of context is about."""
        return Condition(context_tokens, self.prompts[0], max_tokens=self.max_tokens)


def grid_of(aim: Aim) -> tuple[int, ...]:
    """The concurrencies of the sweeps: those asked for, thinned evenly where the budget does not hold them all."""
    asked = sorted(set(aim.concurrencies))
    room = max(_LEAST_GRID, int(len(asked) * aim.budget_s / least_budget_s(aim, len(asked)) + 1e-9))
    if len(asked) <= room:
        return tuple(asked)
    return tuple(sorted({asked[round(place * (len(asked) - 1) / (room - 1))] for place in range(room)}))


def least_budget_s(aim: Aim, count: int = 1) -> float:
    """The time that sweeps over `count` concurrencies take with the shortest windows, and some to close in."""
    cell_s = _WINDOW_S[0] + _SETTLE_S[0] + OVERHEAD_S
    return cell_s * count * len(aim.contexts) * len(aim.arms) * MIN_REPEATS / _MOST_SWEEPS


def span_of(aim: Aim) -> Span:
    """How long each cell is measured, so that the sweeps fit into their share of the budget."""
    cells = len(grid_of(aim)) * len(aim.contexts) * len(aim.arms) * MIN_REPEATS
    each_s = _SWEEP_SHARE * aim.budget_s / cells - OVERHEAD_S
    window_s = _within(each_s * (1.0 - _SETTLE_SHARE), _WINDOW_S)
    return Span(_within(window_s * _SETTLE_SHARE, _SETTLE_S), window_s)


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
