"""The `routing:` block that follows from a calibration, in the words of today's configuration.

Where nothing is known nothing is proposed. What no configuration can carry out is in advice.py; taking
the block over is left to the operator.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from proxy.lab.calibration.advice import choices
from proxy.lab.calibration.advice.by_hand import by_hand
from proxy.lab.calibration.advice.choices import ARM_OF, Way
from proxy.lab.calibration.values import ContextFindings, Findings, RunningRouting
from proxy.lab.calibration.words import listed, percent
from proxy.model import Placement, Policy, Role
from proxy.routing.verdict import ROUNDING, Verdict, VerdictKind, describe

# Numbers in flight at which a split is told; the most that was measured is told as well.
_SHOWN = (1, 4, 16, 64)

# How far throughput has to fall behind its peak before a limit is proposed: less is what a cell differs by from
# itself on another day.
MIN_FALL = 0.05


@dataclass(frozen=True, slots=True)
class Proposal:
    """Keys of `routing:` to set, with the sentences they rest on; no keys where the running ones should stay.

    `max_in_flight` holds a role whose engine gets slower beyond that many sequences; `by_hand` the keys of the fixed
    rule that comes nearest.
    """

    routing: Mapping[str, object]
    because: tuple[str, ...]
    max_in_flight: Mapping[Role, int] = field(default_factory=dict)
    by_hand: Mapping[str, object] = field(default_factory=dict)

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
        """A unified diff from the running keys to the proposed ones; empty where they ask for the same."""
        now = _keys(running)
        limits = {role: most for role, most in self.max_in_flight.items() if running.max_in_flight.get(role) != most}
        if all(now.get(key) == value for key, value in self.routing.items()) and not limits:
            return ""
        before = Proposal(now, (), {role: n for role in limits if (n := running.max_in_flight.get(role)) is not None})
        after = Proposal({**now, **self.routing}, (), limits)
        lines = difflib.unified_diff(
            before.yaml().splitlines(keepends=True), after.yaml().splitlines(keepends=True), "running", "proposed"
        )
        return "".join(lines)


def propose(findings: Findings) -> Proposal:
    """What to configure, by the first context; the sentences say what changes with the others."""
    if not findings.main:
        return Proposal({}, ("Nothing was measured, so the routing stays as it is.",))
    context, placement = findings.main[0], placement_of(findings)
    fixed, because = by_hand(context, placement)
    routing: dict[str, object] = {}
    if fixed:
        routing = {"policy": Policy.AUTO.value, "curves_file": findings.curves_file}
        told = ", ".join(f"{key}: {value}" for key, value in fixed.items())
        because = (
            describe(context.verdict),
            *_auto(context, placement),
            f"By hand instead, without the curves: {told}.",
            *because,
        )
    said = (*because, *_left_out(findings), *_assumed(findings), *_other_contexts(findings))
    return Proposal(routing, said, _limits(context), fixed)


def placement_of(findings: Findings) -> Placement:
    """Whether the backends have GPUs of their own; separate where no configuration says so, as in the proxy."""
    return findings.running.placement if findings.running is not None else Placement.SEPARATE


def _auto(context: ContextFindings, placement: Placement) -> tuple[str, ...]:
    """What policy auto does with these curves, in numbers."""
    speeds, totals = choices.speeds_of(context, placement), choices.totals_of(context, placement)
    if placement is Placement.SHARED:
        return (
            "With these curves policy auto keeps to one backend at a time, the one that serves the demand of the "
            "moment sooner, and changes it only where that is worth the change (policy consolidate).",
        )
    filled = speeds.marginal(totals[-1])
    shown = [n for n in totals if n in _SHOWN or n == totals[-1]]
    rows = choices.at(context, totals, placement)
    single = choices.best_single(rows)
    lead = choices.gains(rows, Way.MARGINAL, single) if single is not None else None
    said = (
        "With these curves policy auto places each request where it delays all others least (policy marginal): of "
        f"{listed(shown)} in flight {listed(filled[n] for n in shown)} on speculative.",
    )
    if lead is None or single is None:
        return said
    return (
        *said,
        f"Beside {single.removeprefix('only ')} alone, which has half of the GPUs, a request is {percent(lead.mean)} "
        f"faster on average over the loads, at most {percent(lead.most)} (at {lead.most_at} in flight).",
    )


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


def _left_out(findings: Findings) -> tuple[str, ...]:
    """Contexts of which curves.yaml lacks one backend: policies that place by curves refuse such a file."""
    lacking = [one for one in findings.main if not choices.speeds_of(one, Placement.SEPARATE).whole]
    if not lacking:
        return ()
    names = listed(one.condition.context_tokens for one in lacking)
    return (f"At {names} tokens of context only one backend was measured, so the curves leave that out.",)


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
        **({} if running.curves_file is None else {"curves_file": running.curves_file}),
    }
