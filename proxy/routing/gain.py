"""What speculation gives at best: how much faster than the baseline its backend is at the load that suits it most.

For people alone: decisions weigh the load that there is (marginal.py, consolidate.py).
"""

from proxy.routing.curves import ContextCurves


def best_gain(context: ContextCurves) -> float | None:
    """Output tok/s of the speculative backend by those of the baseline with as many in flight, the highest of all that
    were measured on both; None where that is nothing. Between two points both are straight in log-log, so that the
    highest is at one of them."""
    speculative, baseline = context.speculative, context.baseline
    if speculative is None or baseline is None:
        return None
    counts = {point.in_flight for curve in (speculative, baseline) for point in curve.points}
    gains = [
        speculative.tok_s(n) / baseline.tok_s(n)
        for n in counts
        if not (speculative.extrapolated(n) or baseline.extrapolated(n))
    ]
    return max(gains, default=None)
