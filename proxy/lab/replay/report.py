"""A replay in words for a terminal: what was read, whether to believe the simulation, the table, the advice.

What is advised is in advice.py, the same for a program in document.py. Durations are in seconds everywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from statistics import fmean
from typing import Any, NamedTuple

from proxy.lab.loadtable import aligned
from proxy.lab.replay.advice import TRUSTED, Advice
from proxy.lab.replay.noise import Difference
from proxy.lab.replay.reading import Account
from proxy.lab.replay.rerun import Times
from proxy.lab.replay.traffic import Traffic
from proxy.lab.simulation.arms import OF_ONE_KIND

_UNKNOWN = "-"
_HEAD = (
    "policy",
    "mean s",
    "p50",
    "p95",
    "p99",
    "ttft s",
    "tpot s",
    "speculative",
    "waited",
    "switches",
    "against as it is",
)
# What the last column has besides, where the log is long enough.
_INTERVALS = " (95 %)"


class Tally(NamedTuple):
    """One way over the requests that count; durations in seconds, shares from 0 to 1."""

    mean_e2e_s: float
    p50_e2e_s: float
    p95_e2e_s: float
    p99_e2e_s: float
    mean_ttft_s: float
    mean_tpot_s: float
    share_speculative: float
    waited: float
    switches: int


class Overload(NamedTuple):
    """Far more came than the engines carried: so many requests were open when the last one came, and so many seconds
    later they had ended."""

    left_open: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One way and how it differs from the present one. `routing` as in Candidate. Where there is an `overload` nothing
    is to be decided by the times."""

    name: str
    tally: Tally
    difference: Difference
    routing: Mapping[str, Any] | None
    overload: Overload | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """What was measured, by what the simulation gives for what was in force, and for each request where it went."""

    in_force: str
    measured: Mapping[str, float | None]
    simulated: Tally
    recorded: Tally

    @property
    def ratio(self) -> float:
        """The measured mean by the simulated one."""
        return (self.measured["mean_e2e_s"] or 0.0) / self.simulated.mean_e2e_s


@dataclass(frozen=True, slots=True)
class Replayed:
    """All that is told. `account` and `check` are None for a trace; the first of `rows` is the present one."""

    source: str
    traffic: Traffic
    account: Account | None
    engines: tuple[str, ...]
    check: Check | None
    rows: tuple[Row, ...]
    advice: Advice
    blocks: int
    block_s: float


def tally(times: Times, counted: Sequence[int]) -> Tally:
    """What a way comes to over these places."""
    lasted = sorted(times.e2e_s[place] for place in counted)
    tpot_s = [value for place in counted if not isnan(value := times.tpot_s[place])]
    return Tally(
        mean_e2e_s=fmean(lasted),
        p50_e2e_s=_rank(lasted, 0.5),
        p95_e2e_s=_rank(lasted, 0.95),
        p99_e2e_s=_rank(lasted, 0.99),
        mean_ttft_s=fmean(times.ttft_s[place] for place in counted),
        mean_tpot_s=fmean(tpot_s) if tpot_s else 0.0,
        share_speculative=sum(times.speculative[place] for place in counted) / len(counted),
        waited=sum(times.waited[place] for place in counted) / len(counted),
        switches=times.switches,
    )


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def render(found: Replayed) -> str:
    """The whole as text for a terminal."""
    parts = ["".join(f"{line}\n" for line in (*_read(found), *_engines(found)))]
    if found.check is not None:
        parts.append("".join(f"{line}\n" for line in _checked(found.check)))
    *heads, against = _HEAD
    against += _INTERVALS if any(row.difference.low is not None for row in found.rows[1:]) else ""
    parts.append(aligned(_told_columns([(*heads, against), *_lines(found)])))
    if any(row.overload is not None for row in found.rows):
        parts.append("".join(f"{line}\n" for line in _overloads(found)))
    parts.append("".join(f"{line}\n" for line in found.advice.sentences))
    if yaml := found.advice.yaml():
        parts.append(yaml)
    return "\n".join(parts)


def _read(found: Replayed) -> Iterator[str]:
    traffic, account = found.traffic, found.account
    rows = traffic.requests
    span_s, means = rows[-1].at_s - rows[0].at_s, traffic.means
    rate = f", {len(rows) / span_s:.2f} a second" if span_s > 0 else ""
    yield f"{found.source}: {len(rows)} requests over {_span(traffic, span_s)}{rate}"
    yield (
        f"  of a mean of {means.prompt:.0f} prompt and {means.output:.0f} output tokens; "
        f"{len(traffic.counted)} of them count, without the beginning and the end"
    )
    if traffic.pace != 1.0:
        yield f"  coming {traffic.pace:g} times as fast as they came, so that nothing measured is there to check with"
    if account is None:
        return
    if account.estimated:
        yield f"  {account.estimated} told no usage: their tokens are estimated by the time that they took"
    if account.cut:
        yield f"  {account.cut} were cut short (clients that left, failures): they load the engines and do not count"
    if account.by_events:
        yield f"  {account.by_events} went where they went by an event (a pin, a failure), which is not replayed"
    if account.left_out:
        yield f"  {account.left_out.total()} of {account.settled} requests left out: {_counts(account.left_out)}"
    if account.dropped:
        yield f"  {account.dropped} lines are missing, as the log itself says: the traffic was denser than this"
    if account.skipped:
        yield f"  {account.skipped.total()} of {account.lines} lines tell of no request: {_counts(account.skipped)}"


