"""Life against the simulation: the same requests through the real proxy to embedded engines, and on a virtual clock.

Usage: scripts/bench life --help. What is compared is in life_scene.py, how it is played in life_play.py, on what in
life_stand.py; what the figures say is in docs/benchmarks/life.md.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import expm1, isfinite, log
from pathlib import Path
from statistics import fmean

from bench import provenance
from bench.life_play import Played, Unlike
from bench.life_scene import Outcome, Scene, simulated
from bench.life_stand import leapt, lived
from bench.tables import aligned

from proxy.lab.calibration.deciding.estimates import interval
from proxy.model import Placement

_SEPARATE, _SHARED = Placement.SEPARATE, Placement.SHARED
GLM, KIMI = "rtx6kpro_glm51_dcp4_ctx16384", "rtx6kpro_kimi26_v1_dcp1_ctx10k"
TREE, SEED = "h200_llama8b_sglang_tree_2_4_16", "seed"
# Slowed to some hundred tokens a second, which a proxy, two engines and a client carry in a tenth of a core.
SCENES = (
    Scene(GLM, _SEPARATE, "marginal", (0.3, 0.7), 1, 240),
    Scene(GLM, _SEPARATE, "overflow", (0.3, 0.7), 1, 240),
    Scene(KIMI, _SEPARATE, "marginal", (0.3, 0.6), 2, 240),
    Scene(TREE, _SEPARATE, "marginal", (0.3, 0.6), 8, 240),
    Scene(TREE, _SEPARATE, "overflow", (0.3, 0.6), 8, 240),
    Scene(SEED, _SEPARATE, "marginal", (0.3, 0.6), 2, 240),
    Scene(GLM, _SHARED, "threshold", (0.2, 0.6), 1, 240),
    Scene(TREE, _SHARED, "threshold", (0.2, 0.6), 8, 240),
    # Its regimes last a minute at least.
    Scene(GLM, _SHARED, "consolidate", (0.2, 0.6), 1, 480, 120),
    Scene(TREE, _SHARED, "consolidate", (0.2, 0.6), 8, 480, 120),
)

# One life is held against so many simulations that differ in where in a step a request comes.
DRAWS = 10
# By how much life and simulation may differ, on average over seeds: points of share, and a share of the mean time.
MAX_SHARE_APART, MAX_TIME_APART = 0.02, 0.10


@dataclass(frozen=True, slots=True)
class Pair:
    """One life and what the simulation makes of it: the means over its draws."""

    scene: str
    seed: int
    requests: int
    life: Outcome
    simulated: Outcome
    late_p99_s: float

    @property
    def share_apart(self) -> float:
        """Share of requests that speculative had more in life."""
        return self.life.share - self.simulated.share

    def apart(self, what: str) -> float:
        """By how much a mean time was longer in life, as a logarithm."""
        return log(getattr(self.life, what) / getattr(self.simulated, what))


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 where life and simulation agree in every scene."""
    options = _options(argv)
    scenes = [scene for scene in SCENES if all(word in scene.name for word in options.only)]
    jobs = [(scene, seed) for seed in range(1, options.seeds + 1) for scene in scenes]
    with ProcessPoolExecutor(options.jobs) as pool:
        pairs = list(pool.map(_leaping if options.leaping else _living, *zip(*jobs, strict=True)))
    print(table(pairs))
    if options.json is not None:
        options.json.write_text(json.dumps(_as_json(pairs, leaps=options.leaping), indent=1) + "\n")
    return 0 if all(agrees(own) for own in _by_scene(pairs).values()) else 1


def _leaping(scene: Scene, seed: int) -> Pair:
    return _paired(scene, seed, leaps=True)


def _living(scene: Scene, seed: int) -> Pair:
    return _paired(scene, seed, leaps=False)


