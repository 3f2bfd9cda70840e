"""What a load measured: one request, one level, one report, and the arithmetic between them.

Nothing is sent here (lab/loadcall.py), walked (lab/loadwalk.py) or drawn (lab/loadtable.py). All instants are seconds
of one monotonic clock.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import stdev

from proxy.model import Reason, Role

# An arm that asks for one backend may lose single requests to failover and still speak for it; one in twenty moves its
# throughput by less than the differences that matter, more than that is a mixture of both backends.
MIN_HONOURED = 0.95
# A level is cut into so many parts of equal length to see how far its throughput wanders: fewer leave the spread itself
# a guess, and more are each shorter than a request. Twice the error of their mean, by Student's t for so few.
PARTS, PARTS_T = 8, 2.36

# Requests of several connections that are sent this near each other have no order: the server reads them as they come.
# Less, and one change under a crowd counts as three; no policy changes twice within it.
TOGETHER_S = 0.05


class Loop(StrEnum):
    """Closed: a fixed number of requests in flight. Open: arrivals at a mean rate, whatever is in flight."""

    CLOSED = "closed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class LevelSpec:
    """One strength of load: requests in flight (closed) or requests per second (open)."""

    loop: Loop
    value: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One request, as its client saw it.

    `first_at_s` and `last_at_s` are the first and last chunk with content; a delta with only a role has none, and an
    answer that was not streamed has neither. Token counts are the server's own (`usage`), None when it gave none, and
    count all `sequences` (the request's `n`); `cached_tokens` are those of the prompt that its prefix cache held.
    `backend` and `reason` are what the proxy said in its headers. `error` is None for a whole answer, else a short
    name: `status 503`, `error_event`, `abort`, `cut`, `timeout`, `unreachable`, `malformed`, `oversize`.
    """

    sent_at_s: float
    ended_at_s: float
    first_at_s: float | None = None
    last_at_s: float | None = None
    sequences: int = 1
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    backend: str | None = None
    reason: str | None = None
    error: str | None = None
    cached_tokens: int | None = None

    @property
    def e2e_s(self) -> float:
        """Request sent to answer ended, in seconds."""
        return self.ended_at_s - self.sent_at_s

    @property
    def ttft_s(self) -> float | None:
        """Request sent to first content, in seconds; None without content or without a stream."""
        return None if self.first_at_s is None else self.first_at_s - self.sent_at_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token of one sequence after its first: (last - first content) / (tokens - 1).

        None where it cannot be known: no usage, one token, or all content in one chunk (a buffering server).
        """
        if self.completion_tokens is None or self.first_at_s is None or self.last_at_s is None:
            return None
        steps = self.completion_tokens / self.sequences - 1
        spell_s = self.last_at_s - self.first_at_s
        return spell_s / steps if steps > 0 and spell_s > 0 else None

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens of this request per second of its whole life, waiting included; None without usage."""
        if self.completion_tokens is None or self.e2e_s <= 0:
            return None
        return self.completion_tokens / self.e2e_s