def _engines(found: Replayed) -> Iterator[str]:
    first, *others = found.engines
    yield f"engines: {first}"
    yield from (f"  {line}" for line in others)


def _checked(check: Check) -> Iterator[str]:
    measured, simulated = check.measured, check.simulated
    low, high = TRUSTED
    trusted = low <= check.ratio <= high
    yield (
        f"check: under what was in force ({check.in_force}) requests really took {measured['mean_e2e_s']:.2f} s on "
        f"average, and {simulated.mean_e2e_s:.2f} s simulated: {check.ratio:.2f} times"
    )
    yield (
        f"  really {measured['share_speculative'] or 0.0:.0%} on speculative, {simulated.share_speculative:.0%} "
        f"simulated; each sent where it went, {check.recorded.mean_e2e_s:.2f} s simulated"
    )
    if not trusted:
        yield f"  WARNING: outside {low:g} to {high:g}, so the curves do not describe this box or this traffic"


def _lines(found: Replayed) -> Iterator[tuple[str, ...]]:
    """The table: life, the present way, the others from the fastest to the slowest."""
    if found.check is not None:
        yield ("measured", *_cells(found.check.measured), _UNKNOWN, _UNKNOWN, _UNKNOWN)
    first, *others = found.rows
    for row in [first, *sorted(others, key=lambda row: (row.overload is not None, row.tally.mean_e2e_s))]:
        seen = row.tally
        if row.overload is not None:
            yield (row.name, _OVERLOADED, *[_UNKNOWN] * (len(_HEAD) - 2))
            continue
        waited, switches = f"{seen.waited:.1%}", str(seen.switches)
        against = _UNKNOWN if row is first else _against(row.difference)
        share = None if row.name.partition(":")[0] in OF_ONE_KIND else seen.share_speculative
        yield (row.name, *_cells({**seen._asdict(), "share_speculative": share}), waited, switches, against)


def _overloads(found: Replayed) -> Iterator[str]:
    yield f"{_OVERLOADED}: more comes than it carries, by these speeds"
    for row in found.rows:
        if row.overload is not None:
            left_open, after_s = row.overload
            yield (
                f"  {row.name}: {left_open} of {len(found.traffic.requests)} requests were open when the last one "
                f"came, and the engines took {after_s:,.0f} s more"
            )


_OVERLOADED = "overloaded"


def _cells(seen: Mapping[str, float | None]) -> tuple[str, ...]:
    return tuple(_UNKNOWN if (value := seen[name]) is None else f"{value:{form}}" for name, form in _CELLS.items())


_CELLS = {
    "mean_e2e_s": ".2f",
    "p50_e2e_s": ".2f",
    "p95_e2e_s": ".2f",
    "p99_e2e_s": ".2f",
    "mean_ttft_s": ".3f",
    "mean_tpot_s": ".4f",
    "share_speculative": ".0%",
}
# Columns that say nothing where all of them say it.
_NOTHING = {"0", "0.0%", _UNKNOWN}


def _told_columns(lines: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    columns = list(zip(*lines, strict=True))
    told = [column for column in columns if not set(column[1:]) <= _NOTHING]
    return list(zip(*told, strict=True))


def _against(found: Difference) -> str:
    share, low, high = found
    if isnan(share):
        return _UNKNOWN
    if share == 0.0 and (low or 0.0) == (high or 0.0) == 0.0:
        return "the same"
    if share > _SLOWER_BY:
        return f"{1 + share:.1f} times as long"
    if low is None or high is None:
        return f"{share:+.1%}"
    return f"{share:+.1%}  ({low:+.1%} to {high:+.1%})"


# From here on a percentage is harder to read than a factor, and its interval interests nobody.
_SLOWER_BY = 2.0


def _span(traffic: Traffic, span_s: float) -> str:
    length = f"{span_s:.0f} s" if span_s < 600 else f"{span_s / 60:.0f} min"
    if span_s >= 36_000:
        length = f"{span_s / 3600:.1f} h"
    if traffic.began_at_s is None:
        return length
    return f"{length} from {datetime.fromtimestamp(traffic.began_at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _counts(counts: Mapping[Any, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(f"{count} {name}" for name, count in ordered)
