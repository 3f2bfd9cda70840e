"""The run: instances up, curves measured, every trial in turn, and a report after each, so that a cut run has one.

What a run is asked for is in options.py; scripts/gpu_pair --help. The same command goes on where it was cut: curves and
trials that are in the folder are not measured again.
"""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from pair import calibrating, figures, instances, report, trial, warming
from pair.arms import Trial, trials
from pair.arrivals import Step
from pair.instances import Instance, NotUp
from pair.limits import Limits, limits, peak_tok_s
from pair.options import Options, parsed

from proxy.model import Placement
from proxy.routing.curves import ContextCurves

OK, FAILED, _TERMINATED = 0, 1, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    options = parsed(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        _measure(options)
    except NotUp as error:
        say(f"failed: {error}")
        return FAILED
    return OK


def _measure(options: Options) -> None:
    wanted = instances.instances(options)
    needed = _needed(options, wanted)
    say(f"starting {', '.join(one.name for one in needed) or 'nothing: all is measured'}")
    with instances.started(needed, options.out / "logs", options.start_within_s) as up:
        models = {name: instances.model_of(one.url) for name, one in up.items()}
        for name, one in up.items():
            failed = warming.warm(one.url, models[name], options.concurrency, options.prompts)
            say(f"{name} is warm{f', {failed} requests failed' if failed else ''}")
        path = calibrating.curves_of(options, up)
        context, numbers = _decided(options, path)
        say(f"curves in {path}")
        told = report.told_before(options.out) | _told(up)
        facts = report.Facts(wanted, told, options, context, steps_of(options, context), numbers)
        report.write(facts)
        for one in trials(options, up, numbers, path):
            _try(one, models[one.engines[0].name], facts)
            facts.told.update(_told(up))
            report.write(facts)


def _needed(options: Options, wanted: Sequence[Instance]) -> list[Instance]:
    """Those of which a trial is missing; all of them where the curves are."""
    path = calibrating.known(options)
    if path is None:
        return list(wanted)
    all_up = {one.name: one for one in wanted}
    missing = [
        one for one in trials(options, all_up, _decided(options, path)[1], path) if not _kept(one, options).exists()
    ]
    names = {engine.name for one in missing for engine in one.engines}
    return [one for one in wanted if one.name in names]


def _decided(options: Options, path: Path) -> tuple[ContextCurves, dict[Placement, Limits]]:
    """The curves in a file that the load is about, and the numbers that follow for each placement."""
    context = calibrating.read(path).at_context(options.context)
    return context, {placement: limits(context, placement) for placement in options.placements}


def _kept(one: Trial, options: Options) -> Path:
    return options.out / "trials" / f"{one.key}.json"


def steps_of(options: Options, context: ContextCurves) -> tuple[Step, ...]:
    """The loads of every trial, one after another."""
    peak = peak_tok_s(context)
    rates = options.rates or tuple(share * peak / options.tokens for share in options.loads)
    return tuple(Step(rate, options.step_s) for rate in rates)


def _told(up: Mapping[str, Instance]) -> dict[str, dict[str, Any]]:
    return {name: instances.facts_of(one.url) for name, one in up.items()}


def _try(one: Trial, model: str, facts: report.Facts) -> None:
    """Make a trial and keep it, unless its result is there. One that fails does not keep others from being made."""
    options, kept = facts.options, _kept(one, facts.options)
    if kept.exists():
        return
    kept.parent.mkdir(exist_ok=True)
    began_s = time.monotonic()
    try:
        outcome = trial.run(one, options, facts.steps, model, options.out / "proxy")
    except NotUp as error:
        say(f"{one.key} failed: {error}")
        return
    (kept.parent / f"{one.key}.jsonl").write_text("".join(f"{line}\n" for line in outcome.lines))
    seen = {"began_at_s": outcome.began_at_s, "journal": outcome.journal, "history": outcome.history}
    if one.config:
        (options.out / "proxy" / f"{one.key}.seen.json").write_text(json.dumps(seen))
    found = {
        "arm": one.arm,
        "placement": one.placement,
        "routing": one.config.get("routing"),
        "engines": [engine.name for engine in one.engines],
        "all": asdict(figures.of_all(outcome.requests, facts.steps)),
        "steps": [asdict(each) for each in figures.of_steps(outcome.requests, facts.steps)],
        "left_in_flight": outcome.left,
        "idle_after_s": outcome.idle_after_s,
        "proxy_cpu": outcome.proxy_cpu,
        "status": outcome.status,
        "curves": outcome.curves,
        "changes": _changes(outcome, facts.steps),
    }
    kept.write_text(json.dumps(found, indent=1))
    say(f"{one.key}: {time.monotonic() - began_s:.0f} s, {report.in_a_line(found)}")


def _changes(outcome: trial.Outcome, steps: Sequence[Step]) -> list[dict[str, Any]]:
    if outcome.journal is None or outcome.began_at_s is None:
        return []
    found = figures.changes(outcome.journal.get("events", ()), steps, outcome.began_at_s)
    return [asdict(each) for each in found]


def say(words: str) -> None:
    """Tell whoever watches."""
    print(words, flush=True)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
