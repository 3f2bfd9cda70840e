"""The house's gates find what they are there for, and nothing in code that keeps to them."""

from pathlib import Path

import pytest

from scripts import gates


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree that keeps all gates."""
    for folder in ("proxy/routing", "tests", "scripts"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proxy" / "routing" / "curves.py").write_text("def at() -> int:\n    return 1\n")
    (tmp_path / "tests" / "test_routing_curves.py").write_text("await asyncio.sleep(0)\n")
    monkeypatch.setattr(gates, "ROOT", tmp_path)
    return tmp_path


def breaches(capsys: pytest.CaptureFixture[str]) -> list[str]:
    code = gates.main()
    lines = capsys.readouterr().out.splitlines()
    assert code == (1 if lines else 0)
    return lines


def test_nothing_is_said_of_a_tree_that_keeps_all_gates(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert breaches(capsys) == []


@pytest.mark.parametrize(
    ("path", "source", "said"),
    [
        ("proxy/long.py", "x = 1\n" * 401, "401 lines"),
        ("proxy/wordy.py", "def f():\n" + "    x = 1\n" * 50, "f has 51 lines"),
        ("proxy/load_helper.py", "", "called helper"),
        ("proxy/loads.py", "class LoadManager:\n    pass\n", "class LoadManager"),
        ("proxy/routing/untested.py", "", "no tests/test_routing_untested.py"),
        ("tests/flow/test_flow.py", "time.sleep(1)\n", "a test sleeps"),
        ("tests/flow/test_flow.py", "async def f():\n    await asyncio.sleep(0.01)\n", "a test sleeps"),
        ("tests/test_routing_gone.py", "", "named after no module"),
    ],
)
def test_a_breach_is_told_with_its_file(
    tree: Path, capsys: pytest.CaptureFixture[str], path: str, source: str, said: str
) -> None:
    (tree / path).parent.mkdir(exist_ok=True)
    (tree / path).write_text(source)
    (line,) = breaches(capsys)
    assert line.startswith(path) and said in line


@pytest.mark.parametrize(
    "source",
    [
        "async def f():\n    await asyncio.sleep(0)\n",
        "time.sleep(1)  # sleeps: a fault that comes at a random time\n",
        "class LeapingLoop: ...\nasync def f():\n    await asyncio.sleep(9)\n",
    ],
)
def test_sleeps_that_take_no_time_or_say_why_are_let_through(
    tree: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    (tree / "tests" / "test_routing_curves.py").write_text(source)
    assert breaches(capsys) == []
