"""The proof of the calibration: whole campaigns on virtual engines whose truth is known, many seeds, every curve.

Usage: scripts/prove_calibration --help. One campaign is in trials.py, the sums are in tallies.py.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.provenance import machine, today
from simulate.tallies import by_curve, table, tally, totals
from simulate.trials import Outcome, Trial, found_curve, known_truth, tried

import proxy
from proxy.lab import curves
from proxy.lab.calibration.deciding.aim import DEFAULT_BUDGET_S
from proxy.lab.calibration.deciding.quick import QUICK_BUDGET_S, QUICK_CONCURRENCIES

# Fewer points say little of where a curve crosses.
LEAST_POINTS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Prove; the exit code."""
    asked = _parser().parse_args(argv)
    names = asked.curves or [name for name in curves.shipped() if len(found_curve(name).points) >= LEAST_POINTS]
    outcomes = _all_tried(_trials(asked, names), asked.processes)
    top = QUICK_CONCURRENCIES[-1] if asked.quick else sys.maxsize
    truths = {name: str(known_truth(name, top).kind).partition("_")[0] for name in names}
    rows, whole = by_curve(outcomes), tally(outcomes)
    print(table(rows, truths))
    print(totals(whole))
    if asked.json is not None:
        found = {
            "date": today(),
            "asked": {
                name: value for name, value in vars(asked).items() if name not in ("json", "processes", "curves")
            },
            "machine": machine(),
            "versions": _versions(),
            "totals": whole.as_json(),
            "curves": {name: {"truth": truths[name], **row.as_json()} for name, row in rows.items()},
        }
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _trials(asked: argparse.Namespace, names: Sequence[str]) -> list[Trial]:
    options: dict[str, Any] = {"cell_noise": asked.cell_noise, "jitter": asked.jitter, "drift": asked.drift}
    options |= {"moments": not asked.gross}
    budget_s = asked.budget or (QUICK_BUDGET_S if asked.quick else DEFAULT_BUDGET_S)
    return [
        Trial(name, seed, budget_s, asked.quick, asked.max_tokens, options)
        for name in names
        for seed in range(asked.seeds)
    ]


def _all_tried(trials: Sequence[Trial], processes: int) -> list[Outcome]:
    outcomes = []
    with ProcessPoolExecutor(processes) as pool:
        for outcome in pool.map(tried, trials, chunksize=2):
            outcomes.append(outcome)
            print(f"\r{len(outcomes)} of {len(trials)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return outcomes


def _versions() -> dict[str, str]:
    libraries = {name: importlib.metadata.version(name) for name in ("scipy", "numpy")}
    return {"crossover": proxy.__version__, "python": platform.python_version(), **libraries}


def _parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(prog="scripts/prove_calibration", description=__doc__.partition("\n")[0])
    add = out.add_argument
    add(
        "--curves",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="names or files; all with five points or more",
    )
    add("--seeds", type=int, default=10, metavar="N", help="runs of each curve (default 10)")
    add("--budget", type=float, metavar="S", help="virtual seconds of a run (default: that of the command)")
    add("--max-tokens", type=int, default=256, metavar="N", help="of an answer (default 256)")
    add("--quick", action="store_true", help="prove quick runs instead")
    add("--gross", action="store_true", help="engines tell no decode moments: speeds are what clients get")
    add("--cell-noise", type=float, default=0.01, metavar="F", help="scatter between equal cells (default 0.01)")
    add("--jitter", type=float, default=0.03, metavar="F", help="scatter of the time of a step (default 0.03)")
    add("--drift", type=float, default=0.0, metavar="F", help="share of speed that both engines lose in an hour")
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="at once (default: all cores)")
    add("--json", type=Path, metavar="FILE", help="write the figures there")
    return out


if __name__ == "__main__":
    sys.exit(main())
