"""Files of measured speeds, as a calibration would write them."""

from pathlib import Path
from typing import Any

import yaml

NAME = "curves.yaml"


def measured(**changes: Any) -> dict[str, Any]:
    """One bucket of context where baseline overtakes between 5 and 7 in flight; `changes` replace keys of the file."""
    return {
        "version": 1,
        "measured_at": "2026-11-30T04:12:00Z",
        "placement": "separate",
        "model": "m",
        "engines": {"speculative": "0.5.23", "baseline": "0.5.23"},
        "contexts": [context()],
        **changes,
    }


def context(**changes: Any) -> dict[str, Any]:
    """One bucket; `changes` replace its keys."""
    return {
        "context_tokens": 1024,
        "verdict": "crossover_at",
        "reason": "speculation is 25 % faster at 5 in flight, 20 % slower at 7",
        "crossings": [{"at": 5.9, "low": 5, "high": 7, "faster_above": "baseline"}],
        "speculative": [{"in_flight": 5, "tok_s": 250, "low": 245, "high": 255}, {"in_flight": 7, "tok_s": 240}],
        "baseline": [{"in_flight": 5, "tok_s": 200}, {"in_flight": 7, "tok_s": 300, "predicted": True}],
        "ratio": [
            {"in_flight": 5, "ratio": 1.25, "low": 1.22, "high": 1.28, "repeats": 6},
            {"in_flight": 7, "ratio": 0.8, "low": 0.78, "high": 0.82, "repeats": 6},
        ],
        **changes,
    }


def one_sided(verdict: str, **changes: Any) -> dict[str, Any]:
    """One bucket in which one of the two is always the faster one."""
    return context(**{"verdict": verdict, "reason": "it was measured so", "crossings": [], **changes})


def write(folder: Path, values: dict[str, Any]) -> Path:
    """The file in a folder, by the name that the tests use."""
    path = folder / NAME
    path.write_text(yaml.safe_dump(values))
    return path
