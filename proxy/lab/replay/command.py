"""`crossover replay`: what other policies and numbers would have given on the traffic that really came."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path

from proxy import config
from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.lab.calibration import extra
from proxy.lab.options import words, write
from proxy.lab.replay.document import as_json
from proxy.lab.replay.engines import Speeds, speeds_of
from proxy.lab.replay.files import STDIN, lines_of
from proxy.lab.replay.grounds import Asked, ground_of, placement_of
from proxy.lab.replay.noise import RESAMPLES
from proxy.lab.replay.reading import Account, read_log
from proxy.lab.replay.replaying import replay
from proxy.lab.replay.report import render
from proxy.lab.replay.traffic import Traffic, of_trace, paced
from proxy.lab.simulation.arms import names
from proxy.lab.simulation.traces import read_trace
from proxy.model import Placement

_CONFIGS = (".yaml", ".yml")
# By this in its first line a file of JSON lines is a trace and no log.
_TRACED = b'"input_length"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `crossover replay` can do on a parser; `run` takes what it parsed."""
    say = parser.add_argument
    parser.usage = "crossover replay LOG [LOG ...] [CONFIG.yaml] [options]"
    say("files", nargs="+", metavar="LOG", help=_FILES)
    say("--curves", "--curve", metavar="FILE", help="curves.yaml of `crossover calibrate`, or a shipped curve's name")
    say(
        "--placement",
        choices=tuple(map(str, Placement)),
        help="default: as in CONFIG, else as the curves were measured for",
    )
    say("--policy", type=words, metavar="P[,P]", help=f"instead of the usual ones: {', '.join(names())}; {_NUMBERS}")
    say("--context", type=_tokens, metavar="N", help="tokens, or 8k: whose curves to take; default: the traffic's mean")
    say("--max-in-flight", type=_above_zero, metavar="N", help="on each backend; default: as configured or measured")
    say("--pace", type=_number, default=1.0, metavar="X", help="let requests come X times as fast, such as 2 (1)")
    say("--resamples", type=_above_zero, default=RESAMPLES, metavar="N", help=f"for the intervals ({RESAMPLES})")
    say("--jobs", type=_above_zero, default=1, metavar="N", help="processes that work at the same time")
    say("--json", type=Path, metavar="FILE", help="write all numbers there")


_FILES = "logs of the proxy (JSON, also .gz; - is standard input) or one trace; then the configuration, CONFIG.yaml"
_NUMBERS = "with a number as in overflow:12, threshold:17/9, or without one, which is then looked for"


def run(options: argparse.Namespace) -> int:
    """Do it; the exit code: 0 done, 1 not possible, and standard error says the mend."""
    try:
        extra.need()
        logs, file = _sorted_out(options.files)
        settings = None if file is None else config.load(file, os.environ)
        # Speeds before the log: that they are missing is said at once, and not after a minute of reading.
        speeds = _speeds(options.curves, settings, file)
        traffic, account = _traffic(logs)
        placement = placement_of(options.placement, settings, speeds)
        max_running = {} if account is None else account.max_running
        asked = Asked(placement, options.context, options.max_in_flight, max_running)
        ground = ground_of(traffic, settings, speeds, asked, _as_configured(options.curves, settings, file))
        found = replay(
            ground,
            paced(traffic, options.pace),
            account,
            source=", ".join("standard input" if name == STDIN else name for name in logs),
            names=options.policy,
            jobs=options.jobs,
            resamples=options.resamples,
            tell=_progress(),
        )
        if options.json is not None:
            write(options.json, as_json(found))
        sys.stdout.write(render(found))
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return int(all(row.overload is not None for row in found.rows))  # the report says the mend


def _sorted_out(files: Sequence[str]) -> tuple[list[str], Path | None]:
    """The logs, and the configuration where the last file is one."""
    *logs, last = files
    if Path(last).suffix not in _CONFIGS:
        return [*logs, last], None
    if not logs:
        raise ConfigError(f"{last}: is a configuration, and no log stands before it; mend: crossover replay LOG {last}")
    return logs, Path(last)


def _speeds(said: str | None, settings: Settings | None, file: Path | None) -> Speeds:
    if said is not None:
        return speeds_of(said)
    if settings is not None and settings.sources.curves is not None and file is not None:
        return Speeds(str(file.parent / str(settings.routing.curves_file)), settings.sources.curves)
    where = "is given" if settings is None else f"is named by routing.curves_file of {file}"
    raise ConfigError(
        f"no file of measured speeds {where}; mend: measure with `crossover calibrate` and give its curves.yaml by "
        "--curves, or for a first look a shipped curve of a box like yours (`crossover curves list`)"
    )


def _as_configured(said: str | None, settings: Settings | None, file: Path | None) -> str | None:
    """How the configuration would name the curves file; None for a curve of the library, which it cannot."""
    if said is None:
        return None if settings is None else settings.routing.curves_file
    if Path(said).suffix not in _CONFIGS:
        return None
    return os.path.relpath(said, Path() if file is None else file.parent)


def _traffic(logs: Sequence[str]) -> tuple[Traffic, Account | None]:
    if len(logs) == 1 and _is_trace(logs[0]):
        return of_trace(read_trace(Path(logs[0]))), None
    return read_log(lines_of(logs))


def _is_trace(name: str) -> bool:
    path = Path(name)
    if name == STDIN or path.suffix not in {".csv", ".jsonl"} or not path.is_file():
        return False
    return path.suffix == ".csv" or _TRACED in next(iter(lines_of([name])), b"")


def _progress() -> Callable[[int, int], None]:
    """Runs that are done, on standard error where somebody watches."""
    if not sys.stderr.isatty():
        return lambda *_: None

    def tell(done: int, known: int) -> None:
        sys.stderr.write(f"\r\x1b[Krun {done} of {known}" if done < known else "\r\x1b[K")
        sys.stderr.flush()

    return tell


def _above_zero(said: str) -> int:
    value = int(said)
    if value < 1:
        raise ValueError(said)
    return value


def _number(said: str) -> float:
    value = float(said)
    if not (isfinite(value) and value > 0):
        raise ValueError(said)
    return value


def _tokens(said: str) -> float:
    value = 1024 * float(said[:-1]) if said[-1:] in {"k", "K"} else float(said)
    if not (isfinite(value) and value >= 0):
        raise ValueError(said)
    return value
