"""`crossover simulate`: policies against the best that can be done, over curves, loads and kinds of traffic."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

from proxy.errors import ConfigError
from proxy.lab import calibrated, curves
from proxy.lab.calibration import extra
from proxy.lab.options import positive, words, write
from proxy.lab.simulation.arms import CONTROLS, Bench, arm, names
from proxy.lab.simulation.arrivals import OUTPUT_TOKENS, PROMPT_TOKENS, Arrivals, Sizes
from proxy.lab.simulation.cells import ORACLES, Cell, Conduct, Row, compare
from proxy.lab.simulation.course import ACCEPTANCE_MEND, LOSS_MEND, Course, Shifts, read_losses, read_shifts
from proxy.lab.simulation.goals import Slo
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.plots import pictures
from proxy.lab.simulation.rows import as_json, table
from proxy.lab.simulation.traffic import KINDS, traffic
from proxy.lab.simulation.worst import summary
from proxy.model import Placement

# The largest concurrency of most published curves; the optimum is found among as many numbers on each engine.
MAX_IN_FLIGHT = 128
# Beyond this the optimum would take minutes and gigabytes.
_MOST_IN_FLIGHT = 512

_STANDARD = Slo()

Said = TypeVar("Said")


class Job(NamedTuple):
    """One cell and the ways to run in it, as a worker gets it."""

    cell: Cell
    said: Sequence[str]
    controls: Sequence[str]
    conduct: Conduct


class Done(NamedTuple):
    """What a worker made of a job, and the requests and seconds of CPU that it took."""

    rows: list[Row]
    requests: int
    cpu_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `crossover simulate` can do on a parser; `run` takes what it parsed."""
    _add_cells(parser.add_argument_group("what is compared, and where"))
    _add_course(parser.add_argument_group("what happens meanwhile"))
    _add_runs(parser.add_argument_group("how it is run and told"))


def _add_cells(group: argparse._ArgumentGroup) -> None:
    say = group.add_argument
    say(
        "--curve",
        type=words,
        default=[curves.DEFAULT_CURVE],
        metavar="NAME[,NAME]",
        help="shipped, or a file (also curves.yaml)",
    )
    say("--placement", choices=tuple(map(str, Placement)), default=Placement.SEPARATE.value)
    say("--policy", type=words, default=["auto"], metavar="P[,P]", help=f"{', '.join(names())}; {_NUMBERS}")
    say("--no-controls", action="store_true", help=f"leave out what every table has beside: {', '.join(CONTROLS)}")
    say("--load", type=_loads, default=[0.1, 0.3, 0.5, 0.7], metavar="X[,X]", help="shares of capacity")
    say("--arrivals", type=words, default=["poisson"], metavar="A[,A]", help=KINDS)
    say("--prompt-tokens", type=int, default=PROMPT_TOKENS, metavar="N", help="of each prompt, none of them cached")
    say("--output-tokens", type=positive(float), default=OUTPUT_TOKENS, metavar="X", help="mean; exponential")
    say("--max-in-flight", type=positive(int), default=MAX_IN_FLIGHT, metavar="N", help="on each backend")
    say("--fitted", action="store_true", help="step times from the curve's fit instead of its table")
    say("--slo-ttft", type=positive(float), default=_STANDARD.ttft_s, metavar="S", help="goodput: first token (2)")
    say("--slo-tpot", type=positive(float), default=_STANDARD.tpot_s, metavar="S", help="each further one (0.05)")
    say("--route-by-slo", action="store_true", help="give these goals to the policies too (routing.slo)")


def _add_course(group: argparse._ArgumentGroup) -> None:
    say = group.add_argument
    say("--acceptance", type=_said(read_shifts), default=Shifts(), metavar="X@S", help=ACCEPTANCE_MEND)
    say("--dispersion", type=positive(float), default=0.0, metavar="X", help="deviation of the chance of acceptance")
    say("--lose", type=_said(read_losses), default=(), metavar="ROLE@S+S", help=LOSS_MEND)
    say("--aborts", type=_share, default=0.0, metavar="SHARE", help="of clients leave before their answer is complete")
    say("--polls", action="store_true", help="tell the desk each second what engines say of their load")


def _add_runs(group: argparse._ArgumentGroup) -> None:
    say = group.add_argument
    say("--requests", type=positive(int), default=4000, metavar="N", help="that count, in each run")
    say("--seeds", type=positive(int), default=10, metavar="N", help="runs of each, 3 at least for intervals")
    say("--oracles", type=_oracles, default=ORACLES, metavar="O[,O]", help="o1, o2, o3, or none")
    say("--jobs", type=positive(int), default=1, metavar="N", help="processes that work at the same time")
    say("--json", type=Path, metavar="FILE", help="write all rows there")
    say("--plots", type=Path, metavar="FOLDER", help="draw mean time by load there")


