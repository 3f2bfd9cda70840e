"""The curves of the pair: `crossover calibrate` on it, cut when its time is over, or a file from before."""

import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from bench.processes import PYTHON
from pair.instances import Instance, NotUp
from pair.options import BASELINE, SPECULATIVE, Options

from proxy.config.curves_file import read_curves
from proxy.lab.calibration.deciding.aim import Aim, least_budget_s
from proxy.routing.curves import Curves

# What a calibration that was told to stop takes to write what there is.
_WRITE_WITHIN_S = 60.0


def curves_of(options: Options, up: dict[str, Instance]) -> Path:
    """The file of the pair's curves; measured first where none is there.

    A calibration that does not fit into its time is stopped and not thinned out: each number in flight is then measured
    at least once, which makes a curve, and no verdict is believed, which no policy needs. Raises NotUp without a file.
    """
    found = known(options)
    if found is not None:
        return found
    config, folder = options.out / "calibrate.yaml", options.out / "calibration"
    config.write_text(json.dumps(_config(options, up), indent=1))
    _calibrate(options, config, folder)
    found = known(options)
    if found is None:
        raise NotUp(f"calibration wrote no curves; see {options.out / 'calibrate.log'}")
    return found


def known(options: Options) -> Path | None:
    """The file of curves that is there already: the one asked for, or that of a calibration into the same folder."""
    found = options.curves or options.out / "calibration" / "curves.yaml"
    return found if options.curves is not None or found.exists() else None


def read(path: Path) -> Curves:
    """The curves in a file. Raises NotUp with what is wrong with it."""
    curves, problems = read_curves(path)
    if curves is None:
        raise NotUp(f"{path}: {'; '.join(str(problem) for problem in problems)}")
    return curves


def _config(options: Options, up: dict[str, Instance]) -> dict[str, object]:
    urls = {name: {"url": up[name].url} for name in (SPECULATIVE, BASELINE)}
    return {"backends": urls, "placement": options.placements[0].value}


def _calibrate(options: Options, config: Path, folder: Path) -> None:
    # A budget that holds every number in flight asked for: a smaller one would leave some of them out.
    whole = least_budget_s(Aim(concurrencies=options.concurrency), len(options.concurrency))
    command = [*PYTHON, "-m", "proxy", "calibrate", str(config), "--out", str(folder)]
    command += ["--concurrency", ",".join(map(str, options.concurrency)), "--context", str(options.context)]
    command += ["--prompts", options.prompts.value, "--max-tokens", str(options.tokens)]
    command += ["--budget", f"{max(whole, options.calibrate_s):.0f}s"]
    with (options.out / "calibrate.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(options.calibrate_s)
        except subprocess.TimeoutExpired:
            print(f"calibration is cut after {options.calibrate_s:g} s", flush=True)
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_WRITE_WITHIN_S)
        finally:
            process.kill()
            process.wait()
