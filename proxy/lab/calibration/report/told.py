"""What a report says in words, made once for the page and the Markdown. How it is laid out is theirs."""

from dataclasses import dataclass

from proxy.lab.calibration.advice import Advice, advise
from proxy.lab.calibration.advice.proposal import Proposal, placement_of, propose
from proxy.lab.calibration.values import Arm, ContextFindings, Findings
from proxy.lab.calibration.words import counted, ended, listed, seconds, times
from proxy.model import Placement
from proxy.routing.verdict import Contrast, describe


@dataclass(frozen=True, slots=True)
class Told:
    """The sentences, the proposal and the advice of one calibration.

    `because` is what the proposal rests on besides the headline. `warnings` say what weakens it: an end before the
    plan's, predictions, cells that were cut.
    """

    headline: str
    subject: str
    warnings: tuple[str, ...]
    proposal: Proposal
    because: tuple[str, ...]
    diff: str
    advice: tuple[Advice, ...]
    placement: Placement
    contrasts: tuple[Contrast, ...]

    def of(self, context: ContextFindings) -> str:
        """The verdict of one context in a sentence."""
        return describe(context.verdict)

    def beside(self, context: ContextFindings) -> str:
        """What a side condition gives, next to what the main one does at the same concurrencies."""
        main = {one.concurrency: one for one in self.contrasts}
        told = [
            f"{times(one.log_ratio)} at {one.concurrency:g}"
            + (f" ({times(main[one.concurrency].log_ratio)})" if one.concurrency in main else "")
            for one in context.contrasts
        ]
        if not told:
            return "Both were not measured at one concurrency here."
        return f"Speculative gives {listed(told)} of baseline's speed here; in brackets the main condition."


def tell(findings: Findings) -> Told:
    """All the words; the first context gives the headline."""
    proposal = propose(findings)
    headline = describe(findings.main[0].verdict) if findings.main else "Nothing was measured."
    return Told(
        headline=headline,
        subject=_subject(findings),
        warnings=_warnings(findings),
        proposal=proposal,
        because=tuple(sentence for sentence in proposal.because if sentence != headline),
        diff=proposal.diff(findings.running) if findings.running is not None else "",
        advice=advise(findings),
        placement=placement_of(findings),
        contrasts=findings.main[0].contrasts if findings.main else (),
    )


def _subject(findings: Findings) -> str:
    arms = [arm.value for arm in Arm if arm in findings.facts]
    told = f"Measured at {findings.measured_at} in {seconds(findings.spent_s)}"
    told += f", {counted(len(findings.measurements), 'cell')}"
    if arms:
        told += f", arms {listed(arms)}"
    return f"{told}; backends with {_gpus(findings)}."


def _gpus(findings: Findings) -> str:
    return "GPUs of their own" if placement_of(findings) is Placement.SEPARATE else "shared GPUs"


def _warnings(findings: Findings) -> tuple[str, ...]:
    found = []
    if not findings.complete:
        found.append("The plan was not carried out to its end; the verdict rests on what was measured until then.")
    if any(context.predicted for context in (*findings.main, *findings.side)):
        found.append("Speeds marked with ~ were predicted by the speculation law and not measured.")
    elif findings.quick:
        found.append("A quick run: few repeats, so small differences stay hidden.")
    if findings.measurements and not any(one.usable for one in findings.measurements):
        found.append("No cell was usable.")
    return tuple(found) + tuple(ended(note) for note in findings.notes)
