from dataclasses import replace
from pathlib import Path

import pytest
from fakes.calibrated import context, findings, running

from proxy.lab.calibration.report import write
from proxy.model import Placement

SPEEDS = {1: 10.0, 4: 30.0}, {1: 9.0, 4: 35.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("calibration") / "made" / "by it"
    assert sorted(write(findings(context(*SPEEDS)), into)) == sorted(path for path in into.rglob("*") if path.is_file())
    return into


def test_all_files_are_written(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"report.html", "report.md", "curves.yaml", "proposal.yaml", "proposal.diff", "plots"}


def test_each_plot_is_there_twice(folder: Path) -> None:
    names = {path.name for path in (folder / "plots").iterdir()}
    assert {"throughput-1024.svg", "throughput-1024.png"} <= names
    assert len(names) == 2 * len({Path(name).stem for name in names})


def test_the_page_is_small_and_holds_the_plots(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(list((folder / "plots").glob("*.svg")))
    assert len(page) < 1_000_000


def test_there_is_no_diff_where_nothing_is_to_change(tmp_path: Path) -> None:
    (tmp_path / "proposal.diff").write_text("of an earlier call\n", encoding="utf-8")
    proposed = findings(context(*SPEEDS))
    as_it_is = replace(running(Placement.SEPARATE), policy="auto", curves_file=proposed.curves_file)
    assert tmp_path / "proposal.diff" not in write(replace(proposed, running=as_it_is), tmp_path)
    assert not (tmp_path / "proposal.diff").exists()


def test_a_change_is_told_as_a_diff(folder: Path) -> None:
    assert (folder / "proposal.diff").read_text(encoding="utf-8").startswith("--- running\n+++ proposed\n")


def test_curves_of_an_earlier_call_do_not_outlive_findings_without_any(tmp_path: Path) -> None:
    (tmp_path / "curves.yaml").write_text("version: 1\n", encoding="utf-8")
    assert tmp_path / "curves.yaml" not in write(findings(), tmp_path)
    assert not (tmp_path / "curves.yaml").exists()
