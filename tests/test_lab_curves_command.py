"""`crossover curves`: what it prints and writes, and its exit codes."""

import json
import os
from pathlib import Path

import pytest
from fakes.interpreter import ran

from proxy.__main__ import main
from proxy.errors import ConfigError
from proxy.lab import curve_plots, curves
from proxy.lab.calibration import extra

ROOT = Path(__file__).parents[1]


def _said(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    assert main(["curves", *argv]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.splitlines()


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["curves", *argv]) == 1
    return capsys.readouterr().err


def test_every_shipped_curve_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = _said(capsys, "list")
    assert [line.split()[0] for line in lines] == list(curves.shipped())
    column = head.index("crossing") + len("crossing")
    row = next(line for line in lines if line.startswith(curves.DEFAULT_CURVE))
    assert row.split()[1:5] == ["crossover", "5.97", "baseline", "5"]
    assert row[:column].endswith(" baseline")


def test_a_word_chooses_among_them_and_json_has_all_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads("\n".join(_said(capsys, "list", "HOCHELAGA", "--json")))
    assert [row["name"] for row in found] == [f"hochelaga8b_rtx5090_k{steps}" for steps in (1, 2, 8)]
    assert {row["kind"] for row in found} == {"never"}
    [mixed] = [
        row
        for row in json.loads("\n".join(_said(capsys, "list", "mixed", "--json")))
        if row["name"] == "rtx6kpro_glm51_dcp4_ctx0"
    ]
    assert [crossing["faster_above"] for crossing in mixed["crossings"]] == ["baseline", "speculative"]


def test_a_word_that_nothing_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "mend: `crossover curves list`" in _refused(capsys, "list", "abacus")


def test_a_curve_is_shown_with_its_points_its_source_and_letters(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _said(capsys, "show", "seed")
    assert "1                         80.9            92.7  0.873" in lines
    assert "2                        123.4           148.5  0.831  inferred" in lines
    assert any(line.startswith("source") and "NOT verified" in line for line in lines)
    assert "crossing     none: one role is ahead throughout" in lines
    assert lines[-1].split() == ["1", "250"]


def test_a_role_that_was_not_measured_is_a_dash_and_an_assumed_baseline_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert any(line.split()[:2] == ["64", "-"] for line in _said(capsys, "show", "specforge339_qwen3_30b_h100x2"))
    assert any("only ratios are published" in line for line in _said(capsys, "show", "eagle4_sglang_b300_ratio"))


def test_letters_stand_where_the_points_are() -> None:
    plot = curve_plots.letters(curves.find("seed")).splitlines()[1:-2]
    assert plot[0].startswith("773 |")
    assert plot[0].endswith("b")
    assert plot[-1].split("|")[1][0] == "s"


@pytest.mark.parametrize(("kind", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_picture_is_drawn_into_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, begins: bytes
) -> None:
    path = tmp_path / "picture"
    lines = _said(capsys, "show", "specdecodebench_sglang_llama3-70b_gsm8k_tree_k6", f"--{kind}", str(path))
    assert lines[-1].endswith(str(path))
    assert path.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_written_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "mend: choose another place" in _refused(capsys, "show", "seed", "--svg", str(tmp_path / "no" / "x.svg"))


def test_a_fit_is_told_with_its_errors_and_the_laws(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _said(capsys, "fit", "rtx6kpro_glm5_sglang_cutlass_ctx0")
    assert any(line.split()[0] == "t0" for line in lines if line)
    assert {"mean", "held", "note", "law"} <= {line.split()[0] for line in lines if line}


def test_what_cannot_be_done_is_told_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a fit needs 3" in _refused(capsys, "fit", "seed")
    assert "known curves" in _refused(capsys, "show", "nonsense")


def test_without_the_extra_the_mend_is_told_and_the_rest_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("orjson", "scipy_that_nobody_has"))
    for argv in (["fit", "seed"], ["show", "seed", "--png", str(tmp_path / "x.png")]):
        told = _refused(capsys, *argv)
        assert "not installed: scipy_that_nobody_has" in told
        assert "crossover-proxy[calibrate]" in told
        assert "scripts/calibrate" in told
    assert _said(capsys, "show", "seed")


def test_the_extra_is_what_pyproject_says() -> None:
    line = next(line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("calibrate ="))
    assert all(name in line for name in extra.PACKAGES)
    extra.need()


def test_listing_and_showing_load_neither_scipy_nor_matplotlib() -> None:
    code = "import sys; from proxy.__main__ import main; main(['curves', 'list']); main(['curves', 'show', 'seed']); "
    code += "sys.stderr.write(str([name for name in ('scipy', 'numpy', 'matplotlib') if name in sys.modules]))"
    assert ran("-c", code).stderr == "[]"


def test_a_reader_that_has_had_enough_is_no_failure() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        ended = ran("-m", "proxy", "curves", "show", "seed", stdout=gone, env={**os.environ, "PYTHONUNBUFFERED": ""})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_bad_usage_has_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["curves"], ["curves", "show"], ["curves", "show", "seed", "--svg", "a", "--png", "b"]):
        with pytest.raises(SystemExit) as ended:
            main(argv)
        assert ended.value.code == 2
    capsys.readouterr()


def test_the_error_is_of_the_kind_that_commands_catch() -> None:
    with pytest.raises(ConfigError, match="known curves"):
        curves.find("nonsense")
