"""The rule with fixed numbers that comes nearest to what was measured, for those who set their routing by hand.

Placing by the curves themselves is policy `auto` (proposal.py); a fixed rule knows no load but the one it was made for.
"""

from proxy.lab.calibration.advice import choices
from proxy.lab.calibration.advice.choices import Choice, Speeds, Way
from proxy.lab.calibration.values import ContextFindings
from proxy.lab.calibration.words import counted, ended, percent
from proxy.model import Placement, Policy, Role
from proxy.routing.verdict import Band, Verdict, VerdictKind, band


def by_hand(context: ContextFindings, placement: Placement) -> tuple[dict[str, object], tuple[str, ...]]:
    """Keys of `routing:` and what is to be said of them; no keys where nothing follows from what was measured."""
    speeds = choices.speeds_of(context, placement)
    totals = choices.totals_of(context, placement)
    verdict = context.verdict
    if verdict.kind is VerdictKind.UNKNOWN or not speeds.whole or not totals:
        why = verdict.reason or "the backends were not both measured"
        return {}, (f"Leave the routing as it is: {ended(why)}",)
    shared = placement is Placement.SHARED
    if verdict.kind is VerdictKind.NEVER_SPECULATE:
        return _pinned(Role.BASELINE), ()
    if shared and verdict.kind is VerdictKind.ALWAYS_SPECULATE:
        return _pinned(Role.SPECULATIVE), ()
    return _shared(context, speeds, totals) if shared else _separate(context, speeds, totals)


def _shared(
    context: ContextFindings, speeds: Speeds, totals: tuple[int, ...]
) -> tuple[dict[str, object], tuple[str, ...]]:
    found = band(context.contrasts, context.verdict)
    rows = choices.at(context, totals, Placement.SHARED, leave_at=None if found is None else found.leave_at)
    if found is None:
        return _alone(rows, context.verdict)
    return _threshold(found), (
        f"From {found.enter_at} to {found.leave_at} in flight the two hardly differ: a change of regime there gains "
        "nothing, so that is the band.",
        *(_lost(rows, Way.THRESHOLD, context.verdict) if len(context.verdict.crossings) > 1 else ()),
    )


def _separate(
    context: ContextFindings, speeds: Speeds, totals: tuple[int, ...]
) -> tuple[dict[str, object], tuple[str, ...]]:
    leave_at = choices.best_overflow(speeds, totals)
    rows = choices.at(context, totals, Placement.SEPARATE, overflow_at=leave_at)
    if context.verdict.crossings and not choices.crosses_down(context.verdict):
        single = choices.best_single(rows)
        lead = choices.gains(rows, single, Way.OVERFLOW) if single is not None else None
        if lead is not None and lead.mean > 0:
            return _alone(rows, context.verdict)
    lost = choices.gains(rows, Way.MARGINAL, Way.OVERFLOW)
    said: tuple[str, ...] = (
        f"With GPUs of their own the best limit is where the next request delays all others least and not the "
        f"crossover: {leave_at} on speculative serves best over {totals[0]} to {totals[-1]} in flight.",
    )
    if lost is not None:
        said += (
            f"With one fixed limit a token takes {percent(lost.mean)} longer than when each request is placed by the "
            f"curves, at most {percent(lost.most)} (at {lost.most_at} in flight).",
        )
    return {"policy": Policy.OVERFLOW.value, "leave_at": leave_at}, said


def _alone(rows: tuple[Choice, ...], verdict: Verdict) -> tuple[dict[str, object], tuple[str, ...]]:
    """Where speculation pays only above some number in flight: the backend that serves better over all of them."""
    role, way = Role.BASELINE, Way.ONLY_BASELINE
    if choices.best_single(rows) is Way.ONLY_SPECULATIVE:
        role, way = Role.SPECULATIVE, Way.ONLY_SPECULATIVE
    return _pinned(role), (
        f"No fixed rule speculates only above a number in flight, and {role} alone is the better one over all.",
        *_lost(rows, way, verdict),
    )


def _lost(rows: tuple[Choice, ...], way: Way, verdict: Verdict) -> tuple[str, ...]:
    """What one change of regime leaves lying where there are more crossings, or one the other way."""
    lost = choices.gains(rows, Way.CONSOLIDATE, way)
    if lost is None or lost.most <= 0:
        return ()
    crossings = counted(len(verdict.crossings), "crossing")
    said = (
        f"There is {crossings}" if len(verdict.crossings) == 1 else f"There are {crossings}"
    ) + f", and {way} cannot follow: a token takes {percent(lost.most)} longer than on the better backend at "
    single = choices.best_single(rows)
    other = choices.gains(rows, Way.CONSOLIDATE, single) if single is not None and single is not way else None
    said += f"{lost.most_at} in flight, {percent(lost.mean)} on average"
    return (said + (f" ({single}: {percent(other.mean)})." if other is not None else "."),)


def _pinned(role: Role) -> dict[str, object]:
    return {"policy": Policy.PINNED.value, "pin": role.value}


def _threshold(found: Band) -> dict[str, object]:
    return {"policy": Policy.THRESHOLD.value, "leave_at": found.leave_at, "enter_at": found.enter_at}
