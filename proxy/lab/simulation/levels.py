"""Ways where acceptance changes: what the engines become, and that control arms which go by speeds know it.

A policy of the proxy works by the curve as it was measured, and an operator's number, like that of `first`, as well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from proxy.lab.simulation.arms import Arm, Bench, Choose, View
from proxy.lab.simulation.course import AS_MEASURED, Level
from proxy.lab.simulation.pace import accepting
from proxy.lab.simulation.sharing import Task
from proxy.model import Role


def over_levels(bench: Bench, levels: Sequence[Level], make: Callable[[Bench], Iterable[Arm]]) -> list[Arm]:
    """The arms that `make` gives for a bench, each with its engines at every level, and with its choice there."""
    made = [list(make(bench if level == AS_MEASURED else bench_at(bench, level))) for level in levels]
    return [_joined(levels, same) for same in zip(*made, strict=True)]


def bench_at(bench: Bench, level: Level) -> Bench:
    """The bench where speculation gains as much as that, for everybody to know."""
    tokens = level.amount if level.absolute else level.amount * bench.curve.tokens_per_step
    return replace(bench, paces=accepting(bench.curve, bench.paces, tokens))


def _joined(levels: Sequence[Level], same: Sequence[Arm]) -> Arm:
    first = same[0]
    if len(levels) == 1:
        return first
    later = {level: one.paces for level, one in zip(levels, same, strict=True)}
    choices = {level: one.choose for level, one in zip(levels, same, strict=True) if one.choose is not None}
    return replace(first, later=later, choose=_by_level(choices) if choices else None)


def _by_level(choices: Mapping[Level, Choose]) -> Choose:
    def choose(view: View, task: Task) -> Role:
        return choices[view.level](view, task)

    return choose
