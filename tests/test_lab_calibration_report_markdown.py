import re

from fakes.any_calibration import any_findings
from fakes.calibrated import facts, findings, of_curve, running, seed_box
from hypothesis import given, settings

from proxy.lab.calibration.report.markdown import render
from proxy.lab.calibration.report.told import tell
from proxy.lab.calibration.values import Arm, Findings


def text(found: Findings) -> str:
    return render(found, tell(found))


def test_the_verdict_is_the_title() -> None:
    assert text(seed_box()).startswith("# Never speculate: speculation is 12.7 % slower at 1 in flight")


def test_the_proposal_and_its_difference_are_code() -> None:
    said = text(seed_box())
    assert "```yaml\nrouting:\n  policy: auto\n" in said
    assert "```diff\n--- running\n" in said
    assert "```diff" not in text(seed_box(running=running(curves_file="curves.yaml")))


def test_advice_is_numbered_in_its_order() -> None:
    said = text(seed_box())
    assert re.search(r"^1\. The two servers differ.*\n2\. The speculative engine runs at most 48", said, re.MULTILINE)


def test_each_concurrency_has_a_row() -> None:
    rows = [line for line in text(seed_box()).splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 13
    assert rows[0].startswith("| 1 | 80.9 (79.7 to 82.1) | 92.7 (91.3 to 94.1) | 0.873 (0.860 to 0.886) | 6 |")


def test_foreign_names_are_no_markup_and_break_no_table() -> None:
    arms = {Arm.BASELINE: facts(Arm.BASELINE, model="<script>|`@all\n# x")}
    said = text(findings(of_curve("seed"), facts=arms, notes=("<b> @all [x](y)",)))
    assert "- &#60;b&#62; &#64;all &#91;x&#93;(y)." in said
    (row,) = [line for line in said.splitlines() if line.startswith("| model")]
    assert row.count("|") == 4
    assert row.count("`") == 2


@settings(deadline=None)
@given(any_findings())
def test_whatever_was_found_every_table_keeps_its_columns(found: Findings) -> None:
    written = text(found)
    assert written.encode("utf-8")
    columns = None
    for line in written.splitlines():
        if not line.startswith("| "):
            columns = None
            continue
        count = line.count("|")
        assert columns in (None, count)
        columns = count
