"""From a curve's file, as decoded JSON, to a curve. Strict in its numbers and forgiving in all that may be unknown.

Units are in curve_units.py, fits in curve_fits.py, the file's place in curves.py. Every ValueError says the mend.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.lab import curve_fits
from proxy.lab.curve import (
    DEFAULT_ACCEPT_LENGTH,
    DEFAULT_PREFILL_TOKENS_PER_S,
    DEFAULT_STEPS,
    Curve,
    Speed,
    table,
)
from proxy.lab.curve_units import Unit, number, unit_of
from proxy.lab.step_time import ModelM, Point
from proxy.model import ROLES, Role

_ARM_KEYS = {Role.SPECULATIVE: "spec", Role.BASELINE: "baseline"}
_UNTOLD = "not given"
# What a point may have: besides the arms themselves, figures of theirs, as `spec_ttft_ms`.
_KNOWN_KEYS = re.compile(r"concurrency|interpolated|(?:spec|baseline)(?:_.*)?")
_EXAMPLE = '{"concurrency": 1, "spec": 80.9, "baseline": 92.7}'

# Drafting steps as people write them: `num_steps 2`, `steps=4`, `num_speculative_tokens=3`, `depth 3`, `K=8`, `3/1/4`.
_STEPS = re.compile(r"(?:steps|num_speculative_tokens|depth|\bk)[ =:<]+(\d+)|\b(\d+)/\d+/\d+\b", re.IGNORECASE)
_TOPK = re.compile(r"topk[ =:]+(\d+)|\b\d+/(\d+)/\d+\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Arms:
    """What the points of a file say of both roles."""

    points: tuple[Point, ...]
    alone: Mapping[Role, tuple[Speed, ...]]
    inferred: frozenset[float]


def decode(name: str, raw: object, shared: curve_fits.Parameters | None = None) -> Curve:
    """The curve that a file of that name holds; `shared` are the parameters of its fit where the file has none.

    Raises ValueError that says what is wrong and the mend.
    """
    if not isinstance(raw, dict) or "points" not in raw:
        raise ValueError(f'it has no points; mend: an object with "points": [{_EXAMPLE}, ...]')
    verify_tokens = _whole(raw, "verify_tokens_per_req")
    parameters = curve_fits.own_fit(raw) or shared
    fit = None if parameters is None else curve_fits.model_of(parameters, verify_tokens)
    unit = unit_of(raw, fit)
    accept_length = _accept_length(raw)
    num_steps, guess = _steps(raw, verify_tokens, accept_length, fit)
    arms = _arms(raw, unit, accept_length or DEFAULT_ACCEPT_LENGTH)
    return Curve(
        name=name,
        hardware=_text(raw, "hardware") or _UNTOLD,
        model=_text(raw, "model") or _UNTOLD,
        engine=_text(raw, "engine") or _UNTOLD,
        spec_config=_text(raw, "spec_config") or _UNTOLD,
        verify_tokens=verify_tokens,
        accept_length=accept_length,
        points=arms.points,
        fit=fit,
        source=_text(raw, "source") or _UNTOLD,
        verified=raw.get("verified") is True,
        context_tokens=round(_quantity(raw, "context_tokens", least=0.0) or 0.0),
        num_steps=num_steps,
        topk=_topk(raw, verify_tokens, num_steps),
        prefill_tokens_per_s=_quantity(raw, "prefill_tokens_per_s") or DEFAULT_PREFILL_TOKENS_PER_S,
        title=_text(raw, "name") or name,
        kind=_text(raw, "kind") or _UNTOLD,
        workload=_text(raw, "workload"),
        notes=_text(raw, "notes"),
        speculative_only=arms.alone[Role.SPECULATIVE],
        baseline_only=arms.alone[Role.BASELINE],
        inferred=arms.inferred,
        assumed_baseline=unit.assumed or raw.get("assumed_baseline") is True,
        assumptions=(*unit.assumptions, *guess, *_reservations(raw)),
    )


# ------------------------------------------------------------------ points


def _arms(raw: Mapping[str, Any], unit: Unit, tokens_per_step: float) -> _Arms:
    entries = raw["points"]
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"points must be a list of at least one point; mend: [{_EXAMPLE}, ...]")
    speeds: dict[Role, dict[float, float]] = {role: {} for role in ROLES}
    inferred, seen = set(), set[float]()
    for entry in entries:
        concurrency = _concurrency(entry)
        if concurrency in seen:
            raise ValueError(f"points name concurrency {concurrency:g} twice; mend: keep one of them, or their mean")
        seen.add(concurrency)
        if entry.get("interpolated"):
            inferred.add(concurrency)
        for role, speed in _entry_speeds(entry, concurrency, unit).items():
            speeds[role][concurrency] = speed
    for role in ROLES:
        if not speeds[role]:
            raise ValueError(f"no point has a {_ARM_KEYS[role]} value; mend: give at least one, in {unit.name}")
    return _paired(speeds, frozenset(inferred), tokens_per_step)


def _paired(speeds: Mapping[Role, Mapping[float, float]], inferred: frozenset[float], tokens_per_step: float) -> _Arms:
    both = sorted(set(speeds[Role.SPECULATIVE]) & set(speeds[Role.BASELINE]))
    if not both:
        return _filled(speeds, tokens_per_step)
    points = tuple(Point(at, speeds[Role.SPECULATIVE][at], speeds[Role.BASELINE][at]) for at in both)
    alone = {role: tuple(Speed(at, speeds[role][at]) for at in sorted(set(speeds[role]) - set(both))) for role in ROLES}
    return _Arms(points, alone, inferred)


def _filled(speeds: Mapping[Role, Mapping[float, float]], tokens_per_step: float) -> _Arms:
    """Roles measured at different concurrencies throughout: each is read off the other's line, and all is inferred."""
    every = sorted(set(speeds[Role.SPECULATIVE]) | set(speeds[Role.BASELINE]))
    lines = {}
    for role in ROLES:
        emitted = tokens_per_step if role is Role.SPECULATIVE else 1.0
        time = table([Speed(*row) for row in sorted(speeds[role].items())], role, emitted)
        lines[role] = {at: speeds[role].get(at) or 1000.0 * emitted * at / time.step_ms(at, 0.0) for at in every}
    points = tuple(Point(at, lines[Role.SPECULATIVE][at], lines[Role.BASELINE][at]) for at in every)
    return _Arms(points, dict.fromkeys(ROLES, ()), frozenset(every))


