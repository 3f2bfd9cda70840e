"""From requests to the figures of an arm: of each step by the requests that came in it, and of all. Pure arithmetic."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pair.arrivals import Step

from proxy.lab.loadreport import Sample, Spread, Window, spread, switches, tokens_within

_FIELDS = Sample.__dataclass_fields__


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client process wrote it: which step it came in, how late it was sent, and its answer."""

    index: int
    step: int
    at_s: float
    late_s: float
    begin_s: float
    sample: Sample


@dataclass(frozen=True, slots=True)
class Figures:
    """A step or a whole arm. Times are seconds and of whole answers alone, `errors` counts the others by name.

    `shares` are by the proxy's word, empty without a proxy; `tok_s` the output within the step, or until the last
    answer; `in_flight` the mean number of requests there. `cached_share` are the prompt tokens that engines had cached,
    None where they tell of none.
    """

    requests: int
    whole: int
    errors: Mapping[str, int]
    shares: Mapping[str, float]
    switches: int
    tok_s: float
    in_flight: float
    cached_share: float | None
    e2e_s: Spread | None
    ttft_s: Spread | None
    tpot_s: Spread | None
    late_p99_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """The favoured role became `role`: `after_s` from the first step's beginning, which is `in_step_s` into step
    `step` (None: after the last one), with so many sequences in flight on each backend and so much demand by the
    proxy's count (None: its policy counts none)."""

    after_s: float
    step: int | None
    in_step_s: float
    role: str
    speculative: int
    baseline: int
    demand_tok_s: float | None


def request_of(line: Mapping[str, Any]) -> Request:
    """A request out of a line of drive.py."""
    sample = Sample(**{name: line[name] for name in _FIELDS})
    return Request(line["index"], line["step"], line["at_s"], line["late_s"], line["begin_s"], sample)


def of_steps(requests: Sequence[Request], steps: Sequence[Step]) -> list[Figures]:
    """The figures of each step: latencies of the requests that came in it, output while it lasted."""
    begin_s = requests[0].begin_s if requests else 0.0
    found = []
    for place, step in enumerate(steps):
        window = Window(begin_s, begin_s, begin_s + step.seconds)
        found.append(_figures([one for one in requests if one.step == place], requests, window))
        begin_s += step.seconds
    return found


def of_all(requests: Sequence[Request], steps: Sequence[Step]) -> Figures:
    """The figures of all requests; the time ends with the last answer, or with the last step where that is later."""
    begin_s = requests[0].begin_s if requests else 0.0
    ended_s = [one.sample.ended_at_s for one in requests]
    close_s = max([begin_s + sum(step.seconds for step in steps), *ended_s])
    return _figures(requests, requests, Window(begin_s, begin_s, close_s))


def changes(events: Sequence[Mapping[str, Any]], steps: Sequence[Step], began_at_s: float) -> list[Change]:
    """The changes of the favoured role in a proxy's journal, in their order; `began_at_s` is the beginning in the
    journal's seconds."""
    found = []
    for event in sorted(events, key=lambda event: float(event["at_s"])):
        if event["kind"] != "regime":
            continue
        said, after_s = event["numbers"], event["at_s"] - began_at_s
        step, in_step_s = _place(after_s, steps)
        held = said["speculative_in_flight"], said["baseline_in_flight"]
        found.append(Change(after_s, step, in_step_s, said["after"], *held, said.get("demand_tok_s") or None))
    return found


def _place(after_s: float, steps: Sequence[Step]) -> tuple[int | None, float]:
    """The step that lasts at that time, and how long it has; what is after all of them is counted from their end."""
    for place, step in enumerate(steps):
        if after_s < step.seconds:
            return place, after_s
        after_s -= step.seconds
    return None, after_s


def _figures(came: Sequence[Request], everyone: Sequence[Request], window: Window) -> Figures:
    samples = [one.sample for one in sorted(came, key=lambda one: one.index)]
    whole = [one for one in samples if one.error is None]
    backends = Counter(one.backend for one in whole if one.backend is not None)
    late = spread(one.late_s for one in came)
    length_s = window.length_s
    return Figures(
        requests=len(samples),
        whole=len(whole),
        errors=dict(Counter(one.error for one in samples if one.error is not None)),
        shares={backend: count / backends.total() for backend, count in sorted(backends.items())},
        switches=switches(one.backend for one in samples),
        tok_s=sum(tokens_within(one.sample, window) for one in everyone) / length_s,
        in_flight=sum(window.overlap_s(one.sample.sent_at_s, one.sample.ended_at_s) for one in everyone) / length_s,
        cached_share=_cached(whole),
        e2e_s=spread(one.e2e_s for one in whole),
        ttft_s=spread(one.ttft_s for one in whole),
        tpot_s=spread(one.tpot_s for one in whole),
        late_p99_s=late.p99 if late is not None else 0.0,
    )


def _cached(whole: Sequence[Sample]) -> float | None:
    """By the answers that tell of both, since an engine may tell of what is cached only where something is."""
    if all(one.cached_tokens is None for one in whole):
        return None
    prompts = sum(one.prompt_tokens or 0 for one in whole)
    return sum(one.cached_tokens or 0 for one in whole) / prompts if prompts else None
