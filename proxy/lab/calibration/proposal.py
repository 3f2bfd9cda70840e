"""The `routing:` block that follows from a calibration, in the words of today's configuration.

Where nothing is known nothing is proposed. What no configuration can carry out is in advice.py; taking
the block over is left to the operator.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from proxy.lab.calibration import choices
from proxy.lab.calibration.choices import ARM_OF, Choice, Speeds, Way
from proxy.lab.calibration.values import Arm, ContextFindings, Findings, RunningRouting
from proxy.lab.calibration.words import counted, ended, listed, percent, speed
from proxy.model import Placement, Policy, Role
from proxy.routing.verdict import ROUNDING, Band, Verdict, VerdictKind, band, describe

CURVES_FILE = "curves.yaml"

# How far throughput has to fall behind its peak before a limit is proposed: less is what a cell differs by from
# itself on another day.
MIN_FALL = 0.05


@dataclass(frozen=True, slots=True)
class Proposal:
    """Keys of `routing:` to set, with the sentences they rest on; no keys where the running ones should stay.

    `max_in_flight` holds a role whose engine gets slower beyond that many sequences.
    """

    routing: Mapping[str, object]
    because: tuple[str, ...]
    max_in_flight: Mapping[Role, int] = field(default_factory=dict)

    def yaml(self) -> str:
        """The blocks as they stand in the configuration file; a comment alone where nothing is proposed."""
        lines = ["routing:", *(f"  {key}: {value}" for key, value in self.routing.items())] if self.routing else []
        if self.max_in_flight:
            lines.append("backends:")
        for role, most in self.max_in_flight.items():
            lines += [f"  {role}:", f"    max_in_flight: {most}"]
        if not lines:
            lines = ["# routing: as it is"]
        return "\n".join(lines) + "\n"

    def diff(self, running: RunningRouting) -> str:
        """A unified diff from the running keys to the proposed ones; empty where they ask for the same.

        `auto` counts as the policy it stands for. Which curves are in use now is not known, so `curves_file` is told
        only beside something else that changes.
        """
        now = _keys(running)
        asked = {key: value for key, value in self.routing.items() if key != "curves_file"}
        if now["policy"] == Policy.AUTO and asked.get("policy") == _automatic(running.placement):
            asked["policy"] = now["policy"]
        limits = {role: most for role, most in self.max_in_flight.items() if running.max_in_flight.get(role) != most}
        if all(now[key] == value for key, value in asked.items()) and not limits:
            return ""
        before = Proposal(now, (), {role: n for role in limits if (n := running.max_in_flight.get(role)) is not None})
        after = Proposal({**now, **self.routing, **asked}, (), limits)
        lines = difflib.unified_diff(
            before.yaml().splitlines(keepends=True), after.yaml().splitlines(keepends=True), "running", "proposed"
        )
        return "".join(lines)


def propose(findings: Findings) -> Proposal:
    """What to configure, by the first context; the sentences say what changes with the others."""
    if not findings.main:
        return Proposal({}, ("Nothing was measured, so the routing stays as it is.",))
    context, placement = findings.main[0], placement_of(findings)
    routing, because = _by_verdict(context, placement)
    if routing:
        routing = {**routing, **_kept_apart(routing, findings.running), "curves_file": CURVES_FILE}
    return Proposal(routing, (*because, *_assumed(findings), *_other_contexts(findings)), _limits(context))


def placement_of(findings: Findings) -> Placement:
    """Whether the backends have GPUs of their own; separate where no configuration says so, as in the proxy."""
    return findings.running.placement if findings.running is not None else Placement.SEPARATE


def _by_verdict(context: ContextFindings, placement: Placement) -> tuple[dict[str, object], tuple[str, ...]]:
    speeds = choices.speeds_of(context, placement)
    totals = choices.totals_of(context, placement)
    verdict = context.verdict
    if verdict.kind is VerdictKind.UNKNOWN or not speeds.whole or not totals:
        why = verdict.reason or "the backends were not both measured"
        return {}, (f"Leave the routing as it is: {ended(why)}",)
    shared = placement is Placement.SHARED
    if verdict.kind is VerdictKind.NEVER_SPECULATE:
        return _pinned(Role.BASELINE), (describe(verdict), *(() if shared else _unused(speeds, totals)))
    if shared and verdict.kind is VerdictKind.ALWAYS_SPECULATE:
        return _pinned(Role.SPECULATIVE), (describe(verdict),)
    return _shared(context, speeds, totals) if shared else _separate(context, speeds, totals)


def _shared(
    context: ContextFindings, speeds: Speeds, totals: tuple[int, ...]
) -> tuple[dict[str, object], tuple[str, ...]]:
    found = band(context.contrasts, context.verdict)
    rows = choices.at(context, totals, Placement.SHARED, leave_at=None if found is None else found.leave_at)
    if found is None:
        return _alone(rows, context.verdict)
    return _threshold(found), (
        describe(context.verdict),
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
        describe(context.verdict),
        f"Each has its own GPUs, so the best limit is where the next request delays all others least and not the "
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
        describe(verdict),
        f"No fixed limit lets speculation begin only above a number in flight, and {role} alone is the better one over "
        "all; policy auto follows these curves.",
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


def _unused(speeds: Speeds, totals: tuple[int, ...]) -> tuple[str, ...]:
    """What the pinned backend's neighbour could still give, since its GPUs are there anyway."""
    total, leave_at = totals[-1], choices.best_overflow(speeds, totals)
    alone = speeds.split(Way.ONLY_BASELINE, 0, total)
    both = speeds.split(Way.OVERFLOW, min(leave_at, total), total - min(leave_at, total))
    filled = speeds.marginal(total)[total]
    best = speeds.split(Way.MARGINAL, filled, total - filled)
    return (
        f"The speculative backend has GPUs of its own, which stand idle so. As mere capacity they would give {total} "
        f"in flight {speed(both.tok_s)} tok/s by policy overflow with leave_at {leave_at}, or {speed(best.tok_s)} if "
        f"filled by the curves, instead of {speed(alone.tok_s)}; but a request that is alone would get "
        f"{speed(speeds.tok_s(Arm.SPECULATIVE, 1))} instead of {speed(speeds.tok_s(Arm.BASELINE, 1))} tok/s.",
    )


