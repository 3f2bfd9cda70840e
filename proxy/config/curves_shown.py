"""Measured speeds and their verdict as operators see them: sentences and JSON. Whether settings fit is not here."""

from typing import Any

from proxy.routing.curves import ContextCurves, Curves, SpeedCurve
from proxy.routing.verdict import Contrast, band, describe


def sentences(curves: Curves | None) -> list[str]:
    """The verdict of each bucket of context, a sentence each; empty without curves."""
    contexts = () if curves is None else curves.contexts
    return [f"at {each.context_tokens} tokens of context: {describe(each.verdict)}" for each in contexts]


def shown(curves: Curves | None) -> dict[str, Any]:
    """All that is known, as plain values for JSON; without curves `measured_at` is null and there are no contexts."""
    if curves is None:
        return {"measured_at": None, "contexts": []}
    return {
        "measured_at": curves.measured_at,
        "placement": curves.placement,
        "model": curves.model,
        "engines": {role.value: version for role, version in curves.versions.items()},
        "contexts": [_context(each) for each in curves.contexts],
    }


def _context(context: ContextCurves) -> dict[str, Any]:
    verdict = context.verdict
    found = band(context.contrasts, verdict)
    return {
        "context_tokens": context.context_tokens,
        "verdict": verdict.kind,
        "sentence": describe(verdict),
        "reason": verdict.reason,
        "crossings": [each._asdict() for each in verdict.crossings],
        "band": None if found is None else found._asdict(),
        "speculative": _points(context.speculative),
        "baseline": _points(context.baseline),
        "contrasts": [_contrast(each) for each in context.contrasts],
        "speculative_prefill_tok_s": context.prefill_tok_s[0],
        "baseline_prefill_tok_s": context.prefill_tok_s[1],
    }


def _points(curve: SpeedCurve | None) -> list[dict[str, Any]]:
    return [] if curve is None else [point._asdict() for point in curve.points]


def _contrast(contrast: Contrast) -> dict[str, Any]:
    # An edge that is not known is infinite, which JSON has no word for: orjson writes null.
    return contrast._asdict()
