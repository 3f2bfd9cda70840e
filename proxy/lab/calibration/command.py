"""`crossover calibrate`: its options, and how it goes from them to a folder of results. What it says: telling.py."""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar

from proxy import config
from proxy.config import Settings
from proxy.errors import ConfigError, CrossoverError
from proxy.lab.calibration.campaign import HOPELESS, Campaign
from proxy.lab.calibration.deciding.aim import DEFAULT_BUDGET_S, DEFAULT_CONCURRENCIES, Aim
from proxy.lab.calibration.deciding.quick import QUICK_BUDGET_S, QUICK_CONCURRENCIES
from proxy.lab.calibration.deciding.sense import refuse_nonsense
from proxy.lab.calibration.extra import need
from proxy.lab.calibration.record import Record, Run, alone, writing
from proxy.lab.calibration.resume import take_up
from proxy.lab.calibration.stand.http import ArmTarget, open_stand
from proxy.lab.calibration.telling import explain_nothing, last_faults, progress_line, tell
from proxy.lab.calibration.values import CURVES_FILE, Arm, ArmFacts, Measurement, Prefill, RunningRouting
from proxy.lab.demo import Demo
from proxy.lab.interrupt import EXIT_INTERRUPTED, progress, until_interrupted
from proxy.lab.options import duration_s, list_of, positive, server_url, token_counts
from proxy.lab.prompts import PromptKind
from proxy.model import ROLES, Role
from proxy.protocol.routes import EngineKind

Word = TypeVar("Word", PromptKind, Arm)

DEFAULT_OUT = Path("calibration")

