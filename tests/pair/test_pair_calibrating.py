"""Where the curves of a run come from."""

from pathlib import Path

import pytest
from pair.calibrating import curves_of, known, read
from pair.instances import NotUp, instances
from pair.options import Options, parsed


def options(folder: Path, *more: str) -> Options:
    return parsed(["--model", "m", "--out", str(folder), "--port", "1", *more])


def test_curves_from_before_are_taken_in_place_of_calibrating(tmp_path: Path) -> None:
    given = tmp_path / "given.yaml"

    assert curves_of(options(tmp_path, "--curves", str(given)), {}) == given


def test_a_cut_run_takes_the_curves_that_it_has_calibrated(tmp_path: Path) -> None:
    assert known(options(tmp_path)) is None
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / "curves.yaml").write_text("version: 1\n")

    assert curves_of(options(tmp_path), {}) == tmp_path / "calibration" / "curves.yaml"


def test_a_calibration_that_gives_no_curves_ends_the_run_and_names_its_log(tmp_path: Path) -> None:
    asked = options(tmp_path)
    nobody = {one.name: one for one in instances(asked)}

    with pytest.raises(NotUp, match="calibration wrote no curves"):
        curves_of(asked, nobody)
    assert "no answer from the speculative engine" in (tmp_path / "calibrate.log").read_text()


def test_a_file_that_holds_no_curves_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "curves.yaml").write_text("version: 1\ncontexts: []\n")

    with pytest.raises(NotUp, match="contexts"):
        read(tmp_path / "curves.yaml")