def _pinned(role: Role) -> dict[str, object]:
    return {"policy": Policy.PINNED.value, "pin": role.value}


def _threshold(found: Band) -> dict[str, object]:
    return {"policy": Policy.THRESHOLD.value, "leave_at": found.leave_at, "enter_at": found.enter_at}


def _kept_apart(routing: Mapping[str, object], running: RunningRouting | None) -> dict[str, object]:
    """`enter_at: auto` where the running one would no longer lie below the proposed leave_at, which is refused."""
    leave_at = routing.get("leave_at")
    if running is None or "enter_at" in routing or not isinstance(leave_at, int) or running.enter_at < leave_at:
        return {}
    return {"enter_at": "auto"}


def _limits(context: ContextFindings) -> dict[Role, int]:
    """Where an engine got slower beyond its peak, by more than either interval and MIN_FALL."""
    limits = {}
    for role, arm in ARM_OF.items():
        points = [point for point in context.curves.get(arm, ()) if not point.predicted and point.tok_s > 0]
        if len(points) < 2:
            continue
        peak, last = max(points, key=lambda point: point.tok_s), points[-1]
        apart = peak.low is not None and last.high is not None and last.high < peak.low
        if apart and last.tok_s < (1 - MIN_FALL) * peak.tok_s:
            limits[role] = peak.concurrency
    return limits


def _assumed(findings: Findings) -> tuple[str, ...]:
    if findings.running is not None:
        return ()
    return ("No configuration said the placement: GPUs of their own for both backends are assumed.",)


def _other_contexts(findings: Findings) -> tuple[str, ...]:
    first, *others = findings.main
    if not others:
        return ()
    told = listed(f"{pays(each.verdict)} at {each.condition.context_tokens}" for each in others)
    return (f"This holds for a context of {first.condition.context_tokens} tokens. Speculation pays {told} tokens.",)


def pays(verdict: Verdict) -> str:
    """Where speculation pays, in a few words: `up to 5 in flight`, `never`."""
    if verdict.kind is not VerdictKind.CROSSOVER_AT or not verdict.crossings:
        words = {VerdictKind.NEVER_SPECULATE: "never", VerdictKind.ALWAYS_SPECULATE: "always"}
        return words.get(verdict.kind, "in unknown places")
    first, *more = verdict.crossings
    falls = first.faster_above is Role.BASELINE
    # The verdict names the first whole number from which the other one is faster.
    number = ceil(first.at - ROUNDING) - falls
    return f"{'up to' if falls else 'from'} {number} in flight" + (f" (of {len(more) + 1} crossings)" if more else "")


def _keys(running: RunningRouting) -> dict[str, object]:
    return {
        "policy": str(running.policy),
        "leave_at": running.leave_at,
        "enter_at": running.enter_at,
        "pin": running.pin.value,
    }


def _automatic(placement: Placement) -> str:
    return Policy.OVERFLOW.value if placement is Placement.SEPARATE else Policy.THRESHOLD.value
