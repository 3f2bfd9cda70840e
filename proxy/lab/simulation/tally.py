"""From the times of requests to what is said of a run, and from runs to means with their intervals."""

from collections.abc import Sequence
from math import expm1, isfinite, log
from statistics import fmean
from typing import NamedTuple

from proxy.lab.calibration.deciding.estimates import interval
from proxy.lab.simulation.trial import Times


class Slo(NamedTuple):
    """What a request must keep to count as good: time to the first token, and for each token after it."""

    ttft_s: float = 2.0
    tpot_s: float = 0.05


class Tally(NamedTuple):
    """One run. Shares are of its requests."""

    mean_e2e_s: float
    p50_e2e_s: float
    p99_e2e_s: float
    mean_ttft_s: float
    p99_ttft_s: float
    mean_tpot_s: float
    goodput: float
    share_speculative: float
    waited: float
    switches: float
    tok_s: float
    in_flight: float


class Span(NamedTuple):
    """A mean over seeds with its 95 % interval; None where there are too few of them to tell."""

    mean: float
    low: float | None
    high: float | None


def tally(times: Times, slo: Slo) -> Tally:
    """What a run of at least one request comes to."""
    count = len(times.e2e_s)
    lasted, first = sorted(times.e2e_s), sorted(times.ttft_s)
    good = sum(
        ttft_s <= slo.ttft_s and tpot_s <= slo.tpot_s for ttft_s, tpot_s in zip(times.ttft_s, times.tpot_s, strict=True)
    )
    return Tally(
        mean_e2e_s=fmean(lasted),
        p50_e2e_s=_rank(lasted, 0.5),
        p99_e2e_s=_rank(lasted, 0.99),
        mean_ttft_s=fmean(first),
        p99_ttft_s=_rank(first, 0.99),
        mean_tpot_s=fmean(times.tpot_s),
        goodput=good / count,
        share_speculative=times.speculative / count,
        waited=times.waited / count,
        switches=float(times.switches),
        tok_s=times.tokens / (times.span_s - times.began_s),
        in_flight=times.in_flight_s / times.span_s,
    )


def mean(tallies: Sequence[Tally]) -> Tally:
    """The mean of each number over runs."""
    return Tally(*(fmean(column) for column in zip(*tallies, strict=True)))


def span(values: Sequence[float]) -> Span:
    """A mean over seeds and its interval."""
    found = interval(values)
    known = isfinite(found.high)
    return Span(found.mean, found.low if known else None, found.high if known else None)


def regret(ours: Sequence[float], best: Sequence[float]) -> Span:
    """By how much ours are above the best, as a share, where both had the same seeds; ratios are averaged in logs."""
    found = span([log(one / other) for one, other in zip(ours, best, strict=True)])
    return Span(*(None if value is None else expm1(value) for value in found))  # type: ignore[arg-type]  # a mean is


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
