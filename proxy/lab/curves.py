"""Published curves by name: which are shipped, and the one that is meant. What a curve is stands in curve.py."""

from pathlib import Path

import orjson

from proxy.errors import ConfigError
from proxy.lab.curve import Curve, CurveCrossing, CurveKind, crossing, crossings, kind_of, slowed
from proxy.lab.curve_files import decode
from proxy.lab.curve_fits import shared_fit
from proxy.lab.curve_json import json_in

__all__ = [
    "DEFAULT_CURVE",
    "Curve",
    "CurveCrossing",
    "CurveKind",
    "crossing",
    "crossings",
    "find",
    "kind_of",
    "read",
    "shipped",
    "slowed",
]

# A strong, clean crossover at low load (between 4 and 8 sequences) and a few hundred tok/s, so that two engines, a
# proxy and a load client all have room on a small machine.
DEFAULT_CURVE = "rtx6kpro_glm51_dcp4_ctx16384"

# Fits of several curves share one file, which lies beside the curves and is none.
_FITS = "fits"

# Many names help nobody: an unknown one is answered with those that look alike, or with as many as one can read.
_MAX_NAMES = 12


def shipped() -> tuple[str, ...]:
    """Names of the curves that come with the project, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.json") if not _is_side_table(path)))


def find(name: str) -> Curve:
    """The shipped curve of that name, or the one in the file at that path.

    Raises `ConfigError` that lists known names, or says what is wrong with the file.
    """
    inside = _folder() / f"{name}.json"
    if Path(name).name == name and inside.is_file():
        return read(inside)
    if Path(name).is_file():
        return read(Path(name))
    raise ConfigError(f"no curve called {name!r} and no such file; {_known(name)}")


def read(path: Path) -> Curve:
    """The curve in a JSON file. A fit is taken from the file itself, else from fits.json beside it or the shipped one.

    Raises `ConfigError` naming the file and the mend.
    """
    if _is_side_table(path):
        raise ConfigError(f"{path}: a table beside the curves, not a curve; mend: name a file that has points")
    try:
        return decode(path.stem, json_in(path), shared_fit((path.parent, _folder()), path.stem))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); mend: check the path") from error
    except orjson.JSONDecodeError as error:
        mend = "see the shipped curves for the format; a value that is missing is null, never NaN"
        if path.suffix in {".yaml", ".yml"}:
            mend = "what `crossover calibrate` writes is read by `simulate` and `replay`, and shown by its report.html"
        raise ConfigError(f"{path}: not JSON ({error}); mend: {mend}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not a curve: {error}") from error


def _is_side_table(path: Path) -> bool:
    return path.stem == _FITS or path.stem.startswith("_")


def _known(name: str) -> str:
    """What to say to someone who asked for a name that is not there."""
    names = shipped()
    asked = name.lower().removesuffix(".json")
    alike = [known for known in names if asked in known.lower()]
    if alike:
        return f"known curves like it: {', '.join(alike[:_MAX_NAMES])}"
    families = sorted({known.partition("_")[0] for known in names})
    return f"known curves begin with {', '.join(families)}; mend: `crossover curves list` lists all {len(names)}"


def _folder() -> Path:
    """The package's own curves (an installed wheel) first, else the checkout's config/curves."""
    here = Path(__file__).resolve().parent
    packaged = here / "curves"
    return packaged if packaged.is_dir() else here.parent.parent / "config" / "curves"
