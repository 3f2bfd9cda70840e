"""Published curves and their fits as text for a terminal, and as JSON. Pictures are in curve_plots.py."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from proxy.lab.curves import Curve, crossings, kind_of
from proxy.lab.law_check import PROBES, LawCheck
from proxy.lab.loadtable import aligned
from proxy.model import Role

if TYPE_CHECKING:
    from proxy.lab.fitting import Fit

_HEAD = ("name", "kind", "crossing", "points", "hardware", "model", "source")
_WORDS = tuple(place for place, head in enumerate(_HEAD) if head in {"kind", "hardware", "model"})
# Long enough to tell boxes and models apart, short enough that a row fits a wide terminal.
_MAX_CELL = 30
_UNITS = {
    "t0": "ms",
    "m": "ms",
    "ne": "tokens",
    "c": "ms per token",
    "k": "ms per token of context and sequence",
    "kc": "ms per token of context",
    "kappa": "ms per sequence",
    "a": "times plain attention",
    "d0": "ms",
    "d1": "ms per sequence",
    "tau": "tokens a step",
    "verify_tokens": "tokens verified (V)",
}


def listing(curves: Sequence[Curve]) -> str:
    """One line for each curve."""
    return aligned([_HEAD, *(_row(curve) for curve in curves)], left=_WORDS)


def listing_json(curves: Sequence[Curve]) -> bytes:
    """The same as JSON, every field whole."""
    return orjson.dumps([_facts(curve) for curve in curves], option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def description(curve: Curve) -> str:
    """All that is known of one curve: where it is from, its points with their ratio, and where it crosses."""
    told = {
        "what": curve.title,
        "hardware": curve.hardware,
        "model": curve.model,
        "engine": curve.engine,
        "speculation": curve.spec_config,
        "V": str(curve.verify_tokens or "not published"),
        "accepted": "not published" if curve.accept_length is None else f"{curve.accept_length:g} tokens a step",
        "context": f"{curve.context_tokens} tokens" if curve.context_tokens else "short, or not given",
        "workload": curve.workload or "not given",
        "source": f"{curve.source} ({curve.kind}, {'verified' if curve.verified else 'NOT verified'})",
    }
    remarks = [*curve.assumptions, *([curve.notes] if curve.notes else [])]
    lines = [f"{key:<12} {value}" for key, value in told.items()] + [f"{'note':<12} {said}" for said in remarks]
    return "\n".join(["\n".join(lines), "", _points(curve) + "".join(f"{line}\n" for line in _winners(curve))])


def fitted(fit: "Fit", laws: Mapping[str, LawCheck | None]) -> str:
    """A fit: parameters, how near it comes, and what the law alone would have foretold."""
    names = [name for name in _UNITS if name in fit.free or getattr(fit.model, name) != 0.0]
    rows = [("parameter", "value", "unit")]
    rows += [(name, f"{getattr(fit.model, name):.5g}", _UNITS[name]) for name in names]
    seen, back = fit.errors, fit.held_out
    lines = [
        f"mean error   baseline {seen.baseline:.1%}, speculative {seen.speculative:.1%}; greatest {seen.greatest:.1%}"
        f" ({fit.observations} figures)"
    ]
    if back is None:
        lines.append("held out     too few points to keep any back")
    else:
        lines.append(
            f"held out     baseline {back.baseline:.1%}, speculative {back.speculative:.1%}; greatest "
            f"{back.greatest:.1%} ({fit.held_out_points} figures that a second fit did not see)"
        )
    lines += [f"note         {said}" for said in fit.remarks]
    lines += [f"law          {name}: {_law(check)}" for name, check in laws.items()]
    return f"{', '.join(fit.curves)}\n\n{aligned(rows)}\n" + "".join(f"{line}\n" for line in lines)


def _row(curve: Curve) -> tuple[str, ...]:
    found = crossings(curve)
    at = f"{found[0].at:.3g} {found[0].faster_above}" if found else "-"
    kind = f"{kind_of(curve)}{'' if curve.verified else ' (inferred)'}{' (ratios)' if curve.assumed_baseline else ''}"
    cells = (_short(curve.hardware), _short(curve.model), curve.kind)
    return (curve.name, kind, at, str(len(curve.points)), *cells)


def _facts(curve: Curve) -> dict[str, Any]:
    return {
        "name": curve.name,
        "hardware": curve.hardware,
        "model": curve.model,
        "engine": curve.engine,
        "spec_config": curve.spec_config,
        "context_tokens": curve.context_tokens,
        "kind": kind_of(curve),
        "crossings": [{"at": found.at, "faster_above": found.faster_above} for found in crossings(curve)],
        "points": len(curve.points),
        "source": curve.source,
        "source_kind": curve.kind,
        "verified": curve.verified,
        "assumed_baseline": curve.assumed_baseline,
    }


def _points(curve: Curve) -> str:
    speeds = {role: dict(curve.speeds(role)) for role in Role}
    rows = [("concurrency", "speculative tok/s", "baseline tok/s", "ratio", "")]
    for at in sorted({*speeds[Role.SPECULATIVE], *speeds[Role.BASELINE]}):
        drafted, plain = speeds[Role.SPECULATIVE].get(at), speeds[Role.BASELINE].get(at)
        ratio = f"{drafted / plain:.3f}" if drafted and plain else "-"
        cells = (_speed(drafted), _speed(plain), ratio)
        rows.append((f"{at:g}", *cells, "inferred" if at in curve.inferred else ""))
    return aligned(rows)


def _winners(curve: Curve) -> Iterator[str]:
    found = crossings(curve)
    yield f"kind         {kind_of(curve)}"
    for one in found:
        yield f"crossing     {one.faster_above} is faster above {one.at:.3g} in flight"
    if not found:
        yield "crossing     none: one role is ahead throughout"


def _law(check: LawCheck | None) -> str:
    if check is None:
        return "too few points"
    beyond = f", {check.outside} cells need the baseline beyond its points" if check.outside else ""
    return (
        f"from the baseline and {PROBES} probes, with tau {check.tau:.2f}: error "
        f"{check.median_error:.1%} (median), {check.greatest_error:.1%} (greatest); winner right in "
        f"{check.winners_right} of {check.winners}{beyond}"
    )


def _speed(tok_s: float | None) -> str:
    return "-" if tok_s is None else f"{tok_s:.1f}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 3].rstrip()}..."
