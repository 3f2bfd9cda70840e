"""Whether what calibration computes and draws with is installed: the proxy itself does without. Nothing is imported."""

from importlib.util import find_spec

from proxy.errors import ConfigError

PACKAGES = ("scipy", "matplotlib", "jinja2")
"""The optional extra `calibrate`."""


def need() -> None:
    """Go on only with every package of the extra. Raises `ConfigError` that names the missing ones and the mend."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        mend = "pip install 'crossover-proxy[calibrate]', or in a checkout run scripts/calibrate once"
        raise ConfigError(f"not installed: {', '.join(missing)}, which this command needs; mend: {mend}")
