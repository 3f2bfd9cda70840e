"""The file of measured speeds (curves.yaml) to routing's curves: whole, or with every problem and its mend.

It is read as strictly as the configuration and by the same means. What is done with the speeds is not here, nor is
writing the file (lab/calibration/).
"""

import math
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from proxy.config.key_files import content_of
from proxy.config.problems import Problem
from proxy.config.sections import WORDS, Section, Word
from proxy.config.yaml_nodes import Document, decode
from proxy.model import ROLES, Placement, Role
from proxy.routing.curves import LEAST, MOST, ContextCurves, Curves, SpeedCurve, SpeedPoint
from proxy.routing.verdict import Contrast, Crossing, Verdict, VerdictKind, has_assumed

# Ten buckets of a hundred points take about 200 KiB; larger is another file.
MAX_FILE_BYTES = 1 << 20
VERSION = 1
AGAIN = "mend: calibrate again, and name the curves.yaml that it writes"

# Longer contexts than any engine serves; more is a byte count in the wrong place.
MAX_CONTEXT_TOKENS = 100_000_000

_TEXT_KEYS = frozenset({"measured_at", "model", "reason", *ROLES})

Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
Intake = Annotated[float, Field(ge=LEAST, le=MOST, json_schema_extra={WORDS: "prompt tokens a second"})]
Speed = Annotated[float, Field(ge=LEAST, le=MOST, json_schema_extra={WORDS: "output tokens a second"})]


def read_curves(path: Path) -> tuple[Curves | None, list[Problem]]:
    """The speeds in a file, None where it has problems, and every problem. Raises ValueError, with a message, when it
    cannot be read as text at all."""
    try:
        text = content_of(path, MAX_FILE_BYTES, f": {path.absolute()}").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("names a file that is not UTF-8; mend: save it as UTF-8, or check the path") from None
    document = decode(text, str(path), {}, _TEXT_KEYS)
    if (other := _published(document) or _other_version(document)) is not None:
        return None, [other]
    problems = list(document.problems)
    try:
        written = CurvesFile.model_validate(document.values)
    except ValidationError as error:
        from proxy.config.mends import schema_problems  # noqa: PLC0415 - not for a file that is right

        found = schema_problems(error, document, CurvesFile.model_json_schema())
        return None, problems + [problem for _, problem in found]
    return (None, problems) if problems else (written.curves(), [])


def _published(document: Document) -> Problem | None:
    """A published curve, as config/curves has them, is another format by the same name: each of its keys would be a
    problem, and none of them is the mistake."""
    values = document.values
    if not isinstance(values, dict) or "points" not in values or "contexts" in values:
        return None
    return document.problem(
        (),
        "is a published curve of one context, and no file of measured speeds; mend: `scripts/calibrate` writes the "
        f"curves.yaml that belongs here; to act this one out: `scripts/serve --curve {_named(document.file)}`",
    )


def _named(file: str) -> str:
    """How `--curve` takes a file: by its name where that is a shipped one, else by its path."""
    path = Path(file)
    return path.stem if path.parent.parts[-2:] == ("config", "curves") else file


def _other_version(document: Document) -> Problem | None:
    """A file of another version is not looked at further: its other keys may mean anything."""
    version = document.values.get("version", VERSION) if isinstance(document.values, dict) else VERSION
    if type(version) is not int or version == VERSION:
        return None
    return document.problem(("version",), f"must be {VERSION}, which is the form that this Crossover reads; {AGAIN}")


def _listed(value: Any) -> Any:
    """A list that is null or left out is empty."""
    return () if value is None else value


