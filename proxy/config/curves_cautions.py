"""Where the settings go against what was measured: allowed, and worth a word with its mend. Nothing is refused here."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, log

from proxy.config.settings import Settings
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Policy, Role
from proxy.routing.curves import ContextCurves, Curves
from proxy.routing.rules import Rules
from proxy.routing.verdict import Crossing, VerdictKind, band, describe

# leave_at may lie beyond the interval of the crossover by this factor before it is called far from it: near it the two
# are about as fast, and the right place also depends on what the operator wants.
FAR = 2.0


def contradictions(settings: Settings) -> tuple[str, ...]:
    """What in placement and routing contradicts the curves that the settings name; empty without curves."""
    curves = settings.sources.curves
    if curves is None:
        return ()
    rules = settings.rules()
    return (*_placement(settings, curves), *_gaps(rules, curves), *_policy(rules, _known(curves)))


def outdated(curves: Curves | None, running: Mapping[Role, str | None]) -> tuple[str, ...]:
    """Where an engine's version is not the one that was measured; `running` are the versions that engines tell."""
    if curves is None:
        return ()
    return tuple(
        f"routing.curves_file: the {role} engine is version {running[role]}, and its speeds were measured with "
        f"{curves.versions[role]}; mend: calibrate again"
        for role in ROLES
        if running.get(role) and curves.versions.get(role) and running[role] != curves.versions[role]
    )


def _placement(settings: Settings, curves: Curves) -> Iterator[str]:
    if settings.placement is not curves.placement:
        yield (
            f"routing.curves_file: was written for placement {curves.placement}, and placement is "
            f"{settings.placement}; the speeds hold, what was advised may not; mend: calibrate again"
        )


def _gaps(rules: Rules, curves: Curves) -> Iterator[str]:
    if rules.policy is Policy.AUTO and curves.gaps:
        role, tokens = curves.gaps[0]
        yield (
            f"routing.curves_file: has no speeds of the {role} backend at {tokens} tokens of context, so policy auto "
            f"takes {rules.effective_policy}; mend: calibrate both backends"
        )


def _known(curves: Curves) -> list[ContextCurves]:
    return [each for each in curves.contexts if each.verdict.kind is not VerdictKind.UNKNOWN]


def _policy(rules: Rules, known: Sequence[ContextCurves]) -> Iterator[str]:
    """Policies that follow the curves need no word; the others, which look at no context, only where every bucket that
    has a verdict says so."""
    kinds = {each.verdict.kind for each in known}
    if rules.effective_policy in (Policy.MARGINAL, Policy.CONSOLIDATE):
        yield from _misplaced(rules)
    elif kinds == {VerdictKind.NEVER_SPECULATE}:
        yield from _never(rules)
    elif kinds == {VerdictKind.ALWAYS_SPECULATE}:
        yield from _always(rules)
    elif VerdictKind.CROSSOVER_AT in kinds and rules.effective_policy is not Policy.PINNED:
        yield from _crossover(rules, [each for each in known if each.verdict.crossings])


def _misplaced(rules: Rules) -> Iterator[str]:
    apart = rules.placement is Placement.SEPARATE
    if apart and rules.effective_policy is Policy.CONSOLIDATE:
        yield (
            "routing.policy: consolidate uses one backend at a time, and placement is separate, where the GPUs of the "
            "other stand idle so; mend: set policy: auto"
        )
    elif not apart and rules.effective_policy is Policy.MARGINAL:
        yield (
            "routing.policy: marginal takes each backend to have GPUs of its own, and placement is shared, where two "
            "busy backends slow each other down; mend: set policy: auto"
        )


def _following(rules: Rules) -> str:
    """The mend that goes before every other: to route by the curves, where they are there to be followed."""
    return "" if rules.policy is Policy.AUTO else "set policy: auto, which follows the curves, or "


def _never(rules: Rules) -> Iterator[str]:
    said = "although it was never measured to be the faster one (routing.curves_file)"
    second = "run that instance without speculation, as a second baseline"
    pin = "set policy: pinned and pin: baseline"
    if rules.effective_policy is not Policy.PINNED:
        mend = _following(rules) + (pin if rules.placement is Placement.SHARED else f"{second}, or {pin}")
        policy = rules.effective_policy
        yield f"routing.policy: {policy} sends requests to the speculative backend, {said}; mend: {mend}"
    elif rules.pin is SPECULATIVE:
        yield f"routing.pin: speculative sends everything to the speculative backend, {said}; mend: set pin: baseline"


def _always(rules: Rules) -> Iterator[str]:
    said = "although it was never measured to be the faster one (routing.curves_file)"
    if rules.effective_policy is Policy.THRESHOLD:
        mend = f"{_following(rules)}set policy: pinned and pin: speculative"
        yield f"routing.policy: threshold moves to baseline from leave_at ({rules.leave_at}) on, {said}; mend: {mend}"
    elif rules.effective_policy is Policy.PINNED and rules.pin is BASELINE:
        yield f"routing.pin: baseline sends everything to the baseline backend, {said}; mend: set pin: speculative"


def _crossover(rules: Rules, crossed: Sequence[ContextCurves]) -> Iterator[str]:
    first = [each.verdict.crossings[0] for each in crossed]
    if all(each.faster_above is SPECULATIVE for each in first):
        yield (
            f"routing.policy: {rules.effective_policy} speculates while few run, and the measured order is the reverse "
            f"({describe(crossed[0].verdict)}); mend: {_following(rules)}set policy: pinned and pin to what is faster "
            "at your load"
        )
        return
    down = [(each, found) for each in crossed if (found := _overtaken(each)) is not None]
    if not all(_is_far(rules, crossing) for _, crossing in down):
        return
    context, crossing = min(down, key=lambda each: abs(log(each[1].at / rules.leave_at)))
    where = f"{crossing.low:g} to {crossing.high:g} in flight at {context.context_tokens} tokens of context"
    yield (
        f"routing.leave_at: {rules.leave_at} is far from where baseline was measured to overtake, {where}; "
        f"mend: {_following(rules)}set {_nearer(rules, context, crossing)}"
    )


def _overtaken(context: ContextCurves) -> Crossing | None:
    """Where baseline first becomes the faster one."""
    return next((each for each in context.verdict.crossings if each.faster_above is BASELINE), None)


def _is_far(rules: Rules, crossing: Crossing) -> bool:
    """`overflow` counts what is on the speculative backend alone, and is often best well below the crossover."""
    low = rules.effective_policy is Policy.THRESHOLD and rules.leave_at * FAR < crossing.low
    return low or rules.leave_at > crossing.high * FAR


def _nearer(rules: Rules, context: ContextCurves, crossing: Crossing) -> str:
    found = band(context.contrasts, context.verdict)
    if found is None or rules.effective_policy is not Policy.THRESHOLD:
        return f"leave_at: {ceil(crossing.at)}"
    return f"leave_at: {found.leave_at} and enter_at: {found.enter_at}"
