"""What can be asked of a run on the command line."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import peers
from bench.contenders import BARE, DIRECT, OURS
from bench.jobs import SHAPES, STREAMS, TESTS

CONTENDERS = (OURS, BARE, DIRECT, *peers.PEERS)


@dataclass(frozen=True, slots=True)
class Options:
    """A run. `contenders` empty: ours, the bare proxy, none at all, and every peer that is here."""

    rounds: int
    fresh_rounds: int
    seconds: float
    streams: int
    part: float
    redo: int
    contenders: list[str]
    tests: list[str]
    peers: Path | None
    json: Path | None
    profile: bool
    list: bool

    def streams_of(self, test: str) -> int:
        """How many streams a test is to have, or connections."""
        whole = self.streams if test == STREAMS else SHAPES[test].streams
        return max(1, round(whole * self.part))


def parsed(argv: Sequence[str] | None) -> Options:
    """The options as given; ends the program with a word about what is wrong."""
    given = vars(_parser().parse_args(argv))
    return Options(**{**given, "peers": peers.folder_of(given["peers"])})


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures Crossover beside other proxies under the same load; docs/benchmarks/README.md says how.",
    )
    add = out.add_argument
    add("--list", action="store_true", help="which contenders are on this machine, and how to install the others")
    add("--contenders", type=_names(CONTENDERS), default=[], metavar="A,B", help=",".join(CONTENDERS))
    add("--tests", type=_names(TESTS), default=list(TESTS), metavar="A,B", help=",".join(TESTS))
    add("--peers", type=Path, metavar="DIR", help=f"virtual environments of peers ({peers.ENVIRONMENT_VARIABLE})")
    add("--rounds", type=int, default=3, metavar="N", help="turns of each contender (default 3)")
    add("--fresh-rounds", type=int, default=1, metavar="N", help="the same of tests that start it anew (default 1)")
    add("--seconds", type=float, default=4.0, metavar="S", help="length of each window (default 4)")
    streams = SHAPES[STREAMS].streams
    add("--streams", type=int, default=streams, metavar="N", help=f"of the test {STREAMS} (default {streams})")
    add("--part", type=float, default=1.0, metavar="F", help="this part of each test's streams (default 1)")
    add("--redo", type=int, default=0, metavar="N", help="tries more when other programs disturb (default 0)")
    add("--json", type=Path, metavar="FILE", help="write figures and every measurement there")
    add("--profile", action="store_true", help="no figures: where our own Python time goes, by cProfile")
    return out


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """A type for argparse: some of the known names, separated by commas."""

    def some(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
        return chosen

    return some
