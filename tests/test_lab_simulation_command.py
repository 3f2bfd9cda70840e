"""`crossover simulate`: what it prints and writes, and its exit codes."""

import json
from pathlib import Path

import pytest
from fakes.curves import context, measured, write

from proxy.__main__ import main
from proxy.lab.simulation import command
from proxy.lab.simulation.arms import CONTROLS

KIMI = "rtx6kpro_kimi26_v1_dcp1_ctx0"
SMALL = ("--requests", "200", "--seeds", "3", "--max-in-flight", "32", "--no-controls")


def _said(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    code = main(["simulate", *argv])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    return said.out


def _refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["simulate", *argv]) == 1
    return capsys.readouterr().err


def test_a_run_prints_a_block_for_each_cell_and_writes_a_row_for_each_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    argv = ("--curve", f"{KIMI},seed", "--policy", "marginal,faster", "--load", "0.05,0.1", "--json", str(path), *SMALL)
    said = _said(capsys, *argv)
    rows = json.loads(path.read_bytes())["rows"]
    assert [(row["curve"], row["load"], row["policy"]) for row in rows] == [
        (curve, load, policy) for curve in (KIMI, "seed") for load in (0.05, 0.1) for policy in ("marginal", "faster")
    ]
    assert said.count("separate GPUs, poisson") == 4
    assert "worst of 4 cells" in said
    assert "a minute on a core" in said.splitlines()[-1]


def test_a_calibrations_file_is_run_at_its_smallest_context_and_the_output_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, rows = write(tmp_path, measured(contexts=[context(), context(context_tokens=8192)])), tmp_path / "rows.json"
    argv = ("--curve", str(file), "--policy", "faster", "--load", "0.2", "--oracles", "none", "--json", str(rows))
    said = _said(capsys, *argv, "--arrivals", "poisson,closed:4", *SMALL)
    assert said.count("1024 tokens of context, placement separate; left out: 8192 tokens\n") == 1
    assert {row["curve"] for row in json.loads(rows.read_bytes())["rows"]} == {"curves"}


def test_a_calibrations_file_with_a_mistake_is_refused_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "placement" in _refused(capsys, "--curve", str(write(tmp_path, measured(placement="split"))), *SMALL)
    one = write(tmp_path, measured(contexts=[context(baseline=[])]))
    assert "both backends" in _refused(capsys, "--curve", str(one), *SMALL)


def test_every_table_has_the_control_arms_beside_the_policies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    argv = ("--policy", "overflow,faster", "--load", "0.2", "--oracles", "none", "--json", str(path), *SMALL[:-1])
    said = _said(capsys, *argv)
    rows = json.loads(path.read_bytes())["rows"]
    assert [row["policy"] for row in rows] == ["overflow", "faster", *(name for name in CONTROLS if name != "faster")]
    assert [row["policy"] for row in rows if row["control"]] == [name for name in CONTROLS if name != "faster"]
    assert "worst of" not in said


def test_what_happens_meanwhile_is_said_in_the_table_and_in_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    course = ("--acceptance", "0.7@20s", "--lose", "speculative@30s+10s", "--aborts", "0.1", "--dispersion", "0.1")
    argv = ("--load", "0.4", "--oracles", "o2", "--polls", "--route-by-slo", *course, "--json", str(path), *SMALL)
    said = _said(capsys, "--curve", KIMI, *argv)
    words = ["acceptance 0.7@20s", "lose speculative@30s+10s", "aborts 0.1", "dispersion 0.1"]
    (row,) = json.loads(path.read_bytes())["rows"]
    assert row["course"] == words
    assert ", ".join(words) in said.splitlines()[0]
    assert row["gone"] > 0
    assert "gone" in said.splitlines()[1]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--acceptance", "0.5@soon"), "could not convert"),
        (("--acceptance", "0@5"), "above 0"),
        (("--acceptance", "0.5@9,1@3"), "instants must rise"),
        (("--acceptance", "1/0.5@0"), "some time"),
        (("--lose", "drafter@3+1"), "drafter"),
        (("--lose", "baseline@3+0"), "some time"),
        (("--dispersion", "-1"), "'-1' is not a number above 0"),
        (("--load", "0.1,0"), "'0' is not a number above 0"),
        (("--load", "nan"), "'nan' is not a number above 0"),
        (("--seeds", "-1"), "'-1' is not a whole number above 0"),
        (("--oracles", "o9"), "there is no oracle o9; mend: o1, o2, o3, or none"),
        (("--slo-ttft", "0"), "'0' is not a number above 0"),
        (("--aborts", "1"), "1 is not a share below 1"),
        (("--placement", "both"), "(choose from separate, shared)"),
    ],
)
def test_a_word_that_means_nothing_is_bad_usage_and_says_why(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", *argv])
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert argv[0] in said
    assert why in said.replace("'separate', 'shared'", "separate, shared")


def test_more_processes_write_the_same_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = [tmp_path / f"{jobs}.json" for jobs in (1, 2)]
    for jobs, path in enumerate(paths, 1):
        argv = ("--load", "0.1,0.3", "--placement", "shared", "--oracles", "o1", "--jobs", str(jobs))
        _said(capsys, "--curve", KIMI, *argv, "--json", str(path), *SMALL)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_traffic_of_every_kind_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "talk.jsonl"
    rows = [
        {"timestamp": 100 * n, "input_length": 600, "output_length": 20 + n, "hash_ids": [n % 3, n]} for n in range(50)
    ]
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = tmp_path / "rows.json"
    kinds = f"poisson,gamma,gamma:3,closed:4,alternating:0.1/0.3/60,turns:2/5,code,chat,{trace}"
    _said(capsys, "--arrivals", kinds, "--load", "0.2", "--oracles", "o2", "--json", str(path), *SMALL, "--seeds", "1")
    found = [(row["arrivals"], row["load"]) for row in json.loads(path.read_bytes())["rows"]]
    assert found == [
        *(
            ("poisson", 0.2),
            ("gamma:1.41421", 0.2),
            ("gamma:3", 0.2),
            ("closed:4", None),
            ("alternating:0.1/0.3/60", 0.2),
        ),
        *(("turns:2/5", 0.2), ("code", 0.2), ("chat", 0.2), ("talk", 0.2)),
    ]


def test_a_curve_from_a_file_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    points = [{"concurrency": n, "spec": 50.0 * n**0.6, "baseline": 40.0 * n**0.8} for n in (1, 4, 16, 64)]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "points": points, "source": "here", "verified": True}))
    assert "mine, separate GPUs" in _said(capsys, "--curve", str(path), "--load", "0.3", "--oracles", "none", *SMALL)


