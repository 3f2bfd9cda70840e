"""The proof of affinity: conversations by policies that know what is cached, by the same ones blind to it, and held
against the best of those that never move a conversation.

Usage: scripts/prove_affinity --help. What the traffic is like is in conversations.py.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import NamedTuple

from simulate.conversations import AGENTS, CHATS, Conversations

from proxy.config.routing_keys import Stickiness
from proxy.lab.curves import find
from proxy.lab.simulation.arms import Arm, Bench, View, arm, chosen_by, settings_of
from proxy.lab.simulation.arrivals import Arrivals
from proxy.lab.simulation.oracles import works
from proxy.lab.simulation.pace import capacity, paces
from proxy.lab.simulation.sharing import Bounds, Task
from proxy.lab.simulation.traces import read_trace
from proxy.lab.simulation.trial import Trial
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Role

# One crossover that long contexts have moved; a strong one; two changes of sign; speculation that always loses.
CURVES = (
    "rtx6kpro_kimi26_v1_dcp1_ctx10k",
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21",
    "rtx6kpro_glm51_dcp4_ctx0",
    "seed",
)
LOADS = (0.2, 0.4, 0.6)
# The KV pools published for one model over eight cards, the drafter's smaller one first: a hundred conversations.
KV_TOKENS = (1_820_000, 3_270_000)
MAX_IN_FLIGHT = 64
# Shares of the conversations that begin on the speculative engine, and then stay where they began.
SHARES = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)

Make = Callable[[], Arm]


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison. `traffic` is `chats`, `agents` or the path of a trace."""

    curve: str
    traffic: str
    load: float
    requests: int = 2000
    seeds: int = 3


class Found(NamedTuple):
    """Mean seconds of a request by each way, and those of the best that never moves a conversation, with its name.
    `spread` is the largest difference of one seed's ratio of marginal to it from the mean ratio."""

    cell: Cell
    rate_per_s: float
    best: str
    best_s: float
    ways_s: dict[str, float]
    spread: float


def compare(cell: Cell) -> Found:
    """All ways on the same requests."""
    curve, traffic = find(cell.curve), arrivals(cell.traffic)
    means = traffic.means
    bench = Bench(curve, Placement.SEPARATE, paces(curve, MAX_IN_FLIGHT, means.context), MAX_IN_FLIGHT)
    rate_per_s = cell.load * capacity(bench.paces, bench.placement, works(bench, means))
    bounds = {
        role: Bounds(MAX_IN_FLIGHT, tokens, curve.prefill_tokens_per_s)
        for role, tokens in zip(ROLES, KV_TOKENS, strict=True)
    }

    def run(make: Make, seed: int) -> float:
        warm = cell.requests // 4
        times = Trial(make(), bounds, traffic.source(rate_per_s, seed)).run(warm, warm + cell.requests)
        return fsum(times.e2e_s) / len(times.e2e_s)

    def runs(make: Make) -> list[float]:
        return [run(make, seed) for seed in range(1, cell.seeds + 1)]

    kept = {name: runs(make) for name, make in staying(bench).items()}
    best = min(kept, key=lambda name: fsum(kept[name]))
    found = {name: runs(make) for name, make in ways(bench).items()}
    ratios = [ours / theirs for ours, theirs in zip(found["marginal"], kept[best], strict=True)]
    mean = fsum(ratios) / len(ratios)
    return Found(
        cell,
        rate_per_s,
        best,
        fsum(kept[best]) / cell.seeds,
        {name: fsum(each) / cell.seeds for name, each in found.items()},
        max(abs(ratio - mean) for ratio in ratios),
    )


def arrivals(traffic: str) -> Arrivals:
    """A kind of traffic by its name. Raises `ConfigError` for a file that is no trace."""
    habits = {habit.name: habit for habit in (CHATS, AGENTS)}
    return Conversations(habits[traffic]) if traffic in habits else read_trace(Path(traffic))


