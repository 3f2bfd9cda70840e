"""What a run is asked for: engines and their flags, GPUs, ports, load. Nothing is started here."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.lab.options import list_of, positive
from proxy.lab.prompts import PromptKind
from proxy.model import Placement

SPECULATIVE, BASELINE, BESIDE = "speculative", "baseline", "baseline-beside"

ONLY_SPECULATIVE, ONLY_BASELINE, ADAPTIVE = "only-speculative", "only-baseline", "adaptive"
FIXED, THRESHOLD, AUTO = "fixed-limit", "threshold", "auto"
UNLEARNED, BLIND = "unlearned", "blind"
"""`auto` that keeps to the curves of its file, and `auto` that does not look at what is cached."""
ALONE = (ONLY_SPECULATIVE, ONLY_BASELINE, ADAPTIVE)
INSTANCES = (SPECULATIVE, BASELINE, BESIDE, ADAPTIVE)
USUAL = (*ALONE, FIXED, THRESHOLD, AUTO)
PROXIED = (FIXED, THRESHOLD, AUTO, UNLEARNED, BLIND)

ENGINE = "python3 -m sglang.launch_server"
# Equal limits on all: an engine that speculates takes 48 by itself.
FLAGS = "--max-running-requests 256 --enable-metrics"
TREE = (
    "--speculative-algorithm EAGLE3 --speculative-num-steps 2 --speculative-eagle-topk 4"
    " --speculative-num-draft-tokens 16"
)
CHAIN = (
    "--speculative-algorithm EAGLE3 --speculative-adaptive --speculative-num-steps 3 --speculative-eagle-topk 1"
    " --speculative-num-draft-tokens 4"
)
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Options:
    """One run. `accepts` are the tokens that a step of the speculative and of the adaptive instance is made to gain
    (None: what the drafts are worth); `loads` shares of the faster instance's peak, `rates` requests a second in their
    place. `running` are the addresses of instances that are up already, by name; `turns` is the length of a
    conversation, whose turns come one by one."""

    model: str
    draft: str | None
    engine: tuple[str, ...]
    flags: tuple[str, ...]
    speculative_flags: tuple[str, ...]
    adaptive_flags: tuple[str, ...]
    accepts: tuple[float, float] | None
    gpus: tuple[str, ...]
    placements: tuple[Placement, ...]
    port: int
    running: dict[str, str]
    out: Path
    start_within_s: float
    concurrency: tuple[int, ...]
    calibrate_s: float
    context: int
    curves: Path | None
    loads: tuple[float, ...]
    rates: tuple[float, ...] | None
    step_s: float
    drain_s: float
    tokens: int
    prompts: PromptKind
    seed: int
    turns: int
    clients: int
    arms: tuple[str, ...]


def parsed(argv: Sequence[str] | None) -> Options:
    """The options of a command line; ends the program where they make no sense."""
    parser = argparse.ArgumentParser(prog="scripts/gpu_pair", description=_ABOUT)
    _add_engines(parser)
    _add_load(parser)
    asked = parser.parse_args(argv)
    gpus = tuple(asked.gpus.split(","))
    if len(gpus) > 2:
        parser.error("--gpus takes one GPU for all instances, or two")
    separate = len(set(gpus)) == 2
    placements = asked.placements or ((Placement.SEPARATE,) if separate else (Placement.SHARED,))
    if Placement.SEPARATE in placements and not separate:
        parser.error("--placements separate needs two GPUs: --gpus 0,1")
    if unknown := set(asked.arms) - {*ALONE, *PROXIED}:
        parser.error(f"--arms: {', '.join(sorted(unknown))} is none of {', '.join((*ALONE, *PROXIED))}")
    given = vars(asked) | {"gpus": gpus, "placements": tuple(placements), "arms": tuple(asked.arms)}
    for name in ("engine", "flags", "speculative_flags", "adaptive_flags"):
        given[name] = tuple(shlex.split(given[name]))
    return Options(**given)


_ABOUT = (
    "Starts a speculative and a baseline instance and one with the engine's own adaptive speculation, measures their"
    " curves, then sends the same arrivals to each alone and through the proxy; writes tables."
)


def _add_engines(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="folder of the model, or its name")
    add("--draft", metavar="DIR", help="folder of the draft model")
    add("--engine", default=ENGINE, metavar="COMMAND", help="what takes SGLang's flags (%(default)s)")
    add("--flags", default=FLAGS, help="of every instance (%(default)s)")
    add("--speculative-flags", default=TREE, metavar="FLAGS", help="of the speculative instance (%(default)s)")
    add("--adaptive-flags", default=CHAIN, metavar="FLAGS", help="of the adaptive instance (%(default)s)")
    add("--accepts", type=_accepts, metavar="X,X", help="tokens gained a step, simulated: speculative, adaptive")
    add("--gpus", default="0", metavar="N[,N]", help="one for all, or the speculative one's and the others' (0)")
    add("--placements", type=_placements, metavar="WORD,...", help="separate, shared; default: as --gpus has it")
    add(
        "--running", type=_running, default={}, metavar="NAME=URL,...", help="instances that are up; nothing is started"
    )
    add("--port", type=int, default=31001, help="the first of ten (%(default)s)")
    add("--start-within-s", type=positive(float), default=400.0, metavar="S", help="for all instances (%(default)s)")
    add(
        "--out", type=Path, default=Path("out/gpu-pair"), metavar="DIR", help="results; a cut run goes on (%(default)s)"
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--concurrency", type=list_of(int), default=CONCURRENCY, metavar="N,...", help="calibrated at (1 to 128)")
    add("--calibrate-s", type=positive(float), default=900.0, metavar="S", help="calibration is cut then (%(default)s)")
    add("--context", type=positive(int), default=512, metavar="N", help="tokens of context, calibrated (%(default)s)")
    add("--curves", type=Path, metavar="FILE", help="curves measured before, in place of calibrating")
    add("--loads", type=list_of(float), default=(0.05, 0.15, 0.4, 0.7, 0.15), metavar="X,...", help="shares of a peak")
    add("--rates", type=list_of(float), metavar="X,...", help="requests a second, in place of --loads")
    add("--step-s", type=positive(float), default=20.0, metavar="S", help="length of each load (%(default)s)")
    add("--drain-s", type=positive(float), default=60.0, metavar="S", help="for the last answers (%(default)s)")
    add("--tokens", type=positive(int), default=200, metavar="N", help="mean length of an answer (%(default)s)")
    add("--prompts", type=PromptKind, default=PromptKind.MIXED, metavar="KIND", help=", ".join(PromptKind))
    add(
        "--turns",
        type=positive(int),
        default=1,
        metavar="N",
        help="of each conversation, one after another (%(default)s)",
    )
    add("--seed", type=int, default=1)
    add("--clients", type=positive(int), default=4, metavar="N", help="processes that send (%(default)s)")
    add("--arms", type=_words, default=USUAL, metavar="ARM,...", help=", ".join((*ALONE, *PROXIED)))


def _placements(text: str) -> tuple[Placement, ...]:
    return tuple(map(Placement, _words(text)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _running(text: str) -> dict[str, str]:
    found = dict(word.split("=", 1) for word in _words(text))
    if unknown := set(found) - set(INSTANCES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))} is none of {', '.join(INSTANCES)}")
    return found


def _accepts(text: str) -> tuple[float, float]:
    speculative, adaptive = map(float, text.split(","))
    return speculative, adaptive
