"""What `crossover calibrate` says while it runs, at its end, and where nothing came of it. The report is elsewhere."""

import sys
import textwrap
from pathlib import Path

from proxy.lab.calibration.campaign import HOPELESS, Campaign, Standing
from proxy.lab.calibration.deciding.aim import least_budget_s
from proxy.lab.calibration.values import Findings

_BAR_WIDTH = 24


def tell(findings: Findings, files: list[Path], folder: Path) -> None:
    """The verdict, the proposal, the advice and where to read on, on standard output."""
    from proxy.lab.calibration.advice import advise  # noqa: PLC0415
    from proxy.lab.calibration.advice.proposal import propose  # noqa: PLC0415
    from proxy.routing.verdict import describe  # noqa: PLC0415

    say = sys.stdout.write
    for found in findings.main:
        predicted = " (partly predicted)" if found.predicted else ""
        say(f"{found.condition.context_tokens} tokens of context{predicted}: {describe(found.verdict)}\n")
    block = propose(findings).yaml()
    if block:
        say(f"Proposed:\n{textwrap.indent(block, '  ')}")
    for advice in advise(findings):
        say(f"- {advice.sentence}\n")
    for note in findings.notes:
        say(f"note: {note}\n")
    say(f"{folder / 'report.html'} has it all; {len(files)} files are in {folder}\n")
    sys.stdout.flush()


def last_faults(campaign: Campaign) -> str:
    """What made the last cells useless, in a few words."""
    last = campaign.measurements[-HOPELESS:]
    names = {f"{one.cell.arm}: {name}" for one in last for name in one.errors}
    names |= {f"{one.cell.arm}: other traffic" for one in last if one.disturbed}
    return ", ".join(sorted(names))


def explain_nothing(campaign: Campaign, *, interrupted: bool) -> None:
    """Why nothing came of a run, and what to do, on standard error."""
    if interrupted:
        sys.stderr.write("crossover calibrate: stopped before the first cell was measured\n")
        return
    if not campaign.measurements:
        aim = campaign.aim
        least = "two minutes" if aim.quick else f"{round(least_budget_s(aim))}s, or --quick"
        sys.stderr.write(
            f"crossover calibrate: not one cell fits into --budget {aim.budget_s:g}s; give it at least {least}\n"
        )
        return
    said = last_faults(campaign)
    sys.stderr.write(
        f"crossover calibrate: not one cell could be used ({said}); try one request by hand on each backend, and see "
        "that nothing else uses them; then begin anew with --again\n"
    )


def progress_line(standing: Standing) -> str:
    """One line that says where a run stands, under 100 characters."""
    done = min(1.0, standing.spent_s / standing.budget_s)
    filled = int(done * _BAR_WIDTH)
    left_s = max(0.0, standing.budget_s - standing.spent_s)
    line = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {standing.cells} cells, at most {_clock(left_s)} left"
    if standing.cell is None or standing.step is None:
        return line
    stage = standing.step.stage.value.replace("_", " ")
    return f"{line}; {stage}: {standing.cell.arm} at {standing.cell.concurrency}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
