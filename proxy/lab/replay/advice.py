"""What follows from a replay for the person who must decide: leave it, change it and to what, or that nothing is known.

Numbers come in, sentences and configuration keys go out. How they are laid out is in report.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from proxy.lab.replay.noise import MIN_BLOCKS, Difference
from proxy.model import Policy

# Less is not worth a change, however sure it is: the same engines differ by as much from one start to the next.
WORTH = 0.01
# What rounds to nothing in a sentence.
_VISIBLE = 0.0005
# Traffic that lasted for less than what `consolidate` looks back on, half an hour, is one moment of a day.
MOMENT_S = 1800.0
# Between these the simulation describes the box: beyond, its speeds or its traffic are not those of the log.
TRUSTED = (0.8, 1.25)

# Of ways that are as good, the one that needs no number, which was found on this very log and holds for it alone.
_RATHER = (Policy.AUTO, Policy.MARGINAL, Policy.CONSOLIDATE, Policy.OVERFLOW, Policy.THRESHOLD, Policy.PINNED)
_BY_CURVES = (Policy.AUTO, Policy.MARGINAL, Policy.CONSOLIDATE)


class Kind(StrEnum):
    """What is advised."""

    CHANGE = "change"
    LEAVE = "leave"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """One way, as advice looks at it. `routing` as in Candidate; the first of all is the present configuration.
    `carries` says whether the engines keep up with what came."""

    name: str
    mean_e2e_s: float
    difference: Difference
    routing: Mapping[str, Any] | None
    carries: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """`chosen` is the place of the way to take, None where the routing stays; `routing` its keys."""

    kind: Kind
    sentences: tuple[str, ...]
    chosen: int | None = None
    routing: Mapping[str, Any] = field(default_factory=dict)

    def yaml(self) -> str:
        """The keys as they stand in the configuration file; empty where nothing changes."""
        if not self.routing:
            return ""
        return "routing:\n" + "".join(f"  {key}: {_plain(value)}\n" for key, value in self.routing.items())


def advise(found: Sequence[Found], needed_s: float | None, ratio: float | None, span_s: float = float("inf")) -> Advice:
    """What to do. `needed_s` is how long a log must be for an interval, None where this one is; `ratio` is the measured
    mean by the simulated one, None where nothing was measured; `span_s` is how long the traffic lasted."""
    present = found[0]
    doubts = tuple(_doubts(ratio))
    configurable = [place for place, one in enumerate(found) if place and one.routing is not None]
    carrying = [place for place in configurable if found[place].carries]
    if not present.carries:
        return _overloaded(found, carrying, doubts)
    if not carrying:
        return Advice(Kind.LEAVE, (*doubts, _NO_OTHER if configurable else _NOT_ASKED))
    configurable = carrying
    best = min(configurable, key=lambda place: found[place].mean_e2e_s)
    if needed_s is not None:
        return Advice(Kind.UNKNOWN, (*doubts, _too_short(found[best], present, needed_s)))
    if not found[best].difference.sure or found[best].difference.share > -WORTH:
        return Advice(Kind.LEAVE, (*doubts, _leave(found[best], present), *_controls(found, present)))
    place = _chosen(found, configurable, found[best])
    chosen = found[place]
    said = (*doubts, _change(chosen, present), *_why_not_best(chosen, found[best]), *_controls(found, chosen))
    if doubts:
        return Advice(Kind.UNKNOWN, said)
    return _change_to(chosen, place, (*said, *_of_a_moment(span_s)))


_NOT_ASKED = "No policy was asked for beside the present one."
_NO_OTHER = "Leave it as it is: no other policy that was tried carries what came."


def _change_to(chosen: Found, place: int, said: tuple[str, ...]) -> Advice:
    routing = chosen.routing or {}
    if routing["policy"] in _BY_CURVES and "curves_file" not in routing:
        said = (*said, "It needs the curves.yaml of `crossover calibrate` as routing.curves_file.")
    return Advice(Kind.CHANGE, said, place, routing)


def _overloaded(found: Sequence[Found], carrying: Sequence[int], doubts: tuple[str, ...]) -> Advice:
    """What to do where the present way does not keep up: nothing can be held against its times."""
    said = (*doubts, "By these speeds more comes than the engines carry under the present configuration.")
    if not carrying:
        return Advice(Kind.UNKNOWN, (*said, _NONE_CARRIES))
    place = min(carrying, key=lambda place: found[place].mean_e2e_s)
    best = found[place]
    said = (*said, f"{_named(best, capital=True)} carries it: {best.mean_e2e_s:.2f} s for the mean request.")
    return Advice(Kind.UNKNOWN, said) if doubts else _change_to(best, place, said)


_NONE_CARRIES = (
    "No policy that was tried carries it either: lower max_in_flight where speed falls with what is in flight, or add "
    "engines."
)


def _chosen(found: Sequence[Found], places: Sequence[int], best: Found) -> int:
    as_good = [
        place
        for place in places
        if found[place].mean_e2e_s <= (1 + WORTH) * best.mean_e2e_s and found[place].difference.sure
    ]
    return min(as_good, key=lambda place: (_rank(found[place]), found[place].mean_e2e_s))


def _rank(one: Found) -> int:
    return _RATHER.index((one.routing or {})["policy"])


def _doubts(ratio: float | None) -> Iterator[str]:
    if ratio is not None and not TRUSTED[0] <= ratio <= TRUSTED[1]:
        yield (
            f"Do not decide by this: requests really took {ratio:.2f} times what the simulation gives for what was in "
            "force, so these curves do not describe this box or this traffic. Calibrate on this box with prompts like "
            "yours. What follows would hold if they did."
        )


def _of_a_moment(span_s: float) -> Iterator[str]:
    if span_s < MOMENT_S:
        yield (
            f"That is of {_time(span_s)} of traffic: the interval is what chance does within it, and says nothing of "
            "other hours. Take some hours of log before you decide."
        )


def _too_short(best: Found, present: Found, needed_s: float) -> str:
    said = (
        f"{_named(best, capital=True)} would have served the mean request in {best.mean_e2e_s:.2f} s instead of "
        f"{present.mean_e2e_s:.2f} s."
    )
    if best.difference.share > -_VISIBLE:
        said = f"The policy in force is the best one found: {present.mean_e2e_s:.2f} s for the mean request."
    return (
        f"Not known: the log is too short to tell a difference from noise, which takes {MIN_BLOCKS} blocks of time, "
        f"here {_time(needed_s)} that count. In what there is: {said[:1].lower()}{said[1:]}"
    )


def _leave(best: Found, present: Found) -> str:
    share, half = best.difference.share, best.difference.half_width or 0.0
    if best.difference.sure and share > 0:
        return f"Leave it as it is: all others are slower, {_named(best)} by the least ({_told(best)})."
    if best.difference.sure:
        return f"Leave it as it is: the best, {_named(best)}, gains less than a change is worth ({_told(best)})."
    if share == 0:
        return "Leave it as it is: the policy in force is the best one found."
    if share > -_VISIBLE:
        return f"Leave it as it is: nothing that was tried is faster; {_named(best)} comes nearest ({_told(best)})."
    return (
        f"Leave it as it is: no policy is faster than the present one by more than the noise of this log (±"
        f"{_percent(half, sign='')}). The best, {_named(best)}, would have served the mean request in "
        f"{best.mean_e2e_s:.2f} s instead of {present.mean_e2e_s:.2f} s ({_told(best)})."
    )


def _change(chosen: Found, present: Found) -> str:
    return (
        f"{_named(chosen, capital=True)} would have served the mean request in {chosen.mean_e2e_s:.2f} s instead of "
        f"{present.mean_e2e_s:.2f} s ({_told(chosen)})."
    )


def _why_not_best(chosen: Found, best: Found) -> Iterator[str]:
    if chosen is not best:
        yield (
            f"{_named(best, capital=True)} comes to {best.mean_e2e_s:.2f} s, which is no more than {WORTH:.0%} better, "
            "with a number that was found on this very log."
        )


def _controls(found: Sequence[Found], against: Found) -> Iterator[str]:
    """What no configuration gives and would be better all the same."""
    for one in found:
        gain = one.mean_e2e_s / against.mean_e2e_s - 1.0
        if one.routing is None and one.name in _INSTEAD and one.difference.sure and gain < -3 * WORTH:
            seconds = f"{one.mean_e2e_s:.2f} s ({_percent(gain)})"
            yield f"{_INSTEAD[one.name]} would have come to {seconds}, which is no matter of routing."


_INSTEAD = {
    "two_baselines": "Two baselines on the same GPUs",
    "adaptive": "Engines that switch speculation themselves, at a tax of 6.6 % while it is off,",
}


def _named(one: Found, *, capital: bool = False) -> str:
    routing = one.routing or {}
    policy, said = routing.get("policy"), one.name
    if policy is Policy.OVERFLOW:
        said = f"overflow with leave_at {routing['leave_at']}"
    elif policy is Policy.THRESHOLD:
        said = f"threshold with leave_at {routing['leave_at']} and enter_at {routing['enter_at']}"
    elif policy is Policy.PINNED:
        said = f"pinned to {routing['pin']}"
    elif policy is not None:
        said = f"policy {one.name}"
    return said[:1].upper() + said[1:] if capital else said


def _told(one: Found) -> str:
    share, low, high = one.difference
    if low is None or high is None:
        return _percent(share)
    return f"{_percent(share)}, 95 % interval {_percent(low)} to {_percent(high)}"


def _percent(share: float, sign: str = "+") -> str:
    return f"{100 * share:{sign}.1f} %"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _plain(value: object) -> str:
    """A value as YAML takes it: words as they are, whatever else could be read otherwise in quotes."""
    text = str(value)
    return text if text.replace("_", "").isalnum() else orjson.dumps(text).decode()