_NUMBERS = "with a number as in overflow:12, threshold:17/9, first:16, adaptive:0.1"
_NOTHING_CARRIED = (
    "none of the ways that were asked for carries what comes, in no cell; mend: lower --load, or --max-in-flight where "
    "the curve's speed falls with what is in flight"
)


def run(options: argparse.Namespace) -> int:
    """Do it; the exit code: 0 done, 1 not possible, and standard error says the mend."""
    try:
        extra.need()
        rows = _simulate(list(_jobs(options)), options.jobs)
        if options.json is not None:
            write(options.json, as_json(rows))
        if options.plots is not None:
            sys.stdout.writelines(f"drawn {path}\n" for path in pictures(rows, options.plots))
        if all(row.overload is not None for row in rows if not row.control):
            raise ConfigError(_NOTHING_CARRIED)
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


def _simulate(jobs: Sequence[Job], workers: int) -> list[Row]:
    rows: list[Row] = []
    requests, cpu_s, began_s = 0, 0.0, time.monotonic()
    _tell(0, len(jobs), 0.0)
    for number, done in enumerate(_results(jobs, workers), 1):
        _tell(None, len(jobs), 0.0)  # the table has its lines to itself
        rows += done.rows
        requests, cpu_s = requests + done.requests, cpu_s + done.cpu_s
        sys.stdout.write(f"{table(done.rows)}\n")
        sys.stdout.flush()
        _tell(number if number < len(jobs) else None, len(jobs), time.monotonic() - began_s)
    sys.stdout.write(summary(rows))
    sys.stdout.write(f"{requests} requests in {cpu_s:.1f} s of CPU: {60 * requests / cpu_s:,.0f} a minute on a core\n")
    return rows


def _tell(done: int | None, cells: int, spent_s: float) -> None:
    """The cells that are done and how long the others may take, on standard error where somebody watches; `done` None
    wipes that."""
    if not sys.stderr.isatty():
        return
    left = f", about {spent_s / done * (cells - done):.0f} s left" if done else ""
    sys.stderr.write("\r\x1b[K" if done is None else f"\r\x1b[K{done} of {cells} cells done{left}")
    sys.stderr.flush()


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
    rows, requests = compare(job.cell, job.said, job.conduct, job.controls)
    return Done(rows, requests, time.process_time() - began_s)


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    if options.max_in_flight > _MOST_IN_FLIGHT:
        raise ConfigError(f"--max-in-flight must be at most {_MOST_IN_FLIGHT}; mend: lower it")
    course = Course(options.polls, options.acceptance, options.lose, options.aborts, options.dispersion)
    goals = Slo(options.slo_ttft, options.slo_tpot)
    conduct = Conduct(options.requests, options.seeds, goals, options.oracles, course)
    sizes = Sizes(options.prompt_tokens, options.output_tokens)
    kinds = [traffic(said, sizes) for said in options.arrivals]
    controls = () if options.no_controls else CONTROLS
    for curve, kind in product(map(_curve, options.curve), kinds):
        bench = _bench(curve, kind, options, goals if options.route_by_slo else None)
        for said in options.policy:
            arm(said, bench)  # a name that means nothing is refused before hours are spent on the others
        for load in options.load if kind.paced else [kind.load]:
            yield Job(Cell(bench, load, kind), options.policy, controls, conduct)


def _curve(said: str) -> curves.Curve:
    """The curve of that name; of a calibration's file the smallest context, and a line on standard output says so."""
    if not calibrated.is_meant(said):
        return curves.find(said)
    curve, told = calibrated.smallest(Path(said))
    sys.stdout.write(f"{told}\n")
    return curve


def _bench(curve: curves.Curve, kind: Arrivals, options: argparse.Namespace, slo: Slo | None) -> Bench:
    most = options.max_in_flight
    both = paces(curve, most, kind.means.context, fitted=options.fitted)
    return Bench(curve, Placement(options.placement), both, most, slo)


def _loads(said: str) -> list[float]:
    return [positive(float)(word) for word in words(said)]


def _share(said: str) -> float:
    share = positive(float)(said)
    if share >= 1.0:
        raise argparse.ArgumentTypeError(f"{said} is not a share below 1")
    return share


def _oracles(said: str) -> tuple[str, ...]:
    named = () if said == "none" else tuple(words(said))
    if unknown := set(named) - set(ORACLES):
        raise argparse.ArgumentTypeError(f"there is no oracle {', '.join(sorted(unknown))}; mend: o1, o2, o3, or none")
    return named


def _said(read: Callable[[str], Said]) -> Callable[[str], Said]:
    """With what is wrong in the message, which argparse leaves out of any other error."""

    def word(said: str) -> Said:
        try:
            return read(said)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{said}: {error}") from error

    return word