def _paired(scene: Scene, seed: int, *, leaps: bool) -> Pair:
    offers = scene.offers(seed)
    for left in (1, 0):
        try:
            played, path = leapt(scene, offers, seed) if leaps else asyncio.run(lived(scene, offers, seed))
            break
        except (Unlike, OSError, TimeoutError) as error:
            if not left:
                raise
            print(f"again: {scene.name}: {error}", file=sys.stderr, flush=True)
    try:
        pair = against(scene, seed, played, path)
    finally:
        shutil.rmtree(path.parent)
    print(_line([pair]), file=sys.stderr, flush=True)
    return pair


def against(scene: Scene, seed: int, played: Played, path: Path) -> Pair:
    """What was played beside the simulation of the same."""
    offers = scene.offers(seed)
    drawn = [simulated(scene, path, offers, draw) for draw in range(DRAWS)]
    means = Outcome(*(fmean(getattr(one, what) for one in drawn) for what in Outcome.__slots__))
    return Pair(scene.name, seed, len(offers), played.outcome, means, played.late_p99_s)


def agrees(pairs: Sequence[Pair]) -> bool:
    """Whether life and simulation agree in one scene, on average over its seeds."""
    share = abs(fmean(pair.share_apart for pair in pairs))
    return share <= MAX_SHARE_APART and abs(expm1(fmean(pair.apart("e2e_s") for pair in pairs))) <= MAX_TIME_APART


def table(pairs: Sequence[Pair]) -> str:
    """A line for each scene, with the mean over seeds and its 95 % interval where there are three or more."""
    head = ("scene", "seeds", "requests", "share life", "simulated", "points apart", "mean s life", "simulated")
    head += ("apart", "first token apart", "sent late p99 ms", "agree")
    return aligned([head, *(_cells(own) for own in _by_scene(pairs).values())])


def _line(pairs: Sequence[Pair]) -> str:
    return " | ".join(_cells(pairs))


def _cells(pairs: Sequence[Pair]) -> tuple[str, ...]:
    life, known = ([getattr(pair, side) for pair in pairs] for side in ("life", "simulated"))
    return (
        pairs[0].scene,
        str(len(pairs)),
        str(sum(pair.requests for pair in pairs)),
        f"{fmean(one.share for one in life):.3f}",
        f"{fmean(one.share for one in known):.3f}",
        _spread([100 * pair.share_apart for pair in pairs], "{:+.1f}"),
        f"{fmean(one.e2e_s for one in life):.2f}",
        f"{fmean(one.e2e_s for one in known):.2f}",
        _spread([100 * expm1(pair.apart("e2e_s")) for pair in pairs], "{:+.1f} %"),
        _spread([100 * expm1(pair.apart("ttft_s")) for pair in pairs], "{:+.1f} %"),
        f"{1000 * max(pair.late_p99_s for pair in pairs):.0f}",
        "yes" if agrees(pairs) else "no",
    )


def _spread(values: Sequence[float], form: str) -> str:
    found = interval(values)
    return form.format(found.mean) + (f" ({found.low:+.1f} to {found.high:+.1f})" if isfinite(found.high) else "")


def _by_scene(pairs: Sequence[Pair]) -> dict[str, list[Pair]]:
    return {name: [pair for pair in pairs if pair.scene == name] for name in dict.fromkeys(p.scene for p in pairs)}


def _as_json(pairs: Sequence[Pair], *, leaps: bool) -> dict[str, object]:
    clock = "leaping" if leaps else "real"
    about = {"date": provenance.today(), "clock": clock, "machine": provenance.machine()}
    return {**about, "versions": provenance.versions({}), "pairs": [asdict(pair) for pair in pairs]}


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    out = argparse.ArgumentParser(prog="scripts/bench life", description=(__doc__ or "").partition("\n")[0])
    add = out.add_argument
    add("--only", type=lambda text: text.split(","), default=[], metavar="A,B", help="scenes with all of these in them")
    add("--seeds", type=int, default=3, metavar="N", help="lives of each scene (default 3)")
    add("--jobs", type=int, default=1, metavar="N", help="lives at the same time (default 1)")
    add("--leaping", action="store_true", help="all in one loop whose clock leaps: minutes take seconds")
    add("--json", type=Path, metavar="FILE", help="write every pair there")
    return out.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