def ways(bench: Bench) -> dict[str, Make]:
    """The policies that keep conversations, with and without that."""
    return {
        f"{policy}{'' if follows else ' blind'}": _policy(bench, policy, follows=follows)
        for policy in ("marginal", "overflow")
        for follows in (True, False)
    }


def staying(bench: Bench) -> dict[str, Make]:
    """Ways that never move a conversation: to begin by share, or where the first turn delays all least."""
    shares = {f"{share:.0%} speculative": _by_share(bench, share) for share in SHARES}
    return {**shares, "least delay": _by_first_turn(bench)}


def _policy(bench: Bench, policy: str, *, follows: bool) -> Make:
    made = settings_of(bench, policy)
    routing = made.routing.model_copy(update={"affinity": Stickiness(enabled=follows)})
    return lambda: Arm(policy, made.model_copy(update={"routing": routing}), bench.paces)


def _by_share(bench: Bench, share: float) -> Make:
    def make() -> Arm:
        owed = 0.0

        def begin(_view: View, _task: Task) -> Role:
            nonlocal owed
            owed += share
            if owed < 1.0 - 1e-9:
                return BASELINE
            owed -= 1.0
            return SPECULATIVE

        return _stays(bench, begin)

    return make


def _by_first_turn(bench: Bench) -> Make:
    choose = arm("least_delay", bench).choose
    assert choose is not None
    return lambda: _stays(bench, choose)


def _stays(bench: Bench, begin: Callable[[View, Task], Role]) -> Arm:
    """Each conversation stays where it began. It is known by its first block behind the common system prompt."""
    homes: dict[int, Role] = {}

    def choose(view: View, task: Task) -> Role:
        if len(task.blocks) < 2:
            return begin(view, task)
        home = homes.get(task.blocks[1])
        if home is None:
            home = homes[task.blocks[1]] = begin(view, task)
        return home

    return chosen_by("stays", choose, bench)


# ---------------------------------------------------------------- a table of it

HEAD = """\
| curve | traffic | load | best that never moves one | s | marginal | blind | overflow | blind |
|---|---|---|---|---|---|---|---|---|"""


def row(found: Found) -> str:
    """As Markdown. Times of the ways are told as multiples of the best that never moves a conversation."""
    cell, ours = found.cell, {name: way_s / found.best_s for name, way_s in found.ways_s.items()}
    return (
        f"| {cell.curve} | {Path(cell.traffic).stem} | {cell.load:g} | {found.best} | {found.best_s:.2f}"
        f" | {ours['marginal']:.2f} ±{found.spread:.2f} | {ours['marginal blind']:.2f} | {ours['overflow']:.2f}"
        f" | {ours['overflow blind']:.2f} |"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; the exit code."""
    asked = _parser().parse_args(argv)
    cells = [
        Cell(curve, traffic, load, asked.requests, asked.seeds)
        for curve in asked.curves
        for traffic in asked.traffic
        for load in asked.loads
    ]
    with ProcessPoolExecutor(asked.processes) as pool:
        print(HEAD)
        for found in pool.map(compare, cells):
            print(row(found), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="scripts/prove_affinity", description=__doc__.partition("\n\n")[0])
    add = out.add_argument
    add("--curves", type=lambda text: text.split(","), default=CURVES, metavar="A,B", help="names (default: four)")
    add(
        "--traffic",
        type=lambda text: text.split(","),
        default=["agents", "chats"],
        metavar="A,B",
        help="agents, chats, or files of traces (default: agents,chats)",
    )
    add("--loads", type=lambda text: [float(load) for load in text.split(",")], default=LOADS, metavar="A,B")
    add("--requests", type=int, default=2000, metavar="N", help="that count, of each run (default 2000)")
    add("--seeds", type=int, default=3, metavar="N", help="runs of each way (default 3)")
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="at once (default: all cores)")
    return out


if __name__ == "__main__":
    sys.exit(main())
