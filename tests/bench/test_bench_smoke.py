"""The measurement runs from end to end; what it says of speed is nobody's business here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--rounds", "1", "--seconds", "0.3", "--part", "0.02", "--contenders", "ours,bare,direct"]
TESTS = ["--tests", "paced,plain,idle,stopped"]
PROXIES = ("ours", "bare")
STREAMED = ("paced", "idle", "stopped")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CPU clocks of other processes are read as on Linux")


def bench(*arguments: str | Path, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=None if path is None else {**os.environ, "PATH": path},
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "result.json"
    ran = bench(*TINY, *TESTS, "--json", path)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("contender", PROXIES)
def test_a_proxy_has_every_figure_of_streams_when_they_are_measured(result: dict[str, Any], contender: str) -> None:
    figures = result["figures"]["paced"][contender]

    wanted = {"cpu_us", "over_bare", "user_share", "units_per_s", "reads_per_unit", "delivered_share"}
    wanted |= {"delay_p50_us", "delay_p99_us", "added_delay_p50_us", "added_delay_p99_us"}
    assert wanted <= set(figures)
    assert all(figures[name]["median"] > 0 for name in ("cpu_us", "units_per_s", "reads_per_unit", "delay_p50_us"))


@pytest.mark.parametrize("contender", PROXIES)
def test_a_proxy_has_every_figure_of_requests_when_they_are_measured(result: dict[str, Any], contender: str) -> None:
    figures = result["figures"]["plain"][contender]

    assert all(
        figures[name]["median"] > 0 for name in ("cpu_us", "over_bare", "units_per_s", "delay_p50_us", "delay_p99_us")
    )


def test_direct_has_no_cost_of_its_own_when_measured(result: dict[str, Any]) -> None:
    figures = result["figures"]["paced"]["direct"]

    assert "cpu_us" not in figures
    assert figures["delay_p50_us"]["median"] > 0


@pytest.mark.parametrize("contender", PROXIES)
def test_memory_is_told_when_the_test_is_about_memory(result: dict[str, Any], contender: str) -> None:
    assert "kib_per_stream" in result["figures"]["idle"][contender]
    assert "grew_mib" in result["figures"]["stopped"][contender]


def test_every_event_arrives_with_all_its_bytes_when_streams_are_measured(result: dict[str, Any]) -> None:
    streams = [each for each in result["measurements"] if each["test"] in STREAMED]

    assert len(streams) == 3 + 2 + 2  # without a proxy there is no memory to look at
    assert {(each["load"]["lost"], each["load"]["wrong"]) for each in streams} == {(0, 0)}


def test_date_machine_and_versions_are_told_when_a_result_is_written(result: dict[str, Any]) -> None:
    assert set(result["machine"]) == {"cpu", "cores", "pinned", "system"}
    assert {"crossover", "python", "aiohttp", "uvloop"} <= set(result["versions"])
    assert len(result["date"].split("-")) == 3


def test_a_missing_peer_is_named_and_left_out_when_it_was_asked_for(tmp_path: Path) -> None:
    ran = bench(*TINY[:-1], "bare,nginx", "--tests", "plain", path=str(tmp_path))

    assert "left out: nginx is not here; apt-get install nginx" in ran.stderr
    assert "| bare" in ran.stdout
