"""What a proof of the policies says: which gates hold in how many cells, the worst cells, and all ways side by side."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import inf
from statistics import median
from typing import Any, NamedTuple

from simulate.contests import STATIC, Contest, Score, policy_of
from simulate.exact import Case, Exact, bench_of

from proxy.lab import curves
from proxy.lab.simulation.arms import measured
from proxy.lab.simulation.arrivals import OUTPUT_TOKENS, PROMPT_TOKENS, Means
from proxy.lab.simulation.oracles import works
from proxy.lab.simulation.pace import capacity
from proxy.lab.simulation.tally import Span, regret
from proxy.model import Placement
from proxy.routing.paces import paces
from proxy.routing.rules import CONSOLIDATED_S

SHOWN = 12


class Cell(NamedTuple):
    """A contest whatever its seed."""

    curve: str
    placement: str
    load: float
    traffic: str


class Written(NamedTuple):
    """The report as text, and its figures."""

    text: str
    figures: dict[str, Any]


Runs = Mapping[Cell, Sequence[Score]]


def hardest(seen: Mapping[Contest, Score], count: int) -> list[Contest]:
    """The contests, of one seed each, in which the policy is furthest above the better of both engines alone over all
    seeds."""
    runs: dict[Contest, list[Score]] = {}
    for contest, score in seen.items():
        runs.setdefault(contest._replace(seed=1), []).append(score)
    above = {each: _above_static(each.placement, scores).mean for each, scores in runs.items()}
    return sorted(above, key=lambda each: -above[each])[:count]


def report(made: Mapping[str, Any], exact: Mapping[Case, Exact], contests: Mapping[Contest, Score]) -> Written:
    """All of it."""
    runs: dict[Cell, list[Score]] = {}
    everything = {Cell(*contest[:4]) for contest in contests if contest.whole}
    for contest, score in contests.items():
        cell = Cell(*contest[:4])
        if contest.whole or cell not in everything:
            runs.setdefault(cell, []).append(score)
    lines = [
        "# Policies against their gates",
        "",
        f"Made by scripts/prove_policies on {made['date']}; {made['requests']} requests count in each run, more where",
        "load comes and goes. Intervals are of 95 %, over the seeds that are told; a single seed has none.",
        *(f"Not run for want of time: {what}." for what in made["missing"]),
        "",
        *_gates(exact, runs),
        "",
        "Above the exact optimum, median and worst; `nobody to come` is the plain formula, `faster` one's own cost:",
        "",
        *_by_load(exact),
        "",
        "The worst cells of `marginal` on the chain:",
        "",
        *_worst_exact(exact),
        "",
        "The worst cells on the virtual clock, against the better of both engines alone, in hindsight:",
        "",
        *_worst(runs),
        "",
        "All ways, against the best that the same two engines got in a cell by any but `o2`,",
        "who knows all lengths; `adaptive` and `two_baselines` run other engines on the same GPUs:",
        "",
        *_ways(runs),
        "",
    ]
    figures = {
        "exact": [{**case._asdict(), **found._asdict()} for case, found in exact.items()],
        "contests": [{**contest._asdict(), **score._asdict()} for contest, score in contests.items()],
    }
    return Written("\n".join(lines), figures)


# ---------------------------------------------------------------- gates


def _gates(exact: Mapping[Case, Exact], runs: Runs) -> list[str]:
    counted = {f"{case.curve} {case.load:g}": each.regret["marginal"] for case, each in exact.items() if each.counts}
    static = {cell: _above_static(cell.placement, scores).mean for cell, scores in runs.items()}
    knowing = {
        cell: _above(scores, policy_of("separate"), "o2").mean
        for cell, scores in runs.items()
        if cell.placement == "separate" and "o2" in scores[0].mean_s
    }
    steady = [cell for cell in runs if not cell.traffic.startswith("alternating")]
    changes = {
        cell: max(score.switches - 1.0 - (score.lasted_s + 180.0) * 1.2 / CONSOLIDATED_S for score in scores)
        for cell, scores in runs.items()
    }
    rows = [
        _gate("`marginal` at most 2 % above the exact optimum", counted, 0.02),
        _gate("`marginal` at most 5 % above one that knows all lengths", knowing, 0.05),
        _gate("`marginal` never above the better engine alone", _of(static, steady, "separate"), 0.0),
        _gate("`consolidate` at most 2 % above it, steady load", _of(static, steady, "shared"), 0.02),
        _gate("the same, where one was measured to give as much", _of(static, _measured(steady), "shared"), 0.02),
        _gate(
            "`consolidate` at most 2 % above it, load that comes and goes",
            _of(static, set(runs) - set(steady), "shared"),
            0.02,
        ),
        _gate(
            "one engine is always the faster: at most 3 % above it",
            {c: static[c] for c in runs if _one_sided(c.curve)},
            0.03,
        ),
    ]
    late = sum(value > 0.0 for value in changes.values())
    return [
        "| gate | cells | hold | worst | where |",
        "|---|---|---|---|---|",
        *rows,
        f"| at most one change of regime in a dwell | {len(changes)} | {len(changes) - late} | | |",
    ]


def _gate(name: str, found: Mapping[Any, float], most: float) -> str:
    if not found:
        return f"| {name} | 0 | | | |"
    worst = max(found, key=lambda each: found[each])
    where = worst if isinstance(worst, str) else _told(worst)
    held = sum(value <= most for value in found.values())
    return f"| {name} | {len(found)} | {held} | {found[worst]:+.1%} | {where} |"


def _of(found: Mapping[Cell, float], cells: Iterable[Cell], placement: str) -> dict[Cell, float]:
    return {cell: found[cell] for cell in cells if cell.placement == placement}


def _measured(cells: Iterable[Cell]) -> list[Cell]:
    """Those with a load that one engine was measured to carry; beyond, engines here go on in a straight line, which
    no policy knows."""
    return [cell for cell in cells if cell.load <= _most_known(cell.curve, cell.placement)]


@cache
def _most_known(name: str, placement: str) -> float:
    bench = bench_of(name, Placement(placement))
    asked, context = (
        works(bench, Means(PROMPT_TOKENS, OUTPUT_TOKENS, PROMPT_TOKENS + OUTPUT_TOKENS)),
        measured(bench).contexts[0],
    )
    carried = []
    for speeds, prefill in zip((context.speculative, context.baseline), context.prefill_tok_s, strict=True):
        assert speeds is not None
        most = paces(speeds, prefill).most_tok_s
        carried.append(1.0 / (OUTPUT_TOKENS / most + PROMPT_TOKENS / (prefill or inf)))
    return max(carried) / capacity(bench.paces, bench.placement, asked)


def _one_sided(name: str) -> bool:
    """Whether one of both engines is the faster in every measurement."""
    return len({point.speculative > point.baseline for point in curves.find(name).points}) == 1


# ---------------------------------------------------------------- tables


def _by_load(exact: Mapping[Case, Exact]) -> list[str]:
    """Each way by load: median and worst above the optimum."""
    counted = {case: each for case, each in exact.items() if each.counts}
    names = list(next(iter(exact.values())).regret) if exact else []
    lines = [f"| load | cells | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    for load in sorted({case.load for case in counted}):
        cells = [each.regret for case, each in counted.items() if case.load == load]
        told = [
            f"{median(column):.2%}, {max(column):.1%}" for column in ([cell[name] for cell in cells] for name in names)
        ]
        lines.append(f"| {load:g} | {len(cells)} | {' | '.join(told)} |")
    return lines


def _worst_exact(exact: Mapping[Case, Exact]) -> list[str]:
    found = {case: each for case, each in exact.items() if each.counts}
    worst = sorted(found, key=lambda case: -found[case].regret["marginal"])[:SHOWN]
    lines = ["| curve | load | prompt tokens | `marginal` above the optimum | optimum, s |", "|---|---|---|---|---|"]
    for case in worst:
        above = found[case].regret["marginal"]
        lines.append(f"| {case.curve} | {case.load:g} | {case.prompt:g} | {above:+.1%} | {found[case].optimum_s:.2f} |")
    return lines


def _worst(runs: Runs) -> list[str]:
    """The worst cells of each policy, against the better engine alone."""
    lines = [
        "| curve | GPUs | load | traffic | seeds | above the better engine alone | changes |",
        "|---|---|---|---|---|---|---|",
    ]
    above = {cell: _above_static(cell.placement, scores) for cell, scores in runs.items()}
    for cell in sorted(above, key=lambda each: -above[each].mean)[: 2 * SHOWN]:
        changes = sum(score.switches for score in runs[cell]) / len(runs[cell])
        lines.append(
            f"| {cell.curve} | {cell.placement} | {cell.load:g} | {cell.traffic} | {len(runs[cell])} "
            f"| {_span(above[cell])} | {changes:.1f} |"
        )
    return lines


def _ways(runs: Runs) -> list[str]:
    """Every way in the cells where all were run: median and worst above the best that the same two engines got."""
    whole = {cell: scores for cell, scores in runs.items() if "o2" in scores[0].mean_s}
    lines = ["| GPUs | traffic | cells | way | median | worst |", "|---|---|---|---|---|---|"]
    for placement, kind in sorted({(cell.placement, cell.traffic) for cell in whole}):
        cells = [scores for cell, scores in whole.items() if (cell.placement, cell.traffic) == (placement, kind)]
        for way in cells[0][0].mean_s:
            above = [_above(scores, way, _best(scores, _same_engines(scores))).mean for scores in cells]
            lines.append(f"| {placement} | {kind} | {len(cells)} | {way} | {median(above):+.1%} | {max(above):+.1%} |")
    return lines


def _same_engines(scores: Sequence[Score]) -> set[str]:
    """The ways that use one engine with speculation and one without, and know no more than a proxy may."""
    return set(scores[0].mean_s) - {"o2", "adaptive", "two_baselines"}


def _above_static(placement: str, scores: Sequence[Score]) -> Span:
    return _above(scores, policy_of(placement), _best(scores, STATIC))


def _best(scores: Sequence[Score], ways: Iterable[str]) -> str:
    return min(ways, key=lambda way: sum(score.mean_s[way] for score in scores))


def _above(scores: Sequence[Score], way: str, other: str) -> Span:
    return regret([score.mean_s[way] for score in scores], [score.mean_s[other] for score in scores])


def _span(found: Span) -> str:
    if found.low is None or found.high is None:
        return f"{found.mean:+.1%}"
    return f"{found.mean:+.1%} ({found.low:+.1%} to {found.high:+.1%})"


def _told(cell: Cell) -> str:
    return f"{cell.curve} {cell.load:g} {cell.traffic}"
