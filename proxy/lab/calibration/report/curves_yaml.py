"""What a calibration puts into `curves.yaml`: its speeds and verdicts as routing has them. The form of the file is in
lab/speeds_file.py."""

from collections.abc import Iterator

from proxy import __version__
from proxy.lab import speeds_file
from proxy.lab.calibration.advice.choices import ARM_OF, speed_curve
from proxy.lab.calibration.advice.proposal import placement_of
from proxy.lab.calibration.values import Arm, ContextFindings, Findings
from proxy.lab.calibration.words import counted, listed
from proxy.routing.curves import ContextCurves, Curves


def text(findings: Findings) -> str | None:
    """The whole file; None where no speed was measured, since a file without curves is refused."""
    curves = curves_of(findings)
    return None if curves is None else speeds_file.text(curves, list(_comments(findings)))


def curves_of(findings: Findings) -> Curves | None:
    """What was measured, as routing has it; None where no speed was.

    Contexts of which one backend lacks are left out where any has both: policies cannot place by half of a pair.
    """
    rising = sorted(findings.main, key=lambda context: context.condition.context_tokens)
    known = [one for one in (_context(findings, each) for each in rising) if one.speculative or one.baseline]
    whole = [context for context in known if context.speculative and context.baseline]
    if not known:
        return None
    facts = {role: findings.facts[arm] for role, arm in ARM_OF.items() if arm in findings.facts}
    models = (findings.facts[arm].model for arm in Arm if arm in findings.facts)
    return Curves(
        tuple(whole or known),
        findings.measured_at,
        placement_of(findings),
        next((model for model in models if model), None),
        {role: one.version for role, one in facts.items() if one.version is not None},
    )


def _context(findings: Findings, context: ContextFindings) -> ContextCurves:
    tokens = context.condition.context_tokens
    prefills = {one.arm: one.tok_s for one in findings.prefills if one.context_tokens == tokens}
    speculative, baseline = (speed_curve(context.curves.get(arm, ())) for arm in ARM_OF.values())
    return ContextCurves(
        tokens,
        speculative,
        baseline,
        context.verdict,
        tuple(context.contrasts),
        (prefills.get(Arm.SPECULATIVE), prefills.get(Arm.BASELINE)),
    )


def _comments(findings: Findings) -> Iterator[str]:
    arms = [arm for arm in Arm if any(arm in context.curves for context in findings.main)]
    yield f"Written by crossover calibrate {__version__}: measured speeds of {listed(arms)}, output tok/s of each."
    cells = counted(len(findings.measurements), "cell")
    how = "in a quick run, partly predicted" if findings.quick else "in one calibration"
    yield f"From {cells} {how}{'' if findings.complete else ', which was not carried out to its end'}."
    yield "routing.curves_file names this file. Calibrate again after a change of model, engine or flags."