# To the line's begin and empty: a progress line may stand there.
_WIPE = "\r\x1b[K"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `crossover calibrate` on a parser; `run` takes what it parsed."""
    add = parser.add_argument
    add("config", nargs="?", type=Path, metavar="CONFIG", help="YAML file with both backends; without it, a demo")
    add("--quick", action="store_true", help="in minutes: the baseline's curve, two probes, the rest predicted")
    add("--budget", type=duration_s, metavar="TIME", help="90s, 15m, 2h; default 1h, quick under 3m")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help="folder for all results (%(default)s)")
    add("--again", action="store_true", help="begin anew where the folder holds another or a finished run")
    add("--concurrency", type=list_of(int), metavar="N,N,...", help="requests in flight; default 1 to 250")
    add("--context", type=token_counts, default=(1024,), metavar="N,N,...", help="buckets, such as 1k,8k,32k (1k)")
    add(
        *("--prompts",),
        type=_kinds,
        default=(PromptKind.MIXED, PromptKind.PROSE),
        metavar="KIND,...",
        help=f"classes of prompts, the first for the verdict: {', '.join(PromptKind)} (mixed,prose)",
    )
    add("--max-tokens", type=positive(int), default=256, metavar="N", help="per answer (%(default)s)")
    add("--precision", type=positive(float), default=0.02, metavar="X", help="half an interval's width (%(default)s)")
    add("--arms", type=_arms, metavar="ARM,...", help="speculative,baseline,adaptive; default: those that have a URL")
    add("--adaptive-url", type=server_url, metavar="URL", help="an instance with the engine's own adaptive speculation")
    add("--curve", metavar="NAME", help="demo: the published curve that the embedded engines follow, or a file")


async def run(options: argparse.Namespace) -> int:
    """Calibrate and write the results; the exit code.

    0: the plan, or the time for it, came to its end. 1: nothing could be measured, and standard error says what to do.
    130: stopped by Ctrl-C or SIGTERM; what was measured until then is written, and the same command goes on from there.
    """
    try:
        need()
        aim = _aim(options)
        with alone(options.out):
            async with _settings(options) as settings:
                return await _calibrate(options, aim, settings)
    except CrossoverError as error:
        sys.stderr.write(f"crossover calibrate: {error.message}\n")
        return 1


async def _calibrate(options: argparse.Namespace, aim: Aim, settings: Settings) -> int:
    record = Record(options.out, again=options.again)
    targets = _targets(options, aim, settings)
    doubts: list[str] = []
    doubt = partial(_doubt, doubts)
    async with open_stand(targets, clock=monotonic, on_sample=record.add_request, on_doubt=doubt) as stand:
        facts = await stand.facts()
        refuse_nonsense(aim, facts)
        take_up(record, Run(aim, facts, _now()), again=options.again)
        campaign = Campaign(aim, stand, facts, record.measurements, _run_of(record).prefills)
        async with progress(lambda: progress_line(campaign.standing()), "calibrate-progress"):
            refused: list[CrossoverError] = []
            interrupted = await until_interrupted(_carried_out(campaign, record, refused), "calibrate")
        if interrupted:
            sys.stderr.write("stopping; what was measured is being written\n")
        await stand.rest()
    if refused:
        raise refused[0]
    record.note(replace(_run_of(record), spent_s=campaign.spent_s))
    code = _finish(options, aim, settings, campaign, facts, doubts=doubts, interrupted=interrupted)
    # Only now: a run that was killed as it wrote its results writes them when it is asked again.
    record.note(replace(_run_of(record), finished=code == 0))
    return code


async def _carried_out(campaign: Campaign, record: Record, refused: list[CrossoverError]) -> None:
    """Carry the plan out; what ends it goes to `refused`, as an error of a task would be told with its traceback."""
    try:
        await campaign.carry_out(partial(_keep, record), partial(_keep_prefills, record))
    except CrossoverError as error:
        refused.append(error)


def _doubt(doubts: list[str], sentence: str) -> None:
    """Keep what an engine says that cannot be for the report, and say it at once: an operator may mend it."""
    doubts.append(sentence)
    sys.stderr.write(f"{_WIPE}{sentence}\n")


def _keep(record: Record, measurement: Measurement) -> None:
    """Keep a cell, and say at once what makes it useless: an operator may be able to end it."""
    record.add(measurement)
    cell = measurement.cell
    if measurement.disturbed or measurement.cut:
        faults = ", ".join(f"{count} x {name}" for name, count in measurement.errors.items())
        why = f"requests failed ({faults})" if measurement.cut else "other traffic ran on that engine"
        sys.stderr.write(f"{_WIPE}{cell.arm} at {cell.concurrency} cannot be used: {why}\n")


def _keep_prefills(record: Record, prefills: Sequence[Prefill]) -> None:
    record.note(replace(_run_of(record), prefills=tuple(prefills)))


def _finish(
    options: argparse.Namespace,
    aim: Aim,
    settings: Settings,
    campaign: Campaign,
    facts: Mapping[Arm, ArmFacts],
    *,
    doubts: Sequence[str],
    interrupted: bool,
) -> int:
    """Write the results and say the essence of them."""
    from proxy.lab.calibration.deciding.findings import conclude  # noqa: PLC0415
    from proxy.lab.calibration.report import write  # noqa: PLC0415 - draws with a heavy library

    if not any(one.usable for one in campaign.measurements):
        explain_nothing(campaign, interrupted=interrupted)
        return EXIT_INTERRUPTED if interrupted else 1
    notes: tuple[str, ...] = ("stopped early: the same command goes on from here",) if interrupted else ()
    if campaign.hopeless:
        notes = (f"given up: {HOPELESS} cells in a row could not be used ({last_faults(campaign)})",)
    findings = conclude(
        aim,
        facts,
        campaign.measurements,
        measured_at=_now(),
        spent_s=campaign.spent_s,
        prefills=campaign.prefills,
        running=_running(settings) if options.config is not None else None,
        complete=not interrupted and not campaign.hopeless,
        notes=(*notes, *doubts),
    )
    findings = replace(findings, curves_file=_named_from(options))
    with writing(options.out):
        files = write(findings, options.out)
    try:
        tell(findings, files, options.out)
    except BrokenPipeError:
        # Who read the first lines has left; all of them are in the report, and the exit must not stumble over the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if campaign.hopeless:
        sys.stderr.write(f"crossover calibrate: {''.join(notes)}; see that both engines are up, then ask again\n")
    return EXIT_INTERRUPTED if interrupted else int(campaign.hopeless)


def _named_from(options: argparse.Namespace) -> str:
    """The file of speeds as the configuration would name it: from its own folder, and without one from here."""
    folder = options.config.parent if options.config is not None else Path()
    return os.path.relpath(options.out / CURVES_FILE, folder)


def _run_of(record: Record) -> Run:
    if record.run is None:
        raise RuntimeError("a record was closed that was never begun")
    return record.run


def _aim(options: argparse.Namespace) -> Aim:
    arms = options.arms or (Arm.SPECULATIVE, Arm.BASELINE, *((Arm.ADAPTIVE,) if options.adaptive_url else ()))
    if Arm.ADAPTIVE in arms and options.adaptive_url is None:
        raise ConfigError("arm adaptive has no address; add --adaptive-url http://HOST:PORT")
    if options.max_tokens < 8 or min(options.context) < options.max_tokens / 2:
        raise ConfigError(
            "--max-tokens is at least 8, and each --context at least half of it: the answer is context too"
        )
    return Aim(
        concurrencies=options.concurrency or (QUICK_CONCURRENCIES if options.quick else DEFAULT_CONCURRENCIES),
        contexts=tuple(dict.fromkeys(options.context)),
        arms=arms,
        prompts=tuple(dict.fromkeys(options.prompts)),
        budget_s=options.budget or (QUICK_BUDGET_S if options.quick else DEFAULT_BUDGET_S),
        max_tokens=options.max_tokens,
        precision=options.precision,
        quick=options.quick,
    )


@asynccontextmanager
async def _settings(options: argparse.Namespace) -> AsyncIterator[Settings]:
    """The configuration, or that of two embedded engines that run meanwhile."""
    if options.config is not None:
        if options.curve is not None:
            raise ConfigError("--curve is for the demo, which runs without CONFIG; leave one out")
        yield config.load(options.config, os.environ)
        return
    demo = Demo(options.curve, None, 1.0)
    try:
        await demo.start()
        yield demo.settings()
    finally:
        await demo.stop()


def _targets(options: argparse.Namespace, aim: Aim, settings: Settings) -> dict[Arm, ArmTarget]:
    targets: dict[Arm, ArmTarget] = {}
    for arm in aim.arms:
        if arm is Arm.ADAPTIVE:
            key = _key(settings, Role.SPECULATIVE)
            targets[arm] = ArmTarget(options.adaptive_url, EngineKind.SGLANG, key)
        else:
            backend = settings.backends.of(Role(arm.value))
            targets[arm] = ArmTarget(backend.url, backend.engine, _key(settings, Role(arm.value)))
    return targets


def _key(settings: Settings, role: Role) -> str | None:
    key = settings.backends.of(role).api_key
    return None if key is None else key.get_secret_value()


def _running(settings: Settings) -> RunningRouting:
    routing = settings.routing
    limits = {role: settings.backends.of(role).max_in_flight for role in ROLES}
    return RunningRouting(
        policy=routing.policy.value,
        leave_at=routing.leave_at,
        enter_at=routing.enters_at(),
        pin=routing.pin,
        placement=settings.placement,
        curves_file=routing.curves_file,
        max_in_flight={role: limit if isinstance(limit, int) else None for role, limit in limits.items()},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _kinds(text: str) -> tuple[PromptKind, ...]:
    return tuple(_named(PromptKind, part) for part in text.split(","))


def _arms(text: str) -> tuple[Arm, ...]:
    return tuple(dict.fromkeys(_named(Arm, part) for part in text.split(",")))


def _named(words: type[Word], text: str) -> Word:
    try:
        return words(text.strip())
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(words)}") from error