def _concurrency(entry: object) -> float:
    if not isinstance(entry, dict) or entry.get("concurrency") is None:
        raise ValueError(f"a point without concurrency; mend: each is {_EXAMPLE}")
    return _above_zero(entry["concurrency"], "the concurrency of a point")


def _entry_speeds(entry: Mapping[str, Any], concurrency: float, unit: Unit) -> dict[Role, float]:
    """What one point says, in tok/s of the whole server; a role that is null there is left out, or has no key at all.
    One that has no key beside a key that nobody knows is misspelt: left out, it would change the verdict."""
    absent = [key for key in _ARM_KEYS.values() if key not in entry]
    strange = [key for key in entry if not _KNOWN_KEYS.fullmatch(str(key))] if absent else []
    if strange:
        raise ValueError(
            f"the point at concurrency {concurrency:g} has {strange[0]!r} and no {absent[0]!r}; mend: name it so, or "
            f'give "{absent[0]}": null where it was not measured'
        )
    raw = {
        role: _above_zero(entry[key], f"{key} at concurrency {concurrency:g}")
        for role, key in _ARM_KEYS.items()
        if entry.get(key) is not None
    }
    return unit.tok_s(concurrency, raw)


def _above_zero(value: object, what: str) -> float:
    found = number(value)
    if found is None or not 0.0 < found < math.inf:
        raise ValueError(f"{what} is {value!r}, and must be a number above zero; mend: correct it, or null if unknown")
    return found


# ------------------------------------------------------------------ the drafting shape


def _steps(
    raw: Mapping[str, Any], verify_tokens: int | None, accept_length: float | None, fit: ModelM | None
) -> tuple[int, tuple[str, ...]]:
    """Drafting steps as given, as `spec_config` says, as a chain of V has, or the default; and the guess in words."""
    told = _whole(raw, "num_steps") or _matched(_STEPS, raw)
    chain = verify_tokens - 1 if verify_tokens else None
    gained = max(accept_length or 1.0, fit.tau if fit is not None else 1.0)
    # An engine cannot gain more tokens a step than it drafts and one: what was measured wins over what was written.
    steps = max(told or chain or DEFAULT_STEPS, math.ceil(gained - 1.0))
    if told or chain:
        return steps, ()
    return steps, (f"{steps} drafting steps are assumed: the source does not say how many",)


def _topk(raw: Mapping[str, Any], verify_tokens: int | None, num_steps: int) -> int:
    """As told; else what it takes to draft V tokens in so many steps: more than one a step is a tree."""
    return _whole(raw, "topk") or _matched(_TOPK, raw) or max(1, math.ceil(((verify_tokens or 1) - 1) / num_steps))


def _matched(pattern: re.Pattern[str], raw: Mapping[str, Any]) -> int | None:
    found = pattern.search(_text(raw, "spec_config") or "")
    return int(next(filter(None, found.groups()))) or None if found else None


def _accept_length(raw: Mapping[str, Any]) -> float | None:
    found = _quantity(raw, "accept_len")
    if found is not None and found < 1.0:
        raise ValueError(
            f"accept_len is {found:g}; it counts the token that plain decoding gives too, so that it is at least 1; "
            "mend: for an acceptance rate r of k drafted tokens write 1 + r k, or null"
        )
    return found


# ------------------------------------------------------------------ plain fields


def _reservations(raw: Mapping[str, Any]) -> tuple[str, ...]:
    said = raw.get("verified")
    return (f"verified only in part: {said}",) if isinstance(said, str) and said else ()


def _text(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    return None if value is None or value == "" else str(value)


def _quantity(raw: Mapping[str, Any], key: str, *, least: float | None = None) -> float | None:
    value = raw.get(key)
    if value is None or value == "":
        return None
    found = number(value)
    if found is None or not math.isfinite(found) or (found <= 0.0 if least is None else found < least):
        kind = "a number above zero" if least is None else f"a number of at least {least:g}"
        raise ValueError(f"{key} is {value!r}; mend: {kind}, or null where nobody published it")
    return found


def _whole(raw: Mapping[str, Any], key: str) -> int | None:
    found = _quantity(raw, key)
    if found is not None and found != round(found):
        raise ValueError(f"{key} is {found:g}; mend: a whole number, or null where nobody published it")
    return None if found is None else round(found)
