import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from fakes.any_calibration import any_findings
from fakes.calibrated import context, facts, findings, measured, of_curve, seed_box
from hypothesis import given, settings

from proxy.lab.calibration.report.page import MAX_DRAWN_BYTES, render
from proxy.lab.calibration.report.plots import Plot
from proxy.lab.calibration.report.tables import MAX_CELLS
from proxy.lab.calibration.report.told import tell
from proxy.lab.calibration.values import Arm, Findings

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "br", "hr"}
# Whatever could fetch, run or frame something.
LIVELY = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "input", "video", "audio", "source"}


class Reader(HTMLParser):
    """The tags, attributes and text of a page; fails where tags do not close in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(found: Findings, plots: dict[int, list[Plot]] | None = None) -> Reader:
    return Reader(render(found, tell(found), plots or {}))


def words(found: Findings) -> str:
    return " ".join(page(found).text.replace("\N{NO-BREAK SPACE}", " ").split())


def picture(size: int, name: str = "throughput-1024") -> Plot:
    return Plot(name, "Throughput", "What it shows.", f"<svg><desc>{'x' * size}</desc></svg>", b"")


def test_the_verdict_comes_first_then_proposal_and_advice_then_the_rest() -> None:
    said = words(seed_box())
    order = [
        "Never speculate",
        "Proposal",
        "policy: pinned",
        "Advice, in this order",
        "second baseline",
        "Speeds and ratio",
    ]
    places = [said.index(part) for part in order]
    assert places == sorted(places)


def test_foreign_names_are_text_and_not_markup() -> None:
    arms = {Arm.BASELINE: facts(Arm.BASELINE, model=HOSTILE, engine=HOSTILE, flags={HOSTILE: HOSTILE})}
    read = page(findings(of_curve("seed"), facts=arms, notes=(HOSTILE,)))
    assert "script" not in read.tags
    assert read.text.count(HOSTILE) >= 5


def test_the_page_asks_for_nothing_from_outside() -> None:
    read = page(seed_box())
    assert not LIVELY & set(read.tags)
    assert not [name for name, value in read.attributes if name in {"src", "href"} or name.startswith("on")]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in read.attributes


def test_every_cell_stands_in_a_table_that_folds() -> None:
    read = page(seed_box())
    assert "details" in read.tags
    assert "Every cell (52)" in read.text


def test_more_cells_than_anybody_reads_are_left_to_their_file() -> None:
    many = of_curve("seed")
    found = findings(many, measurements=measured((many,), repeats=40))
    assert f"Every cell ({MAX_CELLS} of {len(found.measurements)})" in page(found).text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"queued": True}, "= queued"),
        ({"disturbed": True}, "! disturbed"),
        ({"errors": {"status 503": 2}}, "x cut: 2 status 503"),
    ],
)
def test_a_cell_that_is_not_plain_is_marked_by_a_word(change: dict[str, object], said: str) -> None:
    plain = seed_box()
    first, *rest = plain.measurements
    assert said in words(replace(plain, measurements=(replace(first, **change), *rest)))  # type: ignore[arg-type]


def test_predicted_speeds_are_marked_by_a_word_and_a_sign() -> None:
    plain = context({1: 10.0, 4: 30.0}, {1: 9.0, 4: 35.0})
    guessed = tuple(point._replace(low=None, high=None, predicted=True) for point in plain.curves[Arm.BASELINE])
    said = words(findings(replace(plain, curves={**plain.curves, Arm.BASELINE: guessed}), quick=True))
    assert "~9.00" in said
    assert "~ predicted" in said
    assert "predicted by the speculation law and not measured" in said


def test_a_run_that_ended_early_says_so_before_anything_else() -> None:
    said = words(seed_box(complete=False, notes=("stopped early: 40 of 120 minutes",)))
    assert said.index("not carried out to its end") < said.index("Proposal")
    assert "stopped early: 40 of 120 minutes." in said


def test_several_contexts_each_have_their_verdict_at_the_top() -> None:
    both = findings(of_curve("rtx6kpro_glm51_dcp4_ctx16384", tokens=1024), of_curve("seed", tokens=8192))
    top = words(both).split("Proposal")[0]
    assert "1024 tokens of context: Baseline overtakes" in top
    assert "8192 tokens of context: Never speculate" in top


def test_no_cell_that_can_speak_is_said() -> None:
    failed = tuple(replace(one, errors={"unreachable": 4}) for one in seed_box().measurements)
    assert "No cell was usable." in words(findings(measurements=failed))


def test_pictures_stand_in_the_page_while_they_fit_and_are_named_beyond() -> None:
    found = findings(of_curve("seed"))
    plots = {0: [picture(MAX_DRAWN_BYTES // 2, "one"), picture(MAX_DRAWN_BYTES // 2, "two"), picture(9, "three")]}
    read = page(found, plots)
    assert read.tags.count("svg") == 2
    assert "plots/two.svg" in read.text
    assert len(render(found, tell(found), plots)) < 1_000_000


def test_equal_findings_give_equal_pages() -> None:
    assert render(seed_box(), tell(seed_box()), {}) == render(seed_box(), tell(seed_box()), {})


@settings(deadline=None)
@given(any_findings())
def test_whatever_was_found_the_page_shows_it_and_runs_nothing(found: Findings) -> None:
    told = tell(found)
    written = render(found, told, {})
    read = Reader(written)
    assert not LIVELY & set(read.tags)
    assert told.headline.split(":")[0] in read.text.replace("\N{NO-BREAK SPACE}", " ")
    assert written.encode("utf-8")
    assert not re.search(r"\bnan\b|\binf\b", read.text.split("Engines")[0])
