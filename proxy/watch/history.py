"""One row a second of what the proxy does: counts, thresholds, speeds, failures; half an hour of them.

Everything is read from what is counted anyway, so that requests pay nothing for it. Who asks for rows is in watch.py.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from proxy.dispatch import Desk
from proxy.metrics import Totals
from proxy.model import EngineLoad, Role
from proxy.state.backend import Backend

# Between two samples: as often as engines are asked for their load by default.
STEP_S = 1.0
# Half an hour, about a megabyte. What is older is Prometheus' to keep.
MAX_SAMPLES = 1800
# An engine's own count of tokens tells a speed between two polls. It holds until the next one is overdue: so much after
# the last one, or twice what lay between the last two, and never longer than the second.
OVERDUE_S = 2.0
SILENT_S = 5.0
# Answers tell all their tokens when they end: spread over so many steps they come nearer to the speed of the engine.
SPREAD = 10
# Two polls nearer than this tell mostly how late the one answer came: by its own clock where the engine says one.
MIN_APART_S = 0.5


class Sample(NamedTuple):
    """One step. `at_s` is monotonic seconds, told as unix ones; counts are sequences, as in the status; requests,
    failures and refusals are those of the step, and so are the means of TTFT and TPOT (None: no answer told one).
    `named` of the requests went where their client's header, `ruled` where a rule sent them, whatever the policy says.
    Speeds are output tok/s, by the engine's own count where it has one, else by the answers that ended in the step."""

    at_s: float
    speculative_in_flight: int
    baseline_in_flight: int
    waiting: int
    smoothed: float
    enter_at: int
    leave_at: int
    regime: Role
    speculative_requests: int
    baseline_requests: int
    speculative_tok_s: float | None
    baseline_tok_s: float | None
    speculative_ttft_s: float | None
    baseline_ttft_s: float | None
    speculative_tpot_s: float | None
    baseline_tpot_s: float | None
    failures: int
    refused: int
    named: int = 0
    ruled: int = 0


COLUMNS = Sample._fields


class History:
    """The samples of one proxy, oldest first."""

    def __init__(self, desk: Desk, totals: Callable[[], Totals], waiting: Callable[[], int]) -> None:
        self.samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._desk = desk
        self._totals = totals
        self._waiting = waiting
        self.last = totals()  # of the last sample
        self._last_at_s = desk.clock()
        self._speeds = (_Speed(), _Speed())
        self._owed = [0, 0]  # requests that were counted for a backend before it failed them

    def take(self) -> Sample:
        """Add the sample of this moment."""
        desk = self._desk
        desk.follow()
        now_s, totals, last, regime = desk.clock(), self._totals(), self.last, desk.regime
        step_s = max(now_s - self._last_at_s, 1e-3)
        first, second = desk.backends
        one, other = totals.speculative.since(last.speculative), totals.baseline.since(last.baseline)
        sample = Sample(
            now_s,
            first.book.in_flight,
            second.book.in_flight,
            self._waiting(),
            round(regime.smoothed, 2),
            desk.rules.enter_at,
            desk.rules.leave_at,
            regime.role,
            self._served(0, one.requests),
            self._served(1, other.requests),
            self._speeds[0].tok_s(first, one.tokens / step_s, now_s),
            self._speeds[1].tok_s(second, other.tokens / step_s, now_s),
            _mean(one.ttft_s, one.ttfts),
            _mean(other.ttft_s, other.ttfts),
            _mean(one.tpot_s, one.tpots),
            _mean(other.tpot_s, other.tpots),
            totals.failures - last.failures,
            totals.refused - last.refused,
            totals.named - last.named,
            totals.ruled - last.ruled,
        )
        self.samples.append(sample)
        self.last, self._last_at_s = totals, now_s
        return sample

    def _served(self, which: int, requests: int) -> int:
        """Requests of a step, less those of earlier steps that have gone to the other backend since."""
        served = requests + self._owed[which]
        self._owed[which] = min(served, 0)
        return max(served, 0)

    def since(self, at_s: float) -> list[Sample]:
        """The samples after a monotonic instant, oldest first."""
        found: list[Sample] = []
        for sample in reversed(self.samples):
            if sample.at_s <= at_s:
                break
            found.append(sample)
        return found[::-1]


def row(sample: Sample, offset_s: float) -> list[object]:
    """A sample as JSON tells it, in the order of COLUMNS; `offset_s` makes unix seconds of monotonic ones."""
    return [round(sample.at_s + offset_s, 3), *sample[1:]]


class _Speed:
    """Output tok/s of one backend, between the last two polls that told different counts or times."""

    __slots__ = ("_answered", "_apart_s", "_at_s", "_generated", "_polled_at_s", "_tok_s", "_url")

    def __init__(self) -> None:
        self._answered: deque[float] = deque(maxlen=SPREAD)
        self._url = ""
        self._at_s: float | None = None
        self._generated = 0.0
        self._tok_s: float | None = None
        self._polled_at_s = self._apart_s = 0.0

    def tok_s(self, backend: Backend, answered: float, now_s: float) -> float | None:
        """`answered` is what answers that ended tell, for engines that count no tokens."""
        self._answered.append(answered)
        load, polled_at_s = backend.load, backend.load_at_s
        generated = None if load is None else _generated(load)
        if load is None or generated is None:
            return round(sum(self._answered) / len(self._answered), 1)
        if backend.gives_nothing:
            return 0.0  # no byte of what it might have generated has come
        if polled_at_s is None or self._overdue(polled_at_s, now_s):
            return None
        at_s = polled_at_s if load.at_s is None else load.at_s
        if self._url != backend.url or self._at_s is None or generated < self._generated or at_s < self._at_s:
            self._tok_s = None  # another engine, or one that has begun anew
        elif at_s - self._at_s < MIN_APART_S:
            return self._tok_s
        else:
            self._tok_s = round((generated - self._generated) / (at_s - self._at_s), 1)
        self._url, self._at_s, self._generated = backend.url, at_s, generated
        return self._tok_s

    def _overdue(self, polled_at_s: float, now_s: float) -> bool:
        if polled_at_s != self._polled_at_s:
            self._polled_at_s, self._apart_s = polled_at_s, polled_at_s - self._polled_at_s
        return now_s - polled_at_s > min(max(OVERDUE_S, 2.0 * self._apart_s), SILENT_S)


def _generated(load: EngineLoad) -> float | None:
    """Output tokens since the engine's start; SGLang tells them as the last of its decode moments."""
    if load.generated is None and load.moments:
        return load.moments[-1]
    return load.generated


def _mean(total: float, count: int) -> float | None:
    return round(total / count, 6) if count else None
