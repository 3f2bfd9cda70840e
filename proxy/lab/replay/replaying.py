"""The whole of a replay: run the ways, compare them, check the simulation against life, advise. Nothing is printed."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

from proxy.lab.replay.advice import Found, advise
from proxy.lab.replay.candidates import AS_IT_IS, AS_IT_WAS, AS_RECORDED, SEARCHED, Ground, default_names, in_words
from proxy.lab.replay.noise import BLOCK_REQUESTS, MIN_BLOCKS, Blocks, Difference, blocks, differences
from proxy.lab.replay.reading import Account, measured_means
from proxy.lab.replay.report import Check, Overload, Replayed, Row, tally
from proxy.lab.replay.rounds import Run, Tell, crew, with_numbers
from proxy.lab.replay.traffic import Traffic


def replay(
    ground: Ground,
    traffic: Traffic,
    account: Account | None,
    *,
    source: str,
    names: Sequence[str] | None,
    jobs: int,
    resamples: int,
    tell: Tell,
) -> Replayed:
    """Everything that is told of this traffic on this ground. `names` None tries the usual ways; `account` is None for
    a trace, of which nobody knows what became of it. Raises `ConfigError` for a name that means nothing."""
    asked = names or default_names(ground.settings.placement)
    for name in asked:
        if name not in SEARCHED:
            ground.candidate(name)  # refused before minutes are spent on the others
    lived = _lived(ground, traffic)
    with crew(ground, traffic, jobs, tell) as staff:
        present, *before = staff.runs([AS_IT_IS, *lived])
        found = [present, *staff.runs(with_numbers(asked, staff, sum(present.times.most.values())))]
    counted = traffic.counted
    overloads = [_overload(run, traffic) for run in found]
    sums = _blocks(found, traffic, counted)
    told = _differences(sums, overloads, resamples)
    rows = tuple(
        Row(run.candidate.name, tally(run.times, counted), difference, run.candidate.routing, overload)
        for run, difference, overload in zip(found, told, overloads, strict=True)
    )
    check = _check(ground, traffic, [present, *before]) if before else None
    advice = advise(
        [Found(row.name, row.tally.mean_e2e_s, row.difference, row.routing, row.overload is None) for row in rows],
        None if sums.enough else MIN_BLOCKS * BLOCK_REQUESTS * rows[0].tally.mean_e2e_s,
        None if check is None else check.ratio,
        traffic.requests[-1].at_s - traffic.requests[0].at_s,
    )
    engines = (f"{ground.engines.source}, {ground.settings.placement} GPUs", *ground.engines.notes)
    return Replayed(source, traffic, account, engines, check, rows, advice, len(sums.counts), sums.length_s)


def _lived(ground: Ground, traffic: Traffic) -> list[str]:
    """What is run besides to hold the simulation against life; nothing where life is not known."""
    if any(came.was is None for came in traffic.requests):
        return []
    return [AS_RECORDED] if ground.was is None else [AS_IT_WAS, AS_RECORDED]


def _overload(run: Run, traffic: Traffic) -> Overload | None:
    times, rows = run.times, traffic.requests
    return Overload(times.left_open, times.after_s) if times.overloaded(rows[-1].at_s - rows[0].at_s) else None


def _differences(sums: Blocks, overloads: Sequence[Overload | None], resamples: int) -> list[Difference]:
    """Each way against the present one, as far as both carry what came: the times of others are none to compare, and
    would widen the intervals of all."""
    found = [Difference(nan)] * len(overloads)
    if overloads[0] is not None:
        return found
    carried = [place for place, overload in enumerate(overloads) if overload is None]
    for place, one in zip(carried, differences(replace(sums, sums=sums.sums[carried]), 0, resamples), strict=True):
        found[place] = one
    return found


def _blocks(found: Sequence[Run], traffic: Traffic, counted: Sequence[int]) -> Blocks:
    came_s = [traffic.requests[place].at_s for place in counted]
    times = [[run.times.e2e_s[place] for place in counted] for run in found]
    return blocks(came_s, times, sum(times[0]) / len(counted))


def _check(ground: Ground, traffic: Traffic, runs: Sequence[Run]) -> Check:
    """`runs` are the present way, what was in force where that is another, and each request where it went."""
    *in_force, recorded = runs
    counted, share = traffic.counted, traffic.share_in_force
    words = in_words(ground.was or ground.settings)
    return Check(
        words if share > 0.99 else f"{words}, for {share:.0%} of them",
        measured_means(traffic),
        tally(in_force[-1].times, counted),
        tally(recorded.times, counted),
    )
