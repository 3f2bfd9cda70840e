"""Many outcomes to a row for each curve and a line of totals. Pure; running them is prove.py's."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean, median
from typing import Any, NamedTuple

from simulate.trials import Outcome

# Of a standard normal, for 95 % intervals of shares.
_Z = 1.959964


class Share(NamedTuple):
    """So many of so many, with Wilson's 95 % interval."""

    hits: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true share lies; 0 to 1 where nothing was tried."""
        if not self.of:
            return (0.0, 1.0)
        share, spare = self.hits / self.of, _Z * _Z / self.of
        middle = (share + spare / 2.0) / (1.0 + spare)
        half = _Z * math.sqrt(share * (1.0 - share) / self.of + spare / (4.0 * self.of)) / (1.0 + spare)
        return (middle - half, middle + half)

    def __str__(self) -> str:
        if not self.of:
            return "none"
        low, high = self.interval
        return f"{self.hits}/{self.of} = {self.hits / self.of:.1%} ({low:.1%} to {high:.1%})"

    def as_json(self) -> dict[str, Any]:
        """The counts, and the interval rounded."""
        return {
            "count": self.hits,
            "of": self.of,
            "low": round(self.interval[0], 4),
            "high": round(self.interval[1], 4),
        }


class Tally(NamedTuple):
    """What some outcomes add up to. Errors are shares of the truth, widths ratios of an interval's ends.

    `right` are verdicts of the true class, `honest` those that are not wrong. `covered` counts true changes of the
    faster arm that an interval holds, `first` those nearest to the least load alone; `stray` crossings that are none.
    `held` are the intervals of single ratios that hold the true one, `prefill_held` those of how fast prompts are taken
    in; `prefill_error` is the median of theirs, None where none was measured.
    """

    runs: int
    kinds: dict[str, int]
    right: Share
    honest: Share
    covered: Share
    first: Share
    stray: int
    width: float | None
    median_error: float
    worst_error: float
    bias: float
    held: Share
    cells: float
    spent_s: float
    prefill_error: float | None
    prefill_held: Share

    def as_json(self) -> dict[str, Any]:
        """Rounded to what is worth keeping."""
        return {name: _kept(value) for name, value in self._asdict().items()}


def tally(outcomes: Sequence[Outcome]) -> Tally:
    """Add outcomes up, at least one."""
    errors = [error for outcome in outcomes for error in chain.from_iterable(outcome.errors.values())]
    widths = [width for outcome in outcomes for width in outcome.widths]
    prefills = [error for outcome in outcomes for error in outcome.prefill_errors]
    return Tally(
        runs=len(outcomes),
        kinds=dict(Counter(str(outcome.kind) for outcome in outcomes).most_common()),
        right=_share(outcome.right for outcome in outcomes),
        honest=_share(outcome.honest for outcome in outcomes),
        covered=_share(chain.from_iterable(outcome.covered for outcome in outcomes)),
        first=_share(outcome.covered[0] for outcome in outcomes if outcome.covered),
        stray=sum(outcome.stray for outcome in outcomes),
        width=math.exp(fmean(widths)) if widths else None,
        median_error=median(abs(error) for error in errors),
        worst_error=max(abs(error) for error in errors),
        bias=fmean(errors),
        held=Share(sum(outcome.held for outcome in outcomes), sum(outcome.contrasts for outcome in outcomes)),
        cells=fmean(outcome.cells for outcome in outcomes),
        spent_s=fmean(outcome.spent_s for outcome in outcomes),
        prefill_error=median(abs(error) for error in prefills) if prefills else None,
        prefill_held=Share(sum(outcome.prefill_held for outcome in outcomes), len(prefills)),
    )


def by_curve(outcomes: Iterable[Outcome]) -> dict[str, Tally]:
    """A tally for each curve, by its name."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.trial.curve, []).append(outcome)
    return {name: tally(group) for name, group in sorted(groups.items())}


def table(rows: dict[str, Tally], truths: dict[str, str]) -> str:
    """The rows as text; `truths` are the classes of the curves."""
    head = f"{'curve':46} {'truth':10} {'right':>7} {'covered':>8} {'width':>6} {'error':>13}  cells  min  said"
    return "\n".join([head, *(_line(name, truths[name], row) for name, row in rows.items())])


def totals(whole: Tally) -> str:
    """The sums in words."""
    return "\n".join(
        (
            f"verdict of the true class      {whole.right}",
            f"verdict not wrong              {whole.honest}",
            f"first true crossing covered    {whole.first}",
            f"every true crossing covered    {whole.covered}; {whole.stray} found where there is none",
            f"error of a speed               median {whole.median_error:.2%}, worst {whole.worst_error:.1%}, "
            f"mean {whole.bias:+.2%}",
            f"intervals of ratios that hold  {whole.held}",
            f"intervals of prefill that hold {whole.prefill_held}; error median {whole.prefill_error or 0.0:.2%}",
            f"cells, virtual minutes a run   {whole.cells:.0f}, {whole.spent_s / 60.0:.0f}",
        )
    )


def _line(name: str, truth: str, row: Tally) -> str:
    covered = f"{row.covered.hits}/{row.covered.of}" if row.covered.of else ""
    width = f"{row.width:.2f}" if row.width is not None else ""
    said = ", ".join(f"{kind} {count}" for kind, count in row.kinds.items())
    error = f"{row.median_error:.2%} {row.worst_error:.1%}"
    right = f"{row.right.hits}/{row.right.of}"
    return (
        f"{name[:46]:46} {truth:10} {right:>7} {covered:>8} {width:>6} {error:>13} "
        f"{row.cells:6.0f} {row.spent_s / 60.0:4.0f}  {said}"
    )


def _share(values: Iterable[bool]) -> Share:
    known = list(values)
    return Share(sum(known), len(known))


def _kept(value: object) -> object:
    if isinstance(value, Share):
        return value.as_json()
    return round(value, 5) if isinstance(value, float) else value