@dataclass(frozen=True, slots=True)
class Window:
    """The time of one level: its load began at `started_at_s`, what counts is (`opened_at_s`, `closed_at_s`]."""

    started_at_s: float
    opened_at_s: float
    closed_at_s: float

    @property
    def length_s(self) -> float:
        """Seconds that count."""
        return self.closed_at_s - self.opened_at_s

    def holds(self, at_s: float) -> bool:
        """Whether an instant counts; half-open, so that adjoining windows share none."""
        return self.opened_at_s < at_s <= self.closed_at_s

    def overlap_s(self, begin_at_s: float, end_at_s: float) -> float:
        """Seconds of a span that lie in the window."""
        return max(0.0, min(end_at_s, self.closed_at_s) - max(begin_at_s, self.opened_at_s))


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: their mean and percentiles by nearest rank, so that each percentile is a value that occurred."""

    count: int
    mean: float
    p10: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Level:
    """One level's figures, over the requests that ended within its window.

    `asked` is the backend that every request of the level asked for (None: the proxy's own choice) and `honoured` the
    share of answers that came from it. `requests` ended whole, `errors` counts the others by name. `output_tokens` and
    `tokens_per_s` are those of `tokens_within`; None when an answer told no usage (`without_usage` counts them).
    `tokens_per_s_within` is half of the 95 % interval of tokens_per_s, by how it wandered within the level.
    `in_flight` is the mean number of requests in flight. `shares` and `reasons` are by the proxy's headers;
    `switches` counts the changes of backend among requests that went where one is favoured (reason `regime`), in the
    order sent, warm-up and the change from the level before included; None where no request did.
    """

    spec: LevelSpec
    asked: Role | None
    window_s: float
    requests: int
    errors: Mapping[str, int]
    output_tokens: float | None
    tokens_per_s: float | None
    in_flight: float
    request_tokens_per_s: Spread | None
    ttft_s: Spread | None
    tpot_s: Spread | None
    e2e_s: Spread | None
    shares: Mapping[str, float]
    switches: int | None
    reasons: Mapping[str, int]
    honoured: float | None
    without_usage: int
    tokens_per_s_within: float | None = None

    @property
    def failed(self) -> int:
        """Requests that ended in an error."""
        return sum(self.errors.values())

    @property
    def pure(self) -> bool:
        """Whether the level speaks for the backend it asked for; True when it asked for none."""
        return self.asked is None or (self.honoured is not None and self.honoured >= MIN_HONOURED)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One level of the proxy's own choice beside the two arms, in output tok/s; None where an arm is not known.

    `gain` is the own choice over the better arm: 0.1 is ten percent more. Nearer to 0 than `noise` it is none: half of
    its 95 % interval, by how both wandered within their levels.
    """

    spec: LevelSpec
    own: float | None
    only_speculative: float | None
    only_baseline: float | None
    gain: float | None
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A whole load: levels of the proxy's own choice in the order walked, then those that asked for one backend."""

    config: Mapping[str, object]
    levels: tuple[Level, ...]
    only: tuple[Level, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    comparisons: tuple[Comparison, ...] = ()


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of values in rising order, at least one; `share` is in (0, 1]."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Iterable[float | None]) -> Spread | None:
    """How the known values lie; None when none is known."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    p10, p50, p90, p99 = (percentile(ordered, share) for share in (0.1, 0.5, 0.9, 0.99))
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), p10, p50, p90, p99)


def tokens_within(sample: Sample, window: Window) -> float:
    """The output tokens of one request that belong to the window; 0 without usage.

    Its tokens are spread evenly between its first and its last content (sent to ended where it was not streamed), and
    the part of that spell within the window counts. So a request across the edge counts by its part, whatever the
    window's length against the request's, and adjoining windows add up to the whole. Counting only requests that
    ended inside would favour short ones, counting chunks would call several tokens of a speculative step one.
    """
    if sample.completion_tokens is None:
        return 0.0
    begin_at_s = sample.sent_at_s if sample.first_at_s is None else sample.first_at_s
    end_at_s = sample.ended_at_s if sample.last_at_s is None else sample.last_at_s
    if end_at_s <= begin_at_s:
        return float(sample.completion_tokens) if window.holds(end_at_s) else 0.0
    return sample.completion_tokens * window.overlap_s(begin_at_s, end_at_s) / (end_at_s - begin_at_s)


def switches(backends: Iterable[str | None]) -> int:
    """How often a backend differs from the one before it; unknown ones are passed over."""
    known = [backend for backend in backends if backend is not None]
    return sum(before != after for before, after in pairwise(known))


def summarize(spec: LevelSpec, samples: Sequence[Sample], window: Window, asked: Role | None = None) -> Level:
    """The figures of one level out of all samples of a walk; those of other levels count only by their tokens."""
    ended = [sample for sample in samples if window.holds(sample.ended_at_s)]
    whole = [sample for sample in ended if sample.error is None]
    backends = Counter(sample.backend for sample in whole if sample.backend is not None)
    tokens, without_usage = _output_tokens(samples, window)
    return Level(
        spec=spec,
        asked=asked,
        window_s=window.length_s,
        requests=len(whole),
        errors=dict(Counter(sample.error for sample in ended if sample.error is not None)),
        output_tokens=tokens,
        tokens_per_s=tokens / window.length_s if tokens is not None and window.length_s > 0 else None,
        in_flight=_mean_in_flight(samples, window),
        request_tokens_per_s=spread(sample.tokens_per_s for sample in whole),
        ttft_s=spread(sample.ttft_s for sample in whole),
        tpot_s=spread(sample.tpot_s for sample in whole),
        e2e_s=spread(sample.e2e_s for sample in whole),
        shares={backend: count / backends.total() for backend, count in sorted(backends.items())},
        switches=_switches_of_level(samples, window),
        reasons=dict(Counter(sample.reason for sample in whole if sample.reason is not None)),
        honoured=sum(sample.backend == asked for sample in whole) / len(whole) if asked and whole else None,
        without_usage=without_usage,
        tokens_per_s_within=None if tokens is None else _half_width(samples, window),
    )


def _output_tokens(samples: Sequence[Sample], window: Window) -> tuple[float | None, int]:
    """Tokens generated within the window (None: not known) and the whole answers in it that told no usage."""
    present = [sample for sample in samples if window.overlap_s(sample.sent_at_s, sample.ended_at_s) > 0]
    silent = sum(sample.error is None and sample.completion_tokens is None for sample in present)
    return (None if silent else math.fsum(tokens_within(sample, window) for sample in present)), silent


def _half_width(samples: Sequence[Sample], window: Window) -> float | None:
    """Half of the 95 % interval of a window's tok/s, by those of its parts; None of no length."""
    length_s = window.length_s / PARTS
    if length_s <= 0:
        return None
    begins = [window.opened_at_s + part * length_s for part in range(PARTS)]
    parts = [Window(window.started_at_s, begin, begin + length_s) for begin in begins]
    speeds = [math.fsum(tokens_within(sample, part) for sample in samples) / length_s for part in parts]
    return PARTS_T * stdev(speeds) / math.sqrt(PARTS)


def _mean_in_flight(samples: Sequence[Sample], window: Window) -> float:
    if window.length_s <= 0:
        return 0.0
    return math.fsum(window.overlap_s(sample.sent_at_s, sample.ended_at_s) for sample in samples) / window.length_s


def _switches_of_level(samples: Sequence[Sample], window: Window) -> int | None:
    """What is sent elsewhere by another reason (a burst, a failover, a probe) lies between others and is no switch."""
    kept = [one for one in samples if one.reason == Reason.REGIME and one.sent_at_s < window.closed_at_s]
    kept.sort(key=lambda one: one.sent_at_s)
    begin = sum(one.sent_at_s < window.started_at_s for one in kept)
    if begin == len(kept):
        return None
    return switches(_in_order(kept[max(0, begin - 1) :]))


def _in_order(sent: Sequence[Sample]) -> list[str | None]:
    """The backends in the order sent. Requests sent within TOGETHER_S of the first of them may have been read in any
    order: those that went where the one before went come first."""
    ordered: list[str | None] = []
    begin = 0
    while begin < len(sent):
        last = sent[begin].sent_at_s + TOGETHER_S
        together = [one.backend for one in sent[begin:] if one.sent_at_s <= last]
        before = ordered[-1] if ordered else together[0]
        ordered += sorted(together, key=lambda backend: backend != before)
        begin += len(together)
    return ordered


def compare(own: Sequence[Level], only: Sequence[Level]) -> tuple[Comparison, ...]:
    """Each own level beside the arms at the same strength; an arm that was not honoured counts as not known."""
    arms = {(level.asked, level.spec): level for level in only if level.pure}
    rows = []
    for level in own:
        both = [arms.get((role, level.spec)) for role in (Role.SPECULATIVE, Role.BASELINE)]
        fast, base = (None if arm is None else arm.tokens_per_s for arm in both)
        better = max((arm for arm in both if arm is not None), key=lambda arm: arm.tokens_per_s or 0.0, default=None)
        known = level.tokens_per_s is not None and fast is not None and base is not None
        gain, noise = _gain(level, better) if known and better is not None else (None, None)
        rows.append(Comparison(level.spec, level.tokens_per_s, fast, base, gain, noise))
    return tuple(rows)


def _gain(own: Level, better: Level) -> tuple[float | None, float | None]:
    """By how much more one gives than the other, and half of the 95 % interval of that."""
    if not own.tokens_per_s or not better.tokens_per_s:
        return (None if not better.tokens_per_s else -1.0), None
    times = own.tokens_per_s / better.tokens_per_s
    shares = [(level.tokens_per_s_within or 0.0) / (level.tokens_per_s or 1.0) for level in (own, better)]
    return times - 1, times * math.hypot(*shares)
