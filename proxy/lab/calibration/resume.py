"""Whether a folder holds the very run that is asked for, so that it may go on; else what to do instead."""

import sys
from collections.abc import Mapping
from dataclasses import replace

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.record import Record, Run
from proxy.lab.calibration.values import Arm, ArmFacts

# Flags that are a measure of free memory and not of what somebody asked for.
_KV_FLAGS = frozenset(("num_gpu_blocks",))


def take_up(record: Record, run: Run, *, again: bool) -> None:
    """Begin, or go on with what the folder holds. Raises ConfigError where it holds something else."""
    if again:
        record.forget()
    held = record.run
    if held is None:
        record.begin(run)
        return
    folder = record.folder
    if _goal(held.aim) != _goal(run.aim):
        raise ConfigError(
            f"{folder} holds a run with other options; name another folder by --out, or begin anew with --again"
        )
    if _identity(held.facts) != _identity(run.facts):
        raise ConfigError(
            f"the engines are not those that {folder} was begun with (version, model or flags differ); name another "
            "folder by --out, or begin anew with --again"
        )
    if held.finished and held.aim.budget_s >= run.aim.budget_s:
        raise ConfigError(
            f"{folder} holds a finished run; see {folder / 'report.html'}, give it more time by a larger --budget, "
            "name another folder by --out, or begin anew with --again"
        )
    sys.stderr.write(f"going on with {len(record.measurements)} cells of {folder}\n")
    record.begin(replace(run, began_at=held.began_at, prefills=held.prefills))


def _goal(aim: Aim) -> Aim:
    """What must be the same for cells to belong together: all but the time."""
    return replace(aim, budget_s=0.0)


def _identity(facts: Mapping[Arm, ArmFacts]) -> dict[Arm, ArmFacts]:
    """What of an engine must be the same. Its address may change, as a demo's does, and its KV pool is what memory was
    free when it started."""
    found = {}
    for arm, one in facts.items():
        flags = {name: value for name, value in one.flags.items() if name not in _KV_FLAGS}
        found[Arm(arm)] = replace(one, url="", kv_tokens=None, flags=flags)
    return found
