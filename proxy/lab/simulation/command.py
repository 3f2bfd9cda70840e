"""`crossover simulate`: policies against the best that can be done, over curves, loads and kinds of traffic."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import isfinite
from pathlib import Path
from typing import NamedTuple, TypeVar

from proxy.errors import ConfigError
from proxy.lab import curves
from proxy.lab.calibration import extra
from proxy.lab.simulation.arms import Bench, arm, names
from proxy.lab.simulation.arrivals import OUTPUT_TOKENS, PROMPT_TOKENS, Arrivals, Closed, Gamma, Sizes
from proxy.lab.simulation.cells import ORACLES, Cell, Conduct, Row, compare
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.plots import pictures
from proxy.lab.simulation.rows import as_json, table
from proxy.lab.simulation.tally import Slo
from proxy.lab.simulation.traces import read_trace
from proxy.model import Placement

# The largest concurrency of most published curves; the optimum is found among as many numbers on each engine.
MAX_IN_FLIGHT = 128
# Beyond this the optimum would take minutes and gigabytes.
_MOST_IN_FLIGHT = 512


Number = TypeVar("Number", int, float)


class Job(NamedTuple):
    """One cell and the ways to run in it, as a worker gets it."""

    cell: Cell
    said: Sequence[str]
    conduct: Conduct


class Done(NamedTuple):
    """What a worker made of a job, and the requests and seconds of CPU that it took."""

    rows: list[Row]
    requests: int
    cpu_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `crossover simulate` can do on a parser; `run` takes what it parsed."""
    say = parser.add_argument
    say("--curve", type=_words, default=[curves.DEFAULT_CURVE], metavar="NAME[,NAME]", help="shipped, or a file")
    say("--placement", choices=tuple(Placement), default=Placement.SEPARATE.value)
    say("--policy", type=_words, default=["auto"], metavar="P[,P]", help=f"{', '.join(names())}; {_NUMBERS}")
    say("--load", type=_loads, default=[0.1, 0.3, 0.5, 0.7], metavar="X[,X]", help="shares of capacity")
    say("--arrivals", type=_words, default=["poisson"], metavar="A[,A]", help=_ARRIVALS)
    say("--requests", type=_positive(int), default=4000, metavar="N", help="that count, in each run")
    say("--seeds", type=_positive(int), default=10, metavar="N", help="runs of each, 3 at least for intervals")
    say("--oracles", type=_oracles, default=ORACLES, metavar="O[,O]", help="o1, o2, o3, or none")
    say("--prompt-tokens", type=int, default=PROMPT_TOKENS, metavar="N", help="of each prompt, none of them cached")
    say("--output-tokens", type=_positive(float), default=OUTPUT_TOKENS, metavar="X", help="mean; exponential")
    say("--max-in-flight", type=_positive(int), default=MAX_IN_FLIGHT, metavar="N", help="on each backend")
    say("--fitted", action="store_true", help="step times from the curve's fit instead of its table")
    say("--slo", type=_slo, default=Slo(), metavar="TTFT/TPOT", help="seconds; what goodput counts (2/0.05)")
    say("--polls", action="store_true", help="tell the desk each second what engines say of their load")
    say("--jobs", type=_positive(int), default=1, metavar="N", help="processes that work at the same time")
    say("--json", type=Path, metavar="FILE", help="write all rows there")
    say("--plots", type=Path, metavar="FOLDER", help="draw mean time by load there")


_NUMBERS = "with a number as in overflow:12, threshold:17/9, first:16, adaptive:0.1"
_ARRIVALS = "poisson, gamma:CV, closed:CLIENTS, or a trace (CSV as Azure's, JSONL as Mooncake's)"


def run(options: argparse.Namespace) -> int:
    """Do it; the exit code: 0 done, 1 not possible, and standard error says the mend."""
    try:
        extra.need()
        rows = _simulate(list(_jobs(options)), options.jobs)
        if options.json is not None:
            _write(options.json, as_json(rows))
        if options.plots is not None:
            sys.stdout.writelines(f"drawn {path}\n" for path in pictures(rows, options.plots))
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def _simulate(jobs: Sequence[Job], workers: int) -> list[Row]:
    rows: list[Row] = []
    requests, cpu_s = 0, 0.0
    for done in _results(jobs, workers):
        rows += done.rows
        requests, cpu_s = requests + done.requests, cpu_s + done.cpu_s
        sys.stdout.write(f"{table(done.rows)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{requests} requests in {cpu_s:.1f} s of CPU: {60 * requests / cpu_s:,.0f} a minute on a core\n")
    return rows


def _results(jobs: Sequence[Job], workers: int) -> Iterator[Done]:
    """What jobs come to, in their order."""
    if workers == 1 or len(jobs) == 1:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(min(workers, len(jobs))) as pool:
        yield from pool.map(work, jobs)


def work(job: Job) -> Done:
    """Run one cell."""
    began_s = time.process_time()
    rows, requests = compare(job.cell, job.said, job.conduct)
    return Done(rows, requests, time.process_time() - began_s)


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    if options.max_in_flight > _MOST_IN_FLIGHT:
        raise ConfigError(f"--max-in-flight must be at most {_MOST_IN_FLIGHT}; mend: lower it")
    conduct = Conduct(options.requests, options.seeds, options.slo, options.oracles, Course(options.polls))
    sizes = Sizes(options.prompt_tokens, options.output_tokens)
    kinds = [_arrivals(said, sizes) for said in options.arrivals]
    for name, kind in product(options.curve, kinds):
        bench = _bench(name, kind, options)
        for said in options.policy:
            arm(said, bench)  # a name that means nothing is refused before hours are spent on the others
        for load in options.load if kind.paced else [None]:
            yield Job(Cell(bench, load, kind), options.policy, conduct)


def _bench(name: str, kind: Arrivals, options: argparse.Namespace) -> Bench:
    curve, most = curves.find(name), options.max_in_flight
    both = paces(curve, most, kind.means.context, fitted=options.fitted)
    return Bench(curve, Placement(options.placement), both, most)


def _arrivals(said: str, sizes: Sizes) -> Arrivals:
    name, _, value = said.partition(":")
    try:
        if name == "poisson" and not value:
            return Gamma(1.0, sizes)
        if name == "gamma":
            return Gamma(_positive(float)(value), sizes)
        if name == "closed":
            return Closed(_positive(int)(value), sizes)
    except ValueError as error:
        raise ConfigError(f"--arrivals {said}: needs a number above 0 behind the colon; mend: {_ARRIVALS}") from error
    if not Path(said).is_file():
        raise ConfigError(f"--arrivals {said}: neither a kind of traffic nor a file; mend: {_ARRIVALS}")
    return read_trace(Path(said))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); mend: choose another place") from error


def _words(said: str) -> list[str]:
    return [word for word in said.split(",") if word]


def _loads(said: str) -> list[float]:
    return [_positive(float)(word) for word in _words(said)]


def _oracles(said: str) -> tuple[str, ...]:
    words = () if said == "none" else tuple(_words(said))
    if unknown := set(words) - set(ORACLES):
        raise ValueError(f"no oracle {unknown}")
    return words


def _slo(said: str) -> Slo:
    ttft_s, tpot_s = said.split("/")
    return Slo(_positive(float)(ttft_s), _positive(float)(tpot_s))


def _positive(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    def number(said: str) -> Number:
        value = kind(said)
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{said} is not above 0")
        return value

    return number
