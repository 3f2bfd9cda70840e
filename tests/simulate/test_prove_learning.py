"""A proof of learning tells each gate's runs, and every run beyond one; what was run before counts too."""

from pathlib import Path

from simulate.learning_report import Found, page
from simulate.prove_learning import main, runs, written

MADE = {"date": "2026-11-30"}


def found(part: str, kind: str, *, first: float = 0.0, after: float = 0.0, harm: float = 0.0, probes: int = 1) -> Found:
    shares = (first, after), (0.4, 0.3), (harm, 0.0)
    return Found(part, kind, "seed", 0.4, 1, *shares, probes, 1000, 0, (0, 0))


def rows(text: str, begins: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {begins}")]


def test_a_gate_is_asked_of_its_own_runs_alone() -> None:
    flat = [found("cold", "moments", first=0.15), found("shared", "flat", first=0.2, harm=0.9)]
    text = page(MADE, [*flat, found("adverse", "swapped", first=0.3, after=0.3, harm=0.05)])
    assert rows(text, "from flat curves, the first 500") == [
        "| from flat curves, the first 500: at most 15 % above | 2 | 1 | 20.0 | seed 0.4, flat |"
    ]
    assert rows(text, "from flat curves, after")[0].split(" | ")[1:3] == ["2", "2"]
    assert rows(text, "first curves are right")[0].split(" | ")[1:3] == ["1", "1"]
    assert not rows(text, "acceptance falls"), "no such run"
    assert rows(text, "shared | ") == ["| shared | flat | seed | 0.4 | 20.0 | 0.0 | 40.0, 30.0 | 90.0, 0.0 |"]
    assert not rows(text, "cold | ") and not rows(text, "adverse | ")


def test_each_gate_has_its_runs_beyond_it() -> None:
    text = page(
        MADE,
        [
            found("cold", "answers", after=0.06),
            found("changed", "falls", after=0.07),
            found("clocks", "unbroken, right", harm=0.08),
            found("steady", "moments", probes=11),
        ],
    )
    assert [row.split(" | ")[0] for row in rows(text, "") if "| seed |" in row] == [
        "| changed",
        "| cold",
        "| clocks",
        "| steady",
    ]
    held = [
        row.split(" | ")[1:3]
        for row in rows(text, "")
        if row.endswith((", answers |", ", falls |", "right |", "moments |"))
    ]
    assert held[:5] == [["1", "1"], ["1", "0"], ["1", "0"], ["4", "3"], ["3", "2"]]


def test_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    one, both, told = tmp_path / "one.json", tmp_path / "both.json", tmp_path / "page.md"
    ran = [found("changed", "falls", after=1 / 3), found("cold", "moments", first=-0.1)]
    one.write_text(written(MADE, ran))
    assert runs(one) == ran
    assert main(["--parts", "", "--add", f"{one},{one}", "--json", str(both), "--markdown", str(told)]) == 0
    assert runs(both) == ran * 2
    assert rows(told.read_text(), "acceptance falls")[0].split(" | ")[1:4] == ["2", "0", "33.3"]
