"""`report.html`: one file that needs nothing else, in light and dark, on paper, and without scripts.

The words are in told.py, the tables in tables.py, the look in the template and report.css. All text is escaped by the
template, since names of models and engines are foreign; only our own drawings and styles go in as they are.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.lab.calibration.report import drawing, tables
from proxy.lab.calibration.report.plots import Plot
from proxy.lab.calibration.report.told import Told
from proxy.lab.calibration.values import ContextFindings, Findings

# With the tables the page then stays under a megabyte, which any mail or chat takes. What is over it is only named.
MAX_DRAWN_BYTES = 640_000

_NUMBER = re.compile(r"(\d) (%|tok/s|tokens|s\b|min\b|h\b|ms\b)")


class Part(NamedTuple):
    """One condition on the page: its plots, those that are only named, and its tables."""

    title: str
    tokens: int
    verdict: str
    plots: tuple[Plot, ...]
    left_out: tuple[Plot, ...]
    curves: tables.Table
    ways: tables.Table
    cells: tables.Table
    cells_left_out: int


def render(findings: Findings, told: Told, plots: Mapping[int, Sequence[Plot]]) -> str:
    """The page; `plots` holds those of each main context by its place."""
    template = _environment().get_template("report.html.jinja")
    page = template.render(
        findings=findings,
        told=told,
        main=_main(findings, told, plots),
        side=tuple(
            _part(findings, told, context, (), ())._replace(verdict=told.beside(context)) for context in findings.side
        ),
        prompts=tables.prefill_table(findings),
        facts=tables.fact_table(findings.facts),
        how=tuple(tables.how_measured(findings)),
        models=tuple(dict.fromkeys(one.model for one in findings.facts.values() if one.model)),
        tones=drawing.css(),
    )
    # A lone surrogate, as a broken engine may send, has no bytes in UTF-8.
    return page.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("proxy.lab.calibration.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["tidy"] = _tidy
    return environment


def _tidy(sentence: str) -> str:
    """No line ends between a number and its unit."""
    return _NUMBER.sub("\\1\N{NO-BREAK SPACE}\\2", sentence)


def _main(findings: Findings, told: Told, plots: Mapping[int, Sequence[Plot]]) -> tuple[Part, ...]:
    parts: list[Part] = []
    drawn = 0
    for place, context in enumerate(findings.main):
        inside: list[Plot] = []
        outside: list[Plot] = []
        for plot in plots.get(place, ()):
            fits = drawn + len(plot.inline) <= MAX_DRAWN_BYTES
            (inside if fits else outside).append(plot)
            drawn += len(plot.inline) if fits else 0
        parts.append(_part(findings, told, context, inside, outside))
    return tuple(parts)


def _part(
    findings: Findings, told: Told, context: ContextFindings, inside: Sequence[Plot], outside: Sequence[Plot]
) -> Part:
    cells = tables.cell_table(findings.measurements, context.condition)
    measured = sum(one.cell.condition == context.condition for one in findings.measurements)
    return Part(
        tables.condition_name(context.condition),
        context.condition.context_tokens,
        told.of(context),
        tuple(inside),
        tuple(outside),
        tables.curve_table(context),
        tables.choice_table(context, told.placement),
        cells,
        measured - len(cells.rows),
    )
