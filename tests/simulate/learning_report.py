"""What a proof of learning says: which gates hold, each kind of run, and all runs that are beyond a gate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

# What each part of the proof is, as the page says it.
PARTS_TOLD = {
    "cold": "flat curves, separate GPUs",
    "steady": "right curves, separate GPUs",
    "changed": "right curves, then a change, separate GPUs",
    "adverse": "wrong curves or engines that lie, separate GPUs",
    "shared": "shared GPUs",
    "clocks": "steps counted in another way, separate GPUs",
}


INTRODUCTION = """\
# What learning gains and costs

Made by scripts/prove_learning on {date}. `routing.learn` corrects the curves by live traffic. Whether that helps
can only be said where the truth is known, so whole runs are made in the simulation ([simulation](../simulation.md)):
the proxy's own desk, learner and policies on a virtual clock, in front of two engines that follow a published curve,
polled every second. Beside each run stand two more on the very same requests: the same policy without learning, by
what is believed at first, and one by the true curves, which *knows*.

Shares are percent of mean end-to-end time above the one that knows, for requests 1 to 500 and 501 to 2,500; where
acceptance falls, for the 60 s after that and the 400 s after those. *Harm* is the same above the policy without
learning. *Flat* curves are those of the baseline for both engines.
"""


class Found(NamedTuple):
    """What a cell came to: shares above the policy that knows, and above the one that only believes, in both spans."""

    part: str
    kind: str
    curve: str
    load: float
    seed: int
    regret: tuple[float, float]
    unlearned: tuple[float, float]
    harm: tuple[float, float]
    probes: int
    requests: int
    suspended: int
    switches: tuple[int, int]

    @property
    def probed(self) -> float:
        """The share of requests that were probes."""
        return self.probes / self.requests

    @property
    def starts_flat(self) -> bool:
        """Whether both curves are believed to be like the baseline."""
        return self.part == "cold" or self.kind.endswith("flat")


class Gate(NamedTuple):
    """A bound, of which runs it is asked, and what is held against it."""

    name: str
    bound: float
    asked: Callable[[Found], bool]
    share: Callable[[Found], float]


GATES = (
    Gate("from flat curves, the first 500: at most 15 % above", 0.15, lambda x: x.starts_flat, lambda x: x.regret[0]),
    Gate("from flat curves, after them: at most 5 % above", 0.05, lambda x: x.starts_flat, lambda x: x.regret[1]),
    Gate(
        "acceptance falls: at most 5 % above once 60 s are over",
        0.05,
        lambda x: x.part == "changed",
        lambda x: x.regret[1],
    ),
    Gate("probes: at most 1 % of requests", 0.01, lambda _: True, lambda x: x.probed),
    Gate(
        "first curves are right, or wrong, or engines lie; the first 500: at most 5 % above no learning",
        0.05,
        lambda x: not x.starts_flat,
        lambda x: x.harm[0],
    ),
    Gate("the same, after them", 0.05, lambda x: not x.starts_flat, lambda x: x.harm[1]),
)


def page(made: Mapping[str, Any], found: Sequence[Found]) -> str:
    """The tables in Markdown."""
    lines = [
        INTRODUCTION.format(date=made["date"]),
        "| gate | runs | hold | worst | where |",
        "|---|---|---|---|---|",
        *_gates(found),
        "",
        "Each kind of run: median and worst; *unlearned* is the policy without learning, in the second span.",
        "",
        "| part | kind | load | runs | unlearned | first 500 | after | harm, both spans | probes | put aside in |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *_kinds(found),
        "",
        "All runs beyond a gate:",
        "",
        "| part | kind | curve | load | first 500 | after | without learning | harm |",
        "|---|---|---|---|---|---|---|---|",
        *_beyond(found),
        "",
    ]
    return "\n".join(lines)


def _gates(found: Sequence[Found]) -> Iterator[str]:
    for gate in GATES:
        these = [each for each in found if gate.asked(each)]
        if not these:
            continue
        worst = max(these, key=gate.share)
        hold = sum(gate.share(each) <= gate.bound for each in these)
        where = f"{worst.curve} {worst.load:g}, {worst.kind}"
        yield f"| {gate.name} | {len(these)} | {hold} | {_percent(gate.share(worst))} | {where} |"


def _kinds(found: Sequence[Found]) -> Iterator[str]:
    kinds = dict.fromkeys((each.part, each.kind, each.load) for each in found)
    for part, kind, load in sorted(kinds, key=lambda each: (list(PARTS_TOLD).index(each[0]), each[1], each[2])):
        these = [each for each in found if (each.part, each.kind, each.load) == (part, kind, load)]
        columns = (
            [each.unlearned[1] for each in these],
            [each.regret[0] for each in these],
            [each.regret[1] for each in these],
            [max(each.harm) for each in these],
        )
        shares = " | ".join(f"{_percent(median(column))}, {_percent(max(column))}" for column in columns)
        probes = sum(each.probes for each in these) / sum(each.requests for each in these)
        suspended = sum(each.suspended > 0 for each in these)
        yield (
            f"| {PARTS_TOLD[part]} | {kind} | {load:g} | {len(these)} | {shares} | {100 * probes:.2f} | {suspended} |"
        )


def _beyond(found: Sequence[Found]) -> Iterator[str]:
    beyond = [each for each in found if any(gate.asked(each) and gate.share(each) > gate.bound for gate in GATES)]
    for each in sorted(beyond, key=lambda each: -max(each.regret)):
        spans = (each.regret[:1], each.regret[1:], each.unlearned, each.harm)
        shares = " | ".join(", ".join(map(_percent, span)) for span in spans)
        yield f"| {each.part} | {each.kind} | {each.curve} | {each.load:g} | {shares} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
