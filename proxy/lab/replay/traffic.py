"""Requests as they came, ready to be served anew, with what became of them. How a log becomes that is in reading.py."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean
from typing import NamedTuple

from proxy.lab.replay.events import InForce
from proxy.lab.simulation.traces import Trace
from proxy.model import ROLES, Role, Traits

_CHAT = "/v1/chat/completions"


class Was(NamedTuple):
    """What became of a request in life; `ttft_s` where it streamed."""

    role: Role
    duration_s: float
    ttft_s: float | None
    tpot_s: float | None


class Came(NamedTuple):
    """A request: when it came (seconds from the first), the tokens of its prompt that no cache held, and the tokens of
    each of its sequences. `heard_tokens` is what the proxy learned of that, 0 where the engine did not say.

    `prompt_tokens` are all of the prompt. `counts` says whether it is part of what is compared; the others only keep
    the engines as busy as they were. `was` is None in traces.
    """

    at_s: float
    prompt_tokens: int
    uncached_tokens: int
    tokens: int
    heard_tokens: float
    route: str
    traits: Traits
    counts: bool = True
    was: Was | None = None
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Means:
    """Means over requests, tokens; `context` is what a sequence that decodes has behind it."""

    prompt: float
    output: float
    context: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests in their order of coming, and what was in force while most of them came, where that is known.

    `began_at_s` is the instant of the first one in unix seconds, None where only gaps are known. `sent_to` is the role
    that got most of them; `pace` is how many times as fast as in life they come.
    """

    requests: tuple[Came, ...]
    began_at_s: float | None = None
    in_force: InForce | None = None
    share_in_force: float = 1.0
    sent_to: Role | None = None
    pace: float = 1.0

    @property
    def counted(self) -> list[int]:
        """The places of the requests that count."""
        return [place for place, came in enumerate(self.requests) if came.counts]

    @property
    def means(self) -> Means:
        """What its requests are like; each sequence by itself."""
        rows = self.requests
        tokens = sum(came.tokens for came in rows)
        context = sum(came.tokens * (came.prompt_tokens + came.tokens / 2) for came in rows)
        return Means(fmean(came.prompt_tokens for came in rows), tokens / len(rows), context / max(tokens, 1))


def paced(traffic: Traffic, times: float) -> Traffic:
    """The same requests, coming so many times as fast: what became of them in life is another story then."""
    if times == 1.0:
        return traffic
    rows = tuple(came._replace(at_s=came.at_s / times, was=None) for came in traffic.requests)
    return replace(traffic, requests=rows, pace=times)


def peaks(traffic: Traffic) -> dict[Role, int]:
    """The most sequences that each backend had in flight at once, as far as the traffic tells where they went."""
    edges: dict[Role, list[tuple[float, int]]] = {role: [] for role in ROLES}
    for came in traffic.requests:
        if came.was is not None:
            weight = came.traits.weight
            edges[came.was.role] += [(came.at_s, weight), (came.at_s + came.was.duration_s, -weight)]
    return {role: max(accumulate(change for _, change in sorted(edges[role])), default=0) for role in ROLES}


def of_trace(trace: Trace) -> Traffic:
    """A recorded trace, at its own pace."""
    rows = (
        Came(
            row.at_s,
            row.prompt_tokens,
            row.prompt_tokens,
            row.tokens,
            float(row.tokens),
            _CHAT,
            Traits(1, True, None, 4 * row.prompt_tokens, prefix=row.blocks, conversation=row.conversation),
            blocks=row.blocks,
        )
        for row in trace.rows
    )
    return Traffic(without_edges(rows, 0.0))


# Engines that were empty fill, and policies with a memory find their regime, in three minutes; of a short log more than
# a tenth would be too much to lose.
_EDGE_SHARE, _EDGE_S = 0.1, 180.0


def without_edges(rows: Iterable[Came], late_s: float) -> tuple[Came, ...]:
    """The same requests, of which those at either end do not count.

    The first meet engines that are not yet as full as they were. Of the last a log holds only those that ended before
    it did, which are the short ones: those that came in its last `late_s` seconds, which nearly all of them take at
    most, are no sample.
    """
    kept = list(rows)
    if not kept:
        return ()
    first_s, last_s = kept[0].at_s, kept[-1].at_s
    edge_s = min(_EDGE_SHARE * (last_s - first_s), max(late_s, _EDGE_S))
    early_s, late_from_s = first_s + edge_s, last_s - min(late_s, edge_s)
    return tuple(
        came if came.counts and early_s <= came.at_s <= late_from_s else came._replace(counts=False) for came in kept
    )


def pieces(traffic: Traffic, most: int, parts: int, gap_s: float) -> Traffic:
    """A sample of about `most` requests: so many stretches of it, evenly spaced, one after the other with a gap. The
    first tenth of each, which meets empty engines, does not count."""
    rows = traffic.requests
    if len(rows) <= most:
        return traffic
    length, taken, moved_s = most // parts, list[Came](), 0.0
    for part in range(parts):
        first = round(part * (len(rows) - length) / max(parts - 1, 1))
        stretch = rows[first : first + length]
        shift_s, filled_at = moved_s - stretch[0].at_s, round(_EDGE_SHARE * length)
        taken += [
            came._replace(at_s=came.at_s + shift_s, counts=came.counts and place >= filled_at)
            for place, came in enumerate(stretch)
        ]
        moved_s = taken[-1].at_s + gap_s
    return replace(traffic, requests=tuple(taken))
