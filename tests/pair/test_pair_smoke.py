"""A whole run on stand-ins for engines: what it leaves, and that it goes on where it was cut."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = f"{sys.executable} -P -m pair.stand_in --time-scale 0.05 --health-latency-s 0.01"
ARMS = ("only-baseline", "auto")
PORTS = 10
CURVES = """\
version: 1
measured_at: "2026-11-29T00:00:00Z"
placement: shared
contexts:
  - context_tokens: 512
    verdict: unknown
    reason: one sweep
    speculative: [{in_flight: 1, tok_s: 300}, {in_flight: 64, tok_s: 3400}]
    baseline: [{in_flight: 1, tok_s: 200}, {in_flight: 64, tok_s: 8000}]
"""


def gpu_pair(folder: Path, port: int) -> "subprocess.CompletedProcess[str]":
    asked = ["--model", "m", "--engine", ENGINE, "--port", str(port), "--arms", ",".join(ARMS)]
    asked += ["--curves", str(folder / "curves.yaml"), "--out", str(folder / "out")]
    asked += ["--rates", "20,40", "--step-s", "0.3", "--tokens", "16", "--clients", "2", "--concurrency", "1,2"]
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "gpu_pair", *asked],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def ten_ports() -> int:
    """The first of ten ports in a row that were free just now, below those that the kernel gives to anybody. Processes
    that look at the same time begin at different places."""
    for place in range(1000):
        first = 20_000 + PORTS * ((os.getpid() + place) % 1000)
        with ExitStack() as stack:
            try:
                for port in range(first, first + PORTS):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ten ports in a row are free")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("pair")
    (found / "curves.yaml").write_text(CURVES)
    ran = gpu_pair(found, ten_ports())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return found


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "result.json").read_text())
    return found


def test_every_arm_has_served_the_same_arrivals_and_left_nothing_in_flight(folder: Path) -> None:
    trials = {one["arm"]: one for one in result(folder)["trials"]}

    assert set(trials) == set(ARMS)
    assert len({one["all"]["requests"] for one in trials.values()}) == 1
    assert all(one["all"]["errors"] == {} and one["all"]["whole"] > 0 for one in trials.values())
    assert trials["auto"]["left_in_flight"] == {"speculative": 0, "baseline": 0, "proxy": 0}
    assert trials["only-baseline"]["left_in_flight"] == {"baseline": 0}


def test_the_proxys_arm_has_shares_and_runs_the_policy_that_the_placement_wants(folder: Path) -> None:
    auto = next(one for one in result(folder)["trials"] if one["arm"] == "auto")

    assert sum(auto["all"]["shares"].values()) == pytest.approx(1.0)
    assert (auto["placement"], auto["status"]["policy"]) == ("shared", "consolidate")


def test_what_the_proxy_saw_of_a_trial_is_kept_with_its_times(folder: Path) -> None:
    said = [json.loads(line) for line in (folder / "out" / "proxy" / "auto-shared.log").read_text().splitlines()]
    seen = json.loads((folder / "out" / "proxy" / "auto-shared.seen.json").read_text())
    auto = next(one for one in result(folder)["trials"] if one["arm"] == "auto")
    columns, samples = seen["history"]["columns"], seen["history"]["samples"]

    assert sum(one["event"] == "request_settled" for one in said) == auto["all"]["requests"]
    assert {"regime", "speculative_in_flight", "baseline_in_flight"} <= set(columns)
    # Both are of one clock; samples are a second apart, and a quick trial may be over before the next.
    assert abs(samples[-1][columns.index("at_s")] - seen["began_at_s"]) < 60.0
    assert all(event["kind"] != "regime" for event in seen["journal"]["events"]) == (auto["changes"] == [])


def test_the_report_has_the_flags_the_versions_and_a_table_for_each_load(folder: Path) -> None:
    text = (folder / "out" / "report.md").read_text()

    assert "--speculative-num-draft-tokens 16" in text
    assert "version 0.5.23" in text
    assert "crossover 0" in text
    assert text.count("| Crossover, `auto`, shared") == 3


def test_no_engine_is_left_when_a_run_has_ended(folder: Path) -> None:
    for one in result(folder)["instances"]:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(one["command"].split()[-1]))) != 0


def test_a_cut_run_goes_on_with_what_is_missing(folder: Path) -> None:
    trials = folder / "out" / "trials"
    kept = (trials / "auto-shared.json").read_text()
    (trials / "only-baseline.json").unlink()

    ran = gpu_pair(folder, ten_ports())

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "starting baseline\n" in ran.stdout
    assert "auto-shared:" not in ran.stdout
    assert "only-baseline:" in ran.stdout
    assert (trials / "auto-shared.json").read_text() == kept
    assert all(one["told"] for one in result(folder)["instances"])
