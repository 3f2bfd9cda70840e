"""From the times of requests to what is said of a run, and from runs to means with their intervals."""

from collections.abc import Sequence
from math import expm1, isfinite, log, nan
from statistics import fmean
from typing import NamedTuple

from proxy.errors import ConfigError
from proxy.lab.calibration.deciding.estimates import interval
from proxy.lab.simulation.goals import Slo
from proxy.lab.simulation.times import Times


class Tally(NamedTuple):
    """One run. Times are of requests that ended well; shares are of these and of those that failed, but not of those
    whose client left: `gone` are these, as a share of all. `goodput` is the share that kept the goals, and
    `goodput_tokens` theirs of all tokens that were wanted."""

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
    goodput_tokens: float
    failed: float
    gone: float
    retried: float


UNKNOWN = Tally(*[nan] * len(Tally._fields))
"""A run that was given up: what it would come to depends on when."""


class Overload(NamedTuple):
    """Far more came than the engines carried: the first seed whose run was given up for it, after so many virtual
    seconds, with so many requests waiting for a place."""

    seed: int
    after_s: float
    waiting: int


class Span(NamedTuple):
    """A mean over seeds with its 95 % interval; None where there are too few of them to tell."""

    mean: float
    low: float | None
    high: float | None


def tally(times: Times, slo: Slo) -> Tally:
    """What a run comes to. Raises `ConfigError` where no request ended well."""
    ended = len(times.e2e_s)
    if not ended:
        raise ConfigError("no request that counts had an answer; mend: raise --requests, or ask for less to go wrong")
    count, lasted, first = ended + times.failed, sorted(times.e2e_s), sorted(times.ttft_s)
    seen = zip(times.ttft_s, times.tpot_s, times.length, strict=True)
    good = [length for ttft_s, tpot_s, length in seen if slo.kept(ttft_s, tpot_s)]
    tokens = times.tokens
    return Tally(
        mean_e2e_s=fmean(lasted),
        p50_e2e_s=_rank(lasted, 0.5),
        p99_e2e_s=_rank(lasted, 0.99),
        mean_ttft_s=fmean(first),
        p99_ttft_s=_rank(first, 0.99),
        mean_tpot_s=fmean(times.tpot_s),
        goodput=len(good) / count,
        share_speculative=times.speculative / ended,
        waited=times.waited / ended,
        switches=float(times.switches),
        tok_s=tokens / (times.span_s - times.began_s),
        in_flight=times.in_flight_s / times.span_s,
        goodput_tokens=sum(good) / (tokens + times.failed_tokens),
        failed=times.failed / count,
        gone=times.gone / (count + times.gone),
        retried=times.retried / (count + times.gone),
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


def shortfall(ours: Sequence[float], best: Sequence[float]) -> Span:
    """By how much shares of ours are below the best's, where both had the same seeds."""
    return span([other - one for one, other in zip(ours, best, strict=True)])


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