def _falling(folder: Path) -> str:
    """A curve whose engines are the slower the more they have to do, from a few on: at their limit next to nothing."""
    speeds = {1: 200.0, 4: 400.0, 16: 4.0, 32: 0.4}
    points = [{"concurrency": n, "spec": tok_s, "baseline": 0.9 * tok_s} for n, tok_s in speeds.items()]
    path = folder / "falling.json"
    path.write_text(json.dumps({"name": "falling", "points": points, "source": "here", "verified": True}))
    return str(path)


def test_a_load_that_is_never_carried_ends_and_is_told_as_overload(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    argv = ("--curve", _falling(tmp_path), "--load", "0.05,0.7", "--policy", "overflow:32", "--oracles", "o2", *SMALL)
    said = _said(capsys, *argv, "--json", str(path))
    calm, row = json.loads(path.read_bytes())["rows"]
    assert calm["overload"] is None
    assert row["mean_e2e_s"] is row["goodput"] is row["regret"]["o2"] is None
    assert row["overload"]["seed"] == 1
    assert row["overload"]["waiting"] > 9 * row["requests"]
    assert f"overflow:32: {row['overload']['waiting']} waited when it was given up after" in said
    (line,) = (line.split() for line in said.splitlines() if line.split()[:2] == ["overflow:32", "overloaded"])
    assert set(line[2:]) == {"-"}


def test_a_burst_of_more_than_the_whole_run_is_no_overload(capsys: pytest.CaptureFixture[str]) -> None:
    bursts = ("--arrivals", "gamma:100", "--load", "0.3", "--requests", "50", "--seeds", "3")
    said = _said(capsys, *bursts, "--policy", "overflow", "--no-controls", "--oracles", "none", "--jobs", "1")
    assert "overloaded" not in said


def test_nothing_that_carries_what_comes_is_exit_code_1_and_what_was_found_is_told_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, pictures = tmp_path / "rows.json", tmp_path / "pictures"
    argv = ("--curve", _falling(tmp_path), "--load", "0.7", "--policy", "overflow:32", "--oracles", "none")
    assert main(["simulate", *argv, "--json", str(path), "--plots", str(pictures), *SMALL]) == 1
    said = capsys.readouterr()
    assert "mend: lower --load, or --max-in-flight" in said.err
    assert "overloaded: more comes than it carries" in said.out
    assert json.loads(path.read_bytes())["rows"][0]["overload"]
    assert list(pictures.iterdir())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--policy", "fastest"), "no policy or control arm is called 'fastest'"),
        (("--policy", "overflow:many"), "'many' is no number"),
        (("--curve", "nowhere"), "no curve called 'nowhere'"),
        (("--arrivals", "gamma:0"), "'0' is not a number above 0"),
        (("--arrivals", "closed"), "closed: '' is not a whole number above 0"),
        (("--arrivals", "turns:0.5"), "a question at least"),
        (("--arrivals", "alternating:0.1"), "two loads and seconds, as in"),
        (("--dispersion", "0.9"), "mend: stay below 0.49"),
        (("--arrivals", "tides"), "neither a kind of traffic nor a file"),
        (("--max-in-flight", "5000"), "at most 512"),
    ],
)
def test_what_means_nothing_is_refused_with_its_mend(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    refused = _refused(capsys, *argv)
    assert said in refused
    assert "mend: " in refused or "known curves" in refused


def test_rows_that_cannot_be_written_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    argv = ("--load", "0.1", "--oracles", "none", "--json", str(tmp_path / "no" / "rows.json"))
    assert "cannot be written" in _refused(capsys, *argv, *SMALL)


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_told_on_standard_error_to_whoever_watches(
    watched: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: watched)
    told = [(0, 4, 0.0), (1, 4, 2.0), (None, 4, 0.0)]
    for each in told:
        command._tell(*each)
    out, said = capsys.readouterr()
    assert out == ""
    lines = ["0 of 4 cells done", "1 of 4 cells done, about 6 s left", ""]
    assert said == ("".join(f"\r\x1b[K{line}" for line in lines) if watched else "")
