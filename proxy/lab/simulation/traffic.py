"""Kinds of traffic by the names that the command line gives them. What they are is in arrivals.py and beside it."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from math import sqrt
from pathlib import Path

from proxy.errors import ConfigError
from proxy.lab.options import positive
from proxy.lab.simulation.arrivals import LIKE, Arrivals, Closed, Gamma, Sizes
from proxy.lab.simulation.swings import Alternating
from proxy.lab.simulation.traces import read_trace
from proxy.lab.simulation.turns import GAP_S, MEAN_TURNS, Turns

KINDS = (
    f"poisson, gamma[:CV], closed:CLIENTS, alternating:LOW/HIGH/SECONDS, turns[:MEAN[/GAP_S]], {', '.join(LIKE)}, "
    "or a trace's file (CSV as Azure's, JSONL as Mooncake's)"
)

# Of gamma where none is said: a shape of one half, which the engines' own benchmarks call a burstiness of 0.5.
BURSTY = sqrt(2.0)


def traffic(said: str, sizes: Sizes) -> Arrivals:
    """The kind of that name; `sizes` are for those that bring none. Raises `ConfigError` with the mend."""
    name, _, value = said.partition(":")
    try:
        if name in _MAKES:
            return _MAKES[name](value, sizes)
    except (ValueError, ArgumentTypeError) as error:
        raise ConfigError(f"--arrivals {said}: {error}; mend: {KINDS}") from error
    if said in LIKE:
        return LIKE[said]
    if not Path(said).is_file():
        raise ConfigError(f"--arrivals {said}: neither a kind of traffic nor a file; mend: {KINDS}")
    return read_trace(Path(said))


def _poisson(value: str, sizes: Sizes) -> Arrivals:
    if value:
        raise ValueError("it takes no number")
    return Gamma(1.0, sizes)


def _alternating(value: str, sizes: Sizes) -> Arrivals:
    parts = value.split("/")
    if len(parts) != 3:
        raise ValueError("it takes two loads and seconds, as in alternating:0.1/0.7/60")
    low, high, period_s = map(positive(float), parts)
    return Alternating(low, high, period_s, sizes)


def _turns(value: str, _sizes: Sizes) -> Arrivals:
    mean, _, gap_s = value.partition("/")
    turns = Turns(positive(float)(mean) if mean else MEAN_TURNS, positive(float)(gap_s) if gap_s else GAP_S)
    if turns.mean_turns < 1.0:
        raise ValueError("a conversation has a question at least")
    return turns


_MAKES: dict[str, Callable[[str, Sizes], Arrivals]] = {
    "poisson": _poisson,
    "gamma": lambda value, sizes: Gamma(positive(float)(value) if value else BURSTY, sizes),
    "closed": lambda value, sizes: Closed(positive(int)(value), sizes),
    "alternating": _alternating,
    "turns": _turns,
}
