"""The measurement: contenders take turns under the same load, and what comes out are tables and JSON.

What is measured, and what the figures do not say: docs/benchmarks/README.md. Usage: scripts/bench --help. The order of
things is here; the options are in options.py, what is made of the numbers in report.py.
"""

import contextlib
import functools
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from bench import hot, syscalls
from bench.breaks import breaks
from bench.contenders import BARE, DIRECT, OURS, Client, Engine, Running, client, contender, engine
from bench.files import max_streams, raise_file_limit
from bench.jobs import BREAKS, FRESH, PLAIN, SHAPES, STREAMS, Job, Load, Measurement
from bench.options import Options, parsed
from bench.peers import OPTIONAL, PEERS, Found, found, install, listed
from bench.processes import ROOT, NotUp
from bench.report import report
from bench.wire import Broken

# Connections and caches come to rest for at most this long before a window opens.
MAX_SETTLE_S = 0.5
# A measurement counts as disturbed when other programs had more than this of a core in its window: they push the
# proxy's code and data out of the caches, and it then needs up to a third more CPU for the same work.
CALM_SHARE = 0.1
# Before memory is looked at: what a program loads or grows for its first requests is not the streams'.
WARM_S = 0.5
OK, FAILED = 0, 1
T = TypeVar("T")
_TERMINATED = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; the exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    raise_file_limit()
    options = parsed(argv)
    peers = found(options.peers)
    if options.list:
        print(listed(peers))
        return OK
    try:
        if options.profile:
            profile(options)
            return OK
        measurements = list(measured(options, peers))
    except NotUp as error:
        say(f"bench failed: {error}")
        return FAILED
    report(options, measurements, peers)
    return OK if any(each.contender == OURS and not each.failure for each in measurements) else FAILED


@dataclass(frozen=True, slots=True)
class Rig:
    """What all measurements of a run share."""

    options: Options
    peers: Mapping[str, Found]
    behind: Engine
    load: Client


def measured(options: Options, found: Mapping[str, Found]) -> Iterator[Measurement]:
    """All measurements of a run, in the order they are made."""
    names = chosen(options, found)
    with engine() as behind, client() as load:
        rig = Rig(options, found, behind, load)
        yield from taking_turns(rig, names, [test for test in options.tests if test not in FRESH])
        for test in [test for test in options.tests if test in FRESH]:
            for number in range(options.fresh_rounds):
                for name in turns(names, number):
                    if name != DIRECT or test == STREAMS:
                        say(f"{test}, {name}, round {number + 1} of {options.fresh_rounds}")
                        yield fresh(rig, number, test, name)


def chosen(options: Options, found: Mapping[str, Found]) -> list[str]:
    """The contenders of a run: those asked for, or all but the optional ones, and of them those that are here."""
    names = options.contenders or [OURS, BARE, DIRECT, *(name for name in PEERS if name not in OPTIONAL)]
    for name in names:
        if name in PEERS and name not in found:
            say(f"left out: {name} is not here; {install(name)}")
    return [name for name in names if name not in PEERS or name in found]


def taking_turns(rig: Rig, names: Sequence[str], tests: Sequence[str]) -> Iterator[Measurement]:
    """The tests that a contender bears one after another: all are up, and all but one are frozen."""
    with contextlib.ExitStack() as stack:
        running = list(begun(rig, names, stack)) if tests else []
        for number in range(rig.options.rounds if running else 0):
            for test in tests:
                for each in turns(running, number):
                    say(f"{test}, {each.name}, round {number + 1} of {rig.options.rounds}")
                    yield turn(rig, number, test, each)


def begun(rig: Rig, names: Sequence[str], stack: contextlib.ExitStack) -> Iterator[Running]:
    """Those contenders that come up, frozen. Raises NotUp when ours is not among them."""
    for name in names:
        say(f"starting {name}")
        try:
            each = stack.enter_context(contender(name, rig.behind, rig.peers))
        except NotUp as error:
            if name == OURS:
                raise
            say(f"left out: {error}")
            continue
        each.freeze()
        yield each


def turn(rig: Rig, number: int, test: str, each: Running) -> Measurement:
    """One contender's turn; a failure is a result too."""
    try:
        each.thaw()
        best = calmest(rig.load, job(rig, test, each), rig.options.redo)
    except (Broken, NotUp) as error:
        say(f"  failed: {error}")
        return Measurement(number, test, each.name, failure=str(error))
    finally:
        each.freeze()
    return Measurement(number, test, each.name, best)


def fresh(rig: Rig, number: int, test: str, name: str) -> Measurement:
    """A test that begins on a contender just started."""
    if test == BREAKS:
        return Measurement(number, test, name, seen=breaks(name, rig.peers))
    try:
        with contender(name, rig.behind, rig.peers) as running:
            rig.load.measure(job(rig, PLAIN, running, seconds=WARM_S))
            return Measurement(number, test, name, rig.load.measure(job(rig, test, running)))
    except (Broken, NotUp) as error:
        say(f"  failed: {error}")
        return Measurement(number, test, name, failure=str(error))


def calmest(load: Client, wanted: Job, redo: int) -> Load:
    """A measurement that nobody disturbed, or after `redo` more tries the one that was disturbed least."""
    best = load.measure(wanted)
    while best.others_cpu_s > CALM_SHARE * best.window_s and redo:
        redo -= 1
        best = min(best, load.measure(wanted), key=lambda each: each.others_cpu_s)
    return best


def turns(running: Sequence[T], number: int) -> Sequence[T]:
    """The contenders in this round's order: whoever was first is last in the next, so that order favours nobody."""
    first = number % len(running)
    return [*running[first:], *running[:first]]


def job(rig: Rig, test: str, running: Running, *, seconds: float | None = None) -> Job:
    """One measurement to be made, with a window as long as the run's where no other is said."""
    seconds = rig.options.seconds if seconds is None else seconds
    shape = SHAPES[test]
    streams = min(rig.options.streams_of(test), max_streams())
    return Job(
        test=test,
        port=running.port,
        pids=running.pids,
        engine_pid=rig.behind.pid,
        engine_port=rig.behind.ports[0],
        streams=streams,
        rate=shape.rate,
        shape=shape.shape,
        seconds=seconds,
        streams_per_s=shape.streams_per_s,
        settle_s=min(MAX_SETTLE_S, seconds / 5),
    )


def profile(options: Options) -> None:
    """Print where our own time goes, a test at a time."""
    with engine() as behind, client() as load, tempfile.TemporaryDirectory(prefix="crossover-bench-") as folder:
        rig = Rig(options, {}, behind, load)
        for test in [test for test in options.tests if test != BREAKS]:
            say(f"profile: {test}")
            path = Path(folder) / f"{test}.prof"
            with contender(OURS, behind, {}, profile=path) as ours:
                load.measure(job(rig, test, ours))
            plain = test == PLAIN
            print(hot.top(path, test, ROOT / "proxy", hot.ONCE_A_REQUEST if plain else hot.ONCE_AN_EVENT))
            if syscalls.can_count():
                with contender(OURS, behind, {}) as ours:
                    assert ours.pid is not None
                    work = functools.partial(load.measure, job(rig, test, ours))
                    print(syscalls.top(ours.pid, test, work, by_request=plain))


def say(line: str) -> None:
    """Tell the person who waits."""
    print(line, file=sys.stderr, flush=True)


def _terminated(number: int, frame: FrameType | None) -> None:
    """End as by an exception, so that everything started is ended."""
    raise SystemExit(_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