def _instant(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError('must be a date and time such as "2026-11-30T04:12:00Z"; mend: write it so') from None
    return text


# ---------------------------------------------------------------- the form of the file


class SpeedEntry(Section):
    """One measured speed of one backend."""

    in_flight: Positive
    tok_s: Speed
    low: Speed | None = None
    high: Speed | None = None
    predicted: bool = False

    @model_validator(mode="after")
    def _within_its_interval(self) -> Self:
        low, high = (self.tok_s if edge is None else edge for edge in (self.low, self.high))
        if not low <= self.tok_s <= high:
            raise ValueError(f"tok_s must lie from low to high, and {self.tok_s:g} does not; {AGAIN}")
        return self

    def point(self) -> SpeedPoint:
        """The same for routing."""
        return SpeedPoint(self.in_flight, self.tok_s, self.low, self.high, self.predicted)


class RatioEntry(Section):
    """The speeds of both compared at one concurrency, speculative by baseline."""

    in_flight: Positive
    ratio: Positive
    low: Positive | None = None
    high: Positive | None = None
    repeats: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    queued: bool = False
    predicted: bool = False

    @model_validator(mode="after")
    def _within_its_interval(self) -> Self:
        low, high = (self.ratio if edge is None else edge for edge in (self.low, self.high))
        if not low <= self.ratio <= high:
            raise ValueError(f"ratio must lie from low to high, and {self.ratio:g} does not; {AGAIN}")
        return self

    def contrast(self) -> Contrast:
        """The same for routing, in ln; an edge that is left out is not known."""
        low = -math.inf if self.low is None else math.log(self.low)
        high = math.inf if self.high is None else math.log(self.high)
        return Contrast(self.in_flight, math.log(self.ratio), low, high, self.repeats, self.queued, self.predicted)


class CrossingEntry(Section):
    """One concurrency from which the other backend is faster."""

    at: Positive
    low: Positive
    high: Positive
    faster_above: Annotated[Role, Word]

    @model_validator(mode="after")
    def _within_its_interval(self) -> Self:
        if not self.low <= self.at <= self.high:
            raise ValueError(f"at must lie from low to high, and {self.at:g} does not; {AGAIN}")
        return self


def _curve(entries: tuple[SpeedEntry, ...]) -> tuple[SpeedEntry, ...]:
    if entries:
        SpeedCurve(tuple(entry.point() for entry in entries))  # raises what is wrong with it
    return entries


def _alternating(entries: tuple[CrossingEntry, ...]) -> tuple[CrossingEntry, ...]:
    for one, other in pairwise(entries):
        if other.low < one.high or other.faster_above is one.faster_above:
            raise ValueError(f"crossings must rise, and each favour the other role than the one before; {AGAIN}")
    return entries


Speeds = Annotated[tuple[SpeedEntry, ...], Field(strict=False), AfterValidator(_curve), BeforeValidator(_listed)]


class ContextEntry(Section):
    """What was measured around one length of context."""

    context_tokens: Annotated[int, Field(ge=0, le=MAX_CONTEXT_TOKENS)]
    verdict: Annotated[VerdictKind, Word]
    reason: str = ""
    crossings: Annotated[
        tuple[CrossingEntry, ...], Field(strict=False), AfterValidator(_alternating), BeforeValidator(_listed)
    ] = ()
    speculative: Speeds = ()
    baseline: Speeds = ()
    ratio: Annotated[tuple[RatioEntry, ...], Field(strict=False), BeforeValidator(_listed)] = ()
    speculative_prefill_tok_s: Intake | None = None
    baseline_prefill_tok_s: Intake | None = None

    @model_validator(mode="after")
    def _crossings_fit_the_verdict(self) -> Self:
        if self.crossings and self.verdict is not VerdictKind.CROSSOVER_AT:
            raise ValueError(f"has crossings, and its verdict is {self.verdict}; {AGAIN}")
        if not self.crossings and self.verdict is VerdictKind.CROSSOVER_AT:
            raise ValueError(f"has no crossings, and its verdict is {self.verdict}; {AGAIN}")
        return self

    def curves(self) -> ContextCurves:
        """The same for routing."""
        crossings = tuple(Crossing(each.at, each.low, each.high, each.faster_above) for each in self.crossings)
        speculative, baseline = (
            SpeedCurve(tuple(entry.point() for entry in entries)) if entries else None
            for entries in (self.speculative, self.baseline)
        )
        contrasts = tuple(each.contrast() for each in self.ratio)
        verdict = Verdict(self.verdict, crossings, self.reason, has_assumed(crossings, contrasts))
        return ContextCurves(
            self.context_tokens,
            speculative,
            baseline,
            verdict,
            contrasts,
            (self.speculative_prefill_tok_s, self.baseline_prefill_tok_s),
        )


def _buckets(entries: tuple[ContextEntry, ...]) -> tuple[ContextEntry, ...]:
    Curves(tuple(entry.curves() for entry in entries), "", Placement.SEPARATE)  # raises what is wrong with them
    return entries


class Engines(Section):
    """The versions that were measured, where the engines said one."""

    speculative: str | None = None
    baseline: str | None = None


class CurvesFile(Section):
    """The whole file."""

    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    measured_at: Annotated[str, AfterValidator(_instant)]
    placement: Annotated[Placement, Word]
    model: str | None = None
    engines: Engines = Engines()
    contexts: Annotated[tuple[ContextEntry, ...], Field(strict=False), AfterValidator(_buckets)]

    def curves(self) -> Curves:
        """The same for routing."""
        told = {Role.SPECULATIVE: self.engines.speculative, Role.BASELINE: self.engines.baseline}
        versions = {role: version for role, version in told.items() if version is not None}
        contexts = tuple(entry.curves() for entry in self.contexts)
        return Curves(contexts, self.measured_at, self.placement, self.model, versions)
