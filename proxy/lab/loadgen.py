"""`crossover load URL`: loads a server level by level and says what came out, as a table and as JSON.

The command's options, progress line and ending are here; the arms are in lab/loadtour.py, the walk over levels in
lab/loadwalk.py.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from proxy.errors import ConfigError, CrossoverError
from proxy.lab.loadcall import Shape, Target, first_model, open_session
from proxy.lab.loadreport import LevelSpec, Loop, Report
from proxy.lab.loadtable import level_name, render, to_json
from proxy.lab.loadtour import Tour, explain_failure
from proxy.lab.loadwalk import Progress, Recipe
from proxy.lab.prompts import PromptKind
from proxy.tasks import end, spawn

DEFAULT_URL = "http://127.0.0.1:30000"

DEFAULT_CONCURRENCY = (1, 2, 4, 8, 16, 32)

# Long enough for several answers of 128 tokens at each level, short enough that six levels take a minute.
DEFAULT_DURATION_S = 8.0

# The answers that began together at a new level, or belong to the level before, have mostly ended after this.
DEFAULT_WARMUP_S = 2.0

# The shell's word for "ended by SIGINT"; the figures so far are printed all the same.
EXIT_INTERRUPTED = 130

_REDRAW_S = 0.2
_BAR_WIDTH = 24

Number = TypeVar("Number", int, float)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `crossover load` on a parser; `run` takes what it parsed."""
    add = parser.add_argument
    add("url", nargs="?", type=_server_url, default=DEFAULT_URL, metavar="URL", help="the server (%(default)s)")
    strength = parser.add_mutually_exclusive_group()
    strength.add_argument(
        "--concurrency", type=_list_of(int), metavar="N,N,...", help="closed loop: requests in flight, a level each"
    )
    strength.add_argument(
        "--rate", type=_list_of(float), metavar="R,R,...", help="open loop: Poisson arrivals a second"
    )
    add("--ramp", action="store_true", help="walk the levels up and down again, to show hysteresis")
    add("--compare", action="store_true", help="also measure only speculative and only baseline, by request header")
    add("--duration", type=_positive(float), metavar="S", help=f"window of a level ({DEFAULT_DURATION_S:g})")
    add("--requests", type=_positive(int), metavar="N", help="send exactly N a level; with --duration, up to N")
    add("--warmup", type=_not_negative, metavar="S", help="load before each window (2; with --requests 0)")
    add("--timeout-s", type=_positive(float), default=600.0, metavar="S", help="for one whole request (%(default)g)")
    add("--max-tokens", type=_positive(int), default=128, metavar="N", help="per answer (%(default)s)")
    add("--prompts", choices=[kind.value for kind in PromptKind], default="mixed", help="default: %(default)s")
    add("--unique", action="store_true", help="begin every prompt differently, so that no prefix cache helps")
    add("--stream", action=argparse.BooleanOptionalAction, default=True, help="without it TTFT and TPOT are unknown")
    add("--n", type=_positive(int), default=1, metavar="N", help="answers per request")
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
        watching = spawn(_watch(tour), name="load-progress") if sys.stderr.isatty() else None
        try:
            interrupted = await _until_interrupted(tour.go(comparing=options.compare))
        finally:
            await end(watching)
        return tour.report(_config(options, model, recipe, specs), interrupted=interrupted)


async def _until_interrupted(coro: Coroutine[Any, Any, None]) -> bool:
    """Run to the end or to the first Ctrl-C; whether it was that. A second Ctrl-C has its usual effect."""
    touring = spawn(coro, name="load-tour")
    try:
        with _on_interrupt(touring.cancel):
            await asyncio.wait([touring])
    finally:
        await end(touring)
    if touring.cancelled():
        return True
    touring.result()
    return False


@contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGINT."""
    loop = asyncio.get_running_loop()

    def first() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop()

    loop.add_signal_handler(signal.SIGINT, first)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


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


async def _watch(tour: Tour) -> None:
    """Keep one line on standard error up to date until cancelled, then wipe it."""
    try:
        while True:
            progress = tour.progress()
            if progress is not None:
                sys.stderr.write(f"\r\x1b[K{progress_line(progress)}")
                sys.stderr.flush()
            await asyncio.sleep(_REDRAW_S)
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


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


def _server_url(text: str) -> str:
    """A server's base address without path: a trailing slash or `/v1` is taken off."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise argparse.ArgumentTypeError("give the address like http://127.0.0.1:30000")
    if parts.username is not None or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError("give the address without user, query or fragment; the key goes to --api-key")
    return text.rstrip("/").removesuffix("/v1")


def _positive(kind: type[Number]) -> Callable[[str], Number]:
    """A parser of numbers above 0."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number above 0")
        return value

    return parse


def _list_of(kind: type[Number]) -> Callable[[str], tuple[Number, ...]]:
    """A parser of numbers above 0 with commas between."""
    parse = _positive(kind)
    return lambda text: tuple(parse(part) for part in text.split(","))


def _not_negative(text: str) -> float:
    return 0.0 if text.strip() == "0" else _positive(float)(text)
