"""What the numbers of a published curve count, and how they become output tok/s of the whole server."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.lab.step_time import ModelM
from proxy.model import Role

# The baseline that a curve of mere ratios gets: a dense model of 8B parameters on one H100, whose 158 tok/s for one
# request is published and whose cost per token was fitted to a throughput curve of that model and card.
NOMINAL = ModelM(t0=6.32, m=0.0, ne=1.0, c=0.01433, d0=2.696, d1=0.0, tau=2.25, verify_tokens=4)

# The length of answer that a curve of mean latencies gets: nothing but time is published there.
ANSWER_TOKENS = 256

_CARDS = re.compile("(\\d+)\\s*[x*\u00d7]", re.IGNORECASE)
_PARALLEL = re.compile(r"\b[TD]P\s*=?\s*(\d+)", re.IGNORECASE)
_CARD_KEYS = ("server_multiplier", "gpus", "num_gpus", "n_gpus")

Speeds = Mapping[Role, float]


@dataclass(frozen=True, slots=True)
class Unit:
    """How the figures of one file are read: `tok_s` takes a concurrency and what stands there for each role.

    `assumed`: what comes out is right as a ratio of the roles alone. `assumptions` say so in words.
    """

    name: str
    tok_s: Callable[[float, Speeds], dict[Role, float]]
    assumed: bool = False
    assumptions: tuple[str, ...] = ()


def unit_of(raw: Mapping[str, Any], fit: ModelM | None) -> Unit:
    """The unit of a file. Raises ValueError with the mend for one that is not known, or needs a number of GPUs."""
    name = str(raw.get("unit") or "output tok/s, whole server")
    said = name.lower()
    if re.search(r"ratio|speed.?up|relative|normali[sz]ed", said):
        return _ratios(name, fit)
    if re.match(r"1 ?/.*latency", said):
        return _inverse_latencies(name)
    if not re.search(r"tok(en)?s?( ?/ ?| per )s", said):
        raise ValueError(
            f"its unit is {name!r}; mend: convert it to 'output tok/s, whole server' (also known: 'output tok/s per "
            "GPU', 'output tok/s per request', 'speed-up ratio (baseline = 1)', '1/mean latency (1/s)')"
        )
    if re.search(r"(per|/) ?(gpu|card|accelerator|device)", said):
        return _per_card(name, raw)
    if re.search(r"(per|/) ?(request|user|stream|sequence|client)", said):
        return Unit(name, lambda concurrency, speeds: _scaled(speeds, concurrency))
    factor = _told_cards(raw) if raw.get("server_multiplier") is not None else 1.0
    return Unit(name, lambda _, speeds: _scaled(speeds, factor or 1.0))


def cards(hardware: str) -> int | None:
    """The number of accelerators that `8x RTX PRO 6000`, or else `TP=8`, names; None where none does."""
    found = _CARDS.match(hardware.strip()) or _PARALLEL.search(hardware)
    return int(found[1]) or None if found else None


def number(value: object) -> float | None:
    """A number written as one or as text; None for what is none. Infinite and NaN are given back as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _ratios(name: str, fit: ModelM | None) -> Unit:
    model = fit or NOMINAL
    whose = "its fit, whose scale is assumed" if fit else "a dense 8B model on one H100: 158 at one sequence"
    assumption = f"only ratios are published; the baseline's tok/s are those of {whose}"

    def tok_s(concurrency: float, speeds: Speeds) -> dict[Role, float]:
        baseline = model.throughput(Role.BASELINE, concurrency)
        # Where nobody wrote the baseline down it is what the unit says: 1.
        return {role: baseline * value / speeds.get(Role.BASELINE, 1.0) for role, value in speeds.items()} | {
            Role.BASELINE: baseline
        }

    return Unit(name, tok_s, assumed=True, assumptions=(assumption,))


def _inverse_latencies(name: str) -> Unit:
    assumption = f"only mean latencies are published; tok/s are those of answers of {ANSWER_TOKENS} tokens"
    return Unit(
        name,
        lambda concurrency, speeds: _scaled(speeds, concurrency * ANSWER_TOKENS),
        assumed=True,
        assumptions=(assumption,),
    )


def _per_card(name: str, raw: Mapping[str, Any]) -> Unit:
    count = _told_cards(raw) or cards(str(raw.get("hardware") or ""))
    if count is None:
        raise ValueError(
            f"its unit is {name!r} and its hardware names no number; mend: write hardware as '4x ...', or add "
            '"server_multiplier": 4'
        )
    assumption = f"published per GPU; times {count:g} for the whole server"
    return Unit(name, lambda _, speeds: _scaled(speeds, count), assumptions=(assumption,))


def _told_cards(raw: Mapping[str, Any]) -> float | None:
    for key in _CARD_KEYS:
        if raw.get(key) is not None:
            found = number(raw[key])
            if found is None or not 0.0 < found < float("inf"):
                raise ValueError(f"{key} is {raw[key]!r}; mend: the number of GPUs, above zero")
            return found
    return None


def _scaled(speeds: Speeds, factor: float) -> dict[Role, float]:
    return {role: factor * value for role, value in speeds.items()}
