"""From what was seen at both ends of a window, and within it, to speeds and judgements. Pure arithmetic.

Looking is done in cell_run.py; what an engine tells is read in engine_word.py.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from proxy.lab.calibration.stand.engine_word import Counters, Reading
from proxy.lab.calibration.stand.tally import Seen
from proxy.lab.calibration.values import Quantiles, Source
from proxy.lab.loadreport import Sample, Window, percentile, spread, tokens_within

# Below this share of what was asked for, an engine's batch is a queue's doing and not that of answers that change over.
_FULL_SHARE = 0.9

# More tokens than ours by this share are somebody else's; drafts accepted past an answer's end stay below it.
_MAX_SURPLUS = 0.05

# Sequences that may be a late count, or an answer that changes over: one, or this share of many.
_FEW_SHARE = 0.03

# Decode steps of a window below which their times are chance. SGLang leaves out those after a prefill, so that hardly
# one is counted with many short answers in flight.
LEAST_STEPS = 3

# Of the chunks that clients saw, so many may come without a count before the counts are not believed: the next chunk
# that tells makes good for them.
_MAX_UNTOLD = 0.05


class Mark(NamedTuple):
    """One end of a window: the clock, and what engine and clients had counted just then."""

    at_s: float
    reading: Reading | None
    counters: Counters
    seen: Seen


class Decoding(NamedTuple):
    """What decode moments say of a window: tok/s while decoding, mean batch, tokens a sequence gains in a step."""

    tok_s: float
    batch: float
    tokens_per_step: float
    generated: float


class Count(NamedTuple):
    """Tokens of a window as clients got them, and what they were counted by."""

    tokens: float
    source: Source


def decoding(begin: Mark, end: Mark, size: int) -> Decoding | None:
    """The engine's own speed between two marks; None without moments, with too few, or where it began anew in between.

    Data-parallel ranks step side by side, so what they do in a second of their own adds up over as many of them as can
    have had work: with fewer sequences than ranks, only so many.
    """
    if begin.reading is None or end.reading is None or end.reading.moments is None:
        return None
    before = begin.reading.moments or (0.0,) * len(end.reading.moments)
    steps, batches, us, _, _, generated = (
        late - early for early, late in zip(before, end.reading.moments, strict=True)
    )
    if steps < LEAST_STEPS or min(batches, us, generated) <= 0:
        return None
    lanes = min(end.reading.ranks, size)
    return Decoding(generated / (us / 1e6) * lanes, batches / steps * lanes, generated / batches, generated)


def count(begin: Mark, end: Mark, samples: Sequence[Sample]) -> Count | None:
    """The tokens of a window by the most exact way that is open; None where nothing told any.

    An engine's counter that grows with every token goes before a spread; one that grows when requests end goes last,
    since what it adds in a short window is chance.
    """
    chunks, untold = end.seen.chunks - begin.seen.chunks, end.seen.untold - begin.seen.untold
    if chunks > 0 and untold <= _MAX_UNTOLD * chunks:
        return Count(end.seen.tokens - begin.seen.tokens, Source.USAGE)
    exact = _grown(begin.counters.generated, end.counters.generated)
    told = [sample for sample in samples if sample.completion_tokens is not None]
    if exact is not None and end.counters.finished is None:
        return Count(exact, Source.COUNTER)
    if told:
        window = Window(begin.at_s, begin.at_s, end.at_s)
        return Count(math.fsum(tokens_within(sample, window) for sample in told), Source.SPREAD)
    late = exact if exact is not None else _grown(begin.counters.finished, end.counters.finished)
    return None if late is None else Count(late, Source.COUNTER)


def is_queued(looks: Sequence[Reading], decoded: Decoding | None, size: int) -> bool:
    """Whether the engine ran fewer sequences than were asked of it: by its mean batch, or by what waits in most looks.

    One or a few wait now and then until the step has ended that they came in; with the engine at its limit even one is
    a queue. Counted steps are those after which nobody came, and so lack somebody more often than all: what ran in the
    looks counts too.
    """
    told = (decoded.batch if decoded is not None else None, mean_running(looks))
    batches = [batch for batch in told if batch is not None]
    if batches and max(batches) < _FULL_SHARE * size:
        return True
    return _most(looks, lambda look: look.waiting > _few(size) or (look.waiting > 0 and look.at_limit))


def is_disturbed(looks: Sequence[Reading], size: int) -> bool:
    """Whether the engine had more sequences than ours in most looks."""
    return _most(looks, lambda look: look.sequences > size + _few(size))


def exceeds(begin: Mark, end: Mark, decoded: Decoding | None, ours: Count | None, size: int) -> bool:
    """Whether the engine made more tokens than our clients got; two steps of every sequence may be on their way."""
    if ours is None or ours.source is not Source.USAGE:
        return False
    if decoded is not None:
        made, under_way = decoded.generated, 2 * size * decoded.tokens_per_step
    else:
        grown = _grown(begin.counters.generated, end.counters.generated)
        if grown is None or end.counters.finished is not None:
            return False
        made, under_way = grown, 2.0 * size
    return made > ours.tokens * (1 + _MAX_SURPLUS) + under_way


def accept_length(begin: Mark, end: Mark) -> float | None:
    """Tokens a step verified, the bonus token included: by what was drafted in the window, else as the engine says."""
    drafts = _grown(begin.counters.drafts, end.counters.drafts)
    accepted = _grown(begin.counters.accepted, end.counters.accepted)
    if drafts and accepted is not None:
        return 1 + accepted / drafts
    return end.reading.accept_length if end.reading is not None else None


def cache_hit_rate(begin: Mark, end: Mark, samples: Sequence[Sample]) -> float | None:
    """The share of prompt tokens that were in the prefix cache: of our own requests, else the engine's counters."""
    told = [
        (one.prompt_tokens, one.cached_tokens) for one in samples if one.prompt_tokens and one.cached_tokens is not None
    ]
    if told:
        return sum(cached for _, cached in told) / sum(prompt for prompt, _ in told)
    looked_up = _grown(begin.counters.looked_up, end.counters.looked_up)
    found = _grown(begin.counters.found, end.counters.found)
    if looked_up and found is not None:
        return min(1.0, found / looked_up)
    return end.reading.cache_hit_rate if end.reading is not None else None


def mean_running(looks: Sequence[Reading]) -> float | None:
    """The mean number of sequences that ran."""
    return math.fsum(look.running for look in looks) / len(looks) if looks else None


def mean_kv_use(looks: Sequence[Reading]) -> float | None:
    """The mean share of the KV pool in use."""
    told = [look.kv_use for look in looks if look.kv_use is not None]
    return math.fsum(told) / len(told) if told else None


def quantiles(values: Iterable[float | None]) -> Quantiles | None:
    """How the known values lie; None when none is known."""
    found = spread(values)
    return None if found is None else Quantiles(found.mean, found.p10, found.p50, found.p90, found.p99)


def top_hundredth(values: Iterable[float]) -> float | None:
    """The value that one in a hundred exceeds; None where there are none."""
    ordered = sorted(values)
    return percentile(ordered, 0.99) if ordered else None


def _few(size: int) -> float:
    return max(1.0, _FEW_SHARE * size)


def _most(looks: Sequence[Reading], holds: Callable[[Reading], bool]) -> bool:
    return 2 * sum(map(holds, looks)) > len(looks)


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a counter grew; None where it is not told or was reset."""
    return None if before is None or after is None or after < before else after - before
