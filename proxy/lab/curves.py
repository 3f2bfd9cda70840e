"""Published curves as data: find one, read it, tell where it crosses. What an engine makes of one is not here."""

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from proxy.errors import ConfigError
from proxy.lab.step_time import FittedTime, ModelM, Point, StepTime, TableTime
from proxy.model import Role

# A strong, clean crossover at low load (between 4 and 8 sequences) and a few hundred tok/s, so that two engines, a
# proxy and a load client all have room on a small machine.
DEFAULT_CURVE = "rtx6kpro_glm51_dcp4_ctx16384"

# Where a curve does not say: what was published for three-token chains on the boxes most of these curves come from.
DEFAULT_ACCEPT_LENGTH = 2.2
DEFAULT_STEPS = 3
DEFAULT_PREFILL_TOKENS_PER_S = 8000.0

_PARAMETERS = ("t0", "m", "ne", "c", "d0", "d1", "k", "kc", "kappa", "a")


@dataclass(frozen=True, slots=True)
class Curve:
    """Throughput of both roles against concurrency, with where it comes from.

    `points` are output tok/s of the whole server, rising in concurrency. `verify_tokens` (V) and `accept_length`
    (tokens a sequence gains per step, the bonus token included) are None where nobody published them; `fit` is None
    where the formula does not describe the curve. `verified` is False where points are inferred, not measured.
    `num_steps` and `topk` are the drafting shape; `prefill_tokens_per_s` is per engine; `context_tokens` is the
    context of the measurement.
    """

    name: str
    hardware: str
    model: str
    engine: str
    spec_config: str
    verify_tokens: int | None
    accept_length: float | None
    points: tuple[Point, ...]
    fit: ModelM | None
    source: str
    verified: bool
    context_tokens: int = 0
    num_steps: int = DEFAULT_STEPS
    topk: int = 1
    prefill_tokens_per_s: float = DEFAULT_PREFILL_TOKENS_PER_S

    @property
    def draft_tokens(self) -> int:
        """Tokens verified per sequence and step: published, or what a chain of `num_steps` verifies."""
        return self.verify_tokens or self.num_steps + 1

    @property
    def tokens_per_step(self) -> float:
        """Tokens a speculative sequence gains per step: published, fitted, or the default for chains."""
        if self.accept_length is not None:
            return self.accept_length
        return self.fit.tau if self.fit is not None else min(DEFAULT_ACCEPT_LENGTH, self.num_steps + 1.0)

    def step_time(self, role: Role, *, fitted: bool = False) -> StepTime:
        """Step times of one role: from the table, or from the fit, which knows context. Raises `ConfigError`."""
        if not fitted:
            return TableTime(self.points, role, self.tokens_per_step if role is Role.SPECULATIVE else 1.0)
        if self.fit is None:
            raise ConfigError(f"curve {self.name} has no fit; use its table (leave --fitted away)")
        return FittedTime(self.fit, role, self.context_tokens)


def shipped() -> tuple[str, ...]:
    """Names of the curves that come with the project, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.json") if path.stem != "fits"))


def find(name: str) -> Curve:
    """The shipped curve of that name, or the one in the file at that path.

    Raises `ConfigError` that lists the known names, or says what is wrong with the file.
    """
    inside = _folder() / f"{name}.json"
    if Path(name).name == name and inside.is_file():
        return read(inside)
    if Path(name).is_file():
        return read(Path(name))
    raise ConfigError(f"no curve called {name!r} and no such file; known curves: {', '.join(shipped())}")


def read(path: Path) -> Curve:
    """The curve in a JSON file. A fit is looked up by the file's name in fits.json beside it or in the shipped one.

    Raises `ConfigError` naming the file and the mend.
    """
    try:
        raw = orjson.loads(path.read_bytes())
        return _decode(path.stem, raw, _fit_for(path, raw))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path}: not JSON ({error}); see the shipped curves for the format") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: not a curve ({error!r}); see the shipped curves for the format") from error


def crossing(curve: Curve) -> float | None:
    """The concurrency at which baseline first overtakes speculative; None where it never does so.

    The logarithm of the ratio is taken as straight between points, in the logarithm of concurrency. A curve on
    which baseline leads from the first point on has no crossing.
    """
    for left, right in pairwise(curve.points):
        lead, lag = (math.log(point.speculative / point.baseline) for point in (left, right))
        if lead > 0.0 >= lag:
            share = lead / (lead - lag)
            return float(left.concurrency * math.pow(right.concurrency / left.concurrency, share))
    return None


def _folder() -> Path:
    """The package's own curves (an installed wheel) first, else the checkout's config/curves."""
    here = Path(__file__).resolve().parent
    packaged = here / "curves"
    return packaged if packaged.is_dir() else here.parent.parent / "config" / "curves"


def _decode(name: str, raw: dict[str, Any], fit: ModelM | None) -> Curve:
    return Curve(
        name=name,
        hardware=raw["hardware"],
        model=raw["model"],
        engine=raw["engine"],
        spec_config=raw["spec_config"],
        verify_tokens=raw.get("verify_tokens_per_req"),
        accept_length=raw.get("accept_len"),
        points=_points(raw, fit),
        fit=fit,
        source=raw["source"],
        verified=raw["verified"] is True,
        context_tokens=raw.get("context_tokens") or 0,
        num_steps=raw.get("num_steps", DEFAULT_STEPS),
        topk=raw.get("topk", 1),
        prefill_tokens_per_s=float(raw.get("prefill_tokens_per_s", DEFAULT_PREFILL_TOKENS_PER_S)),
    )


def _points(raw: dict[str, Any], fit: ModelM | None) -> tuple[Point, ...]:
    """Rising points in tok/s of the whole server, from figures per server, per GPU, or as a ratio to a fit."""
    ratio = str(raw.get("unit", "")).startswith("speed-up ratio")
    if ratio and fit is None:
        raise ValueError("points are ratios, and no fit in fits.json gives the baseline they are ratios of")
    points = []
    for entry in sorted(raw["points"], key=lambda entry: float(entry["concurrency"])):
        concurrency = float(entry["concurrency"])
        scale = float(raw.get("server_multiplier", 1))
        if ratio and fit is not None:
            scale = fit.throughput(Role.BASELINE, concurrency) / float(entry["baseline"])
        points.append(Point(concurrency, scale * float(entry["spec"]), scale * float(entry["baseline"])))
    if not points or min(min(p.concurrency, p.speculative, p.baseline) for p in points) <= 0.0:
        raise ValueError("points must be a list of at least one point with values above zero")
    if any(a.concurrency == b.concurrency for a, b in pairwise(points)):
        raise ValueError("points name one concurrency twice")
    return tuple(points)


def _fit_for(path: Path, raw: dict[str, Any]) -> ModelM | None:
    for folder in (path.parent, _folder()):
        fits = folder / "fits.json"
        if not fits.is_file():
            continue
        for fit in orjson.loads(fits.read_bytes())["fits"].values():
            if path.stem in fit["curves"]:
                return _model(fit["params"], raw.get("verify_tokens_per_req"))
    return None


def _model(params: dict[str, float], verify_tokens: int | None) -> ModelM:
    if "tau" in params:
        tau, verified = params["tau"], params["V"]
    else:
        # One fit may cover several V: its accept lengths are called tau4 for V = 4 and so on.
        lengths = {int(key[3:]): value for key, value in params.items() if key.startswith("tau")}
        verified = verify_tokens if verify_tokens in lengths else min(lengths)
        tau = lengths[int(verified)]
    return ModelM(tau=tau, verify_tokens=verified, **{k: params[k] for k in _PARAMETERS if k in params})
