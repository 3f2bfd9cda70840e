"""What an embedded engine has seen of its requests: counters and histograms. Their text form is in exposition.py."""

from bisect import bisect_left
from collections import Counter

from proxy.lab.jobs import Job

_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
TTFT_BUCKETS = _SECONDS
E2E_BUCKETS = (*_SECONDS, 600.0, 1200.0, 1800.0, 2400.0)
GAP_BUCKETS = (
    *(0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8),
    *(1.0, 2.0, 4.0, 6.0, 8.0),
)
"""Bucket bounds in seconds as the real engine has them, so that queries written for it work here."""


class Histogram:
    """Counts of values by upper bound, with their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value, `times` over."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Observations:
    """Everything that is counted per request, by whether it streamed, and per HTTP route."""

    def __init__(self) -> None:
        self.ttft = {stream: Histogram(TTFT_BUCKETS) for stream in (False, True)}
        self.e2e = {stream: Histogram(E2E_BUCKETS) for stream in (False, True)}
        self.gap = Histogram(GAP_BUCKETS)
        self.prompt_tokens: Counter[bool] = Counter()
        self.generation_tokens: Counter[bool] = Counter()
        self.requests: Counter[bool] = Counter()
        self.http_requests: Counter[tuple[str, str]] = Counter()
        self.http_active: Counter[tuple[str, str]] = Counter()
        self.http_responses: Counter[tuple[str, str, int]] = Counter()

    def tokens(self, job: Job, count: int, now_s: float) -> None:
        """`count` new tokens of one sequence of a job arrived."""
        if job.first_at_s is None:
            self.ttft[job.answer.ask.stream].observe(now_s - job.opened_at_s)
        else:
            self.gap.observe((now_s - job.last_at_s) / count, count)

    def finished(self, job: Job, now_s: float) -> None:
        """Every sequence of a job ended by itself. As in the real engine, tokens are counted only now."""
        stream = job.answer.ask.stream
        self.e2e[stream].observe(now_s - job.opened_at_s)
        self.prompt_tokens[stream] += job.answer.prompt_tokens
        self.generation_tokens[stream] += job.answer.completion_tokens
        self.requests[stream] += len(job.choices)
