"""Ways where acceptance changes: what the engines become, and that control arms which go by speeds know it.

A policy of the proxy works by the curve as it was measured, and an operator's number, like that of `first`, as well.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from proxy.lab.simulation.arms import Arm, Bench
from proxy.lab.simulation.course import AS_MEASURED, Level
from proxy.lab.simulation.pace import accepting


def over_levels(bench: Bench, levels: Sequence[Level], make: Callable[[Bench], Iterable[Arm]]) -> list[Arm]:
    """The arms that `make` gives for a bench, each with what it is at every level but the first."""
    made = [list(make(bench if level == AS_MEASURED else bench_at(bench, level))) for level in levels]
    return [replace(same[0], later=dict(zip(levels[1:], same[1:], strict=True))) for same in zip(*made, strict=True)]


def bench_at(bench: Bench, level: Level) -> Bench:
    """The bench where speculation gains as much as that, for everybody to know."""
    tokens = level.amount if level.absolute else level.amount * bench.curve.tokens_per_step
    return replace(bench, paces=accepting(bench.curve, bench.paces, tokens))
