"""`report.md`: the report in short, to be pasted into a pull request or a chat. The whole of it is the page."""

from collections.abc import Iterator

from proxy.lab.calibration.report import tables
from proxy.lab.calibration.report.tables import Table
from proxy.lab.calibration.report.told import Told
from proxy.lab.calibration.values import Findings
from proxy.lab.calibration.words import UNKNOWN


def render(findings: Findings, told: Told) -> str:
    """The text, in the Markdown that forges and chats agree on."""
    text = "\n\n".join(_blocks(findings, told)) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")


def _blocks(findings: Findings, told: Told) -> Iterator[str]:
    yield f"# {told.headline}"
    yield told.subject
    if told.warnings:
        yield _items([_foreign(warning) for warning in told.warnings])
    yield "## Proposal"
    yield f"```yaml\n{told.proposal.yaml()}```"
    if told.because:
        yield _items(told.because)
    if told.diff:
        yield f"```diff\n{told.diff}```"
    if told.advice:
        yield "## Advice"
        yield "\n".join(f"{place}. {_foreign(one.sentence)}" for place, one in enumerate(told.advice, 1))
    for context in findings.main:
        yield f"## {tables.condition_name(context.condition)}"
        if len(findings.main) > 1:
            yield told.of(context)
        yield from _table(tables.curve_table(context))
    for context in findings.side:
        yield f"## Besides: {tables.condition_name(context.condition)}"
        yield told.beside(context)
        yield from _table(tables.curve_table(context))
    prompts = tables.prefill_table(findings)
    if prompts.rows:
        yield "## Prompts"
        yield from _table(prompts)
    facts = tables.fact_table(findings.facts)
    if facts.rows:
        yield "## Engines"
        rows = tuple(
            (_foreign(name), *(_code(value) for value in values[:-1]), values[-1]) for name, *values in facts.rows
        )
        yield from _table(Table(facts.head, rows), foreign=True)


def _items(sentences: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _table(table: Table, *, foreign: bool = False) -> Iterator[str]:
    if not table.rows:
        return
    lines = [table.head, ("---", *("---:" for _ in table.head[1:])), *table.rows]
    cells = (tuple(cell if foreign else _foreign(cell) for cell in line) for line in lines)
    yield "\n".join(f"| {' | '.join(line)} |" for line in cells)


def _foreign(text: str) -> str:
    """Text that may hold anything, so that nothing of it is markup, a link or the end of a cell."""
    flat = " ".join(text.split())
    return "".join(f"&#{ord(char)};" if char in _MARKUP else char for char in flat)


def _code(text: str) -> str:
    """Foreign words that are to be seen exactly, such as the name of a model."""
    return text if text == UNKNOWN else f"`{' '.join(text.split()).replace('`', _QUOTE).replace('|', _BAR)}`"


# What begins markup in some Markdown or other: also @ (names somebody) and < (HTML).
_MARKUP = frozenset("<>&`*_[]|@\\")
# Neither can stand in a code span within a table.
_QUOTE, _BAR = "'", "\N{BROKEN BAR}"
