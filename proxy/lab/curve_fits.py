"""Fits of the step time formula as they stand in files: in a curve's own, or in one for several curves beside it."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from proxy.lab.curve_json import json_in
from proxy.lab.step_time import ModelM

_PARAMETERS = ("t0", "m", "ne", "c", "d0", "d1", "k", "kc", "kappa", "a")
_NEEDED = ("t0", "c", "d0")
_MEND = "mend: correct the fit, or leave it away: the points are enough"

Parameters = Mapping[str, Any]


def own_fit(raw: Mapping[str, Any]) -> Parameters | None:
    """The parameters of the fit in a curve's own file (`fit`, or the nearest of `fits`); None without one."""
    single = raw.get("fit")
    several = raw.get("fits")
    candidates = [single] if single else list(several.values() if isinstance(several, dict) else several or ())
    if not candidates:
        return None
    if not all(isinstance(fit, dict) and isinstance(fit.get("params"), dict) for fit in candidates):
        raise ValueError(f"its fit has no params; {_MEND}")
    parameters: Parameters = min(candidates, key=_error_of)["params"]
    return parameters


def shared_fit(folders: Iterable[Path], name: str) -> Parameters | None:
    """The parameters that a fits.json in one of the folders has for the curve of that name."""
    for folder in folders:
        file = folder / "fits.json"
        if file.is_file():
            try:
                fits = json_in(file)["fits"].values()
                found = [fit["params"] for fit in fits if name in fit["curves"]]
            except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{file} beside it has no fits as the shipped one has them ({error!r})") from error
            if found:
                parameters: Parameters = found[0]
                return parameters
    return None


def model_of(parameters: Parameters, verify_tokens: int | None) -> ModelM:
    """The formula with these parameters. Raises ValueError naming what is missing or no number."""
    numbers = {key: _number(key, value) for key, value in parameters.items() if value is not None}
    missing = [key for key in _NEEDED if key not in numbers]
    if missing:
        raise ValueError(f"its fit lacks {', '.join(missing)}; {_MEND}")
    tau, verified = _tau(numbers, verify_tokens)
    optional = {"m": 0.0, "ne": 1.0, "d1": 0.0}
    return ModelM(
        tau=tau, verify_tokens=verified, **{**optional, **{k: numbers[k] for k in _PARAMETERS if k in numbers}}
    )


def _tau(numbers: Mapping[str, float], verify_tokens: int | None) -> tuple[float, float]:
    """Accepted length and V. One fit may cover several V: its lengths are called tau4 for V = 4 and so on."""
    if "tau" in numbers:
        verified = numbers.get("V", verify_tokens)
        if verified is None:
            raise ValueError(f"its fit has tau and no V; {_MEND}")
        return numbers["tau"], verified
    lengths = {int(key[3:]): value for key, value in numbers.items() if key[:3] == "tau" and key[3:].isdigit()}
    if not lengths:
        raise ValueError(f"its fit has no tau; {_MEND}")
    among = verify_tokens if verify_tokens in lengths else min(lengths)
    return lengths[int(among)], float(among)


def _error_of(fit: Mapping[str, Any]) -> float:
    errors = [fit.get("mape_baseline_pct"), fit.get("mape_spec_pct")]
    return sum(error for error in errors if isinstance(error, int | float))


def _number(key: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever stands there; what is no number raises
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{key} of its fit is no number; {_MEND}")
    return number
