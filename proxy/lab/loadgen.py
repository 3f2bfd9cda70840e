"""`crossover load URL`: loads a server level by level and says what came out, as a table and as JSON.

The command's options, progress line and ending are here; the arms are in lab/loadtour.py, the walk over levels in
lab/loadwalk.py.
"""

import argparse
import os
import secrets
import sys
from pathlib import Path

from proxy.errors import ConfigError, CrossoverError
from proxy.lab.interrupt import EXIT_INTERRUPTED, progress, until_interrupted
from proxy.lab.loadcall import Shape, Target, first_model, open_session
from proxy.lab.loadreport import LevelSpec, Loop, Report
from proxy.lab.loadtable import level_name, render, to_json
from proxy.lab.loadtour import Tour, explain_failure
from proxy.lab.loadwalk import Progress, Recipe
from proxy.lab.options import list_of, not_negative, positive, server_url
from proxy.lab.prompts import PromptKind

DEFAULT_URL = "http://127.0.0.1:30000"

DEFAULT_CONCURRENCY = (1, 2, 4, 8, 16, 32)

# Long enough for several answers of 128 tokens at each level, short enough that six levels take a minute.
DEFAULT_DURATION_S = 8.0

# The answers that began together at a new level, or belong to the level before, have mostly ended after this.
DEFAULT_WARMUP_S = 2.0

_BAR_WIDTH = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `crossover load` on a parser; `run` takes what it parsed."""
    add = parser.add_argument
    add("url", nargs="?", type=server_url, default=DEFAULT_URL, metavar="URL", help="the server (%(default)s)")
    strength = parser.add_mutually_exclusive_group()
    strength.add_argument(
        "--concurrency", type=list_of(int), metavar="N,N,...", help="closed loop: requests in flight, a level each"
    )
    strength.add_argument("--rate", type=list_of(float), metavar="R,R,...", help="open loop: Poisson arrivals a second")
    add("--ramp", action="store_true", help="walk the levels up and down again, to show hysteresis")
    add("--compare", action="store_true", help="also measure only speculative and only baseline, by request header")
    add("--duration", type=positive(float), metavar="S", help=f"window of a level ({DEFAULT_DURATION_S:g})")
    add("--requests", type=positive(int), metavar="N", help="send exactly N a level; with --duration, up to N")
    add("--warmup", type=not_negative, metavar="S", help="load before each window (2; with --requests 0)")
    add("--timeout-s", type=positive(float), default=600.0, metavar="S", help="for one whole request (%(default)g)")
    add("--max-tokens", type=positive(int), default=128, metavar="N", help="per answer (%(default)s)")
    add("--prompts", choices=[kind.value for kind in PromptKind], default="mixed", help="default: %(default)s")
    add("--unique", action="store_true", help="begin every prompt differently, so that no prefix cache helps")
    add("--stream", action=argparse.BooleanOptionalAction, default=True, help="without it TTFT and TPOT are unknown")
    add("--n", type=positive(int), default=1, metavar="N", help="answers per request")
    add("--seed", type=int, default=1, metavar="N", help="of the prompts' order and the arrivals (%(default)s)")
    add("--model", metavar="NAME", help="default: the first that /v1/models lists")
    add("--api-key", metavar="KEY", help="default: the environment's CROSSOVER_API_KEY")
    add("--json", type=Path, metavar="FILE", help="write the figures there too")


async def run(options: argparse.Namespace) -> int:
    """Load the server and print the report; the exit code. Awaits; Ctrl-C ends it early with what was measured.

    0: measured. 1: nothing could be measured, and standard error says what to do. 130: stopped by Ctrl-C.
    """
    try:
        _claim(options.json)
        report = await _load(options)
    except CrossoverError as error:
        sys.stderr.write(f"crossover load: {error.message}\n")
        return 1
    sys.stdout.write(render(report))
    sys.stdout.flush()
    _save(options.json, report)
    if report.interrupted:
        return EXIT_INTERRUPTED
    mend = explain_failure(report.levels)
    if mend is not None:
        sys.stderr.write(f"crossover load: {mend}\n")
    return 0 if mend is None else 1


async def _load(options: argparse.Namespace) -> Report:
    api_key = options.api_key or os.environ.get("CROSSOVER_API_KEY") or None
    async with open_session() as session:
        model = options.model or await first_model(session, options.url, api_key)
        recipe, specs = _recipe(options), _specs(options)
        tour = Tour(session, Target(options.url, model, api_key), recipe, specs)
        async with progress(lambda: _progress(tour), "load-progress"):
            interrupted = await until_interrupted(tour.go(comparing=options.compare), "load-tour")
        return tour.report(_config(options, model, recipe, specs), interrupted=interrupted)


def _recipe(options: argparse.Namespace) -> Recipe:
    counted = options.requests is not None
    warmup_s = options.warmup if options.warmup is not None else 0.0 if counted else DEFAULT_WARMUP_S
    duration_s = options.duration if options.duration is not None or counted else DEFAULT_DURATION_S
    return Recipe(
        shape=Shape(max_tokens=options.max_tokens, stream=options.stream, n=options.n, timeout_s=options.timeout_s),
        prompts=PromptKind(options.prompts),
        seed=options.seed,
        nonce=secrets.token_hex(8) if options.unique else None,
        warmup_s=warmup_s,
        duration_s=duration_s,
        requests=options.requests,
    )


def _specs(options: argparse.Namespace) -> tuple[LevelSpec, ...]:
    """The levels in the order walked."""
    loop = Loop.CLOSED if options.rate is None else Loop.OPEN
    values = options.rate or options.concurrency or DEFAULT_CONCURRENCY
    up = tuple(LevelSpec(loop, float(value)) for value in values)
    return up + up[-2::-1] if options.ramp else up


def _config(options: argparse.Namespace, model: str, recipe: Recipe, specs: tuple[LevelSpec, ...]) -> dict[str, object]:
    """What was asked for, for the JSON; never the key."""
    return {
        "url": options.url,
        "model": model,
        "levels": specs,
        "ramp": options.ramp,
        "compare": options.compare,
        "recipe": recipe,
    }


def _progress(tour: Tour) -> str | None:
    standing = tour.progress()
    return None if standing is None else progress_line(standing)


def progress_line(progress: Progress) -> str:
    """One line that says where a walk stands, under 100 characters."""
    arm = "" if progress.asked is None else f"only {progress.asked}, "
    counts = f"{progress.whole} ended, {progress.failed} failed, {progress.in_flight} in flight"
    if progress.spec is None:
        return f"{arm}waiting for the last answers: {counts}"
    filled = int(progress.done * _BAR_WIDTH)
    return f"{arm}{level_name(progress.spec)} [{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {counts}"


def _claim(file: Path | None) -> None:
    """See that the JSON can be written before minutes are spent. Raises ConfigError."""
    if file is None:
        return
    try:
        file.open("ab").close()
    except OSError as error:
        raise ConfigError(f"--json {file}: {error.strerror}; name a file that can be written") from error


def _save(file: Path | None, report: Report) -> None:
    if file is not None:
        file.write_bytes(to_json(report))
