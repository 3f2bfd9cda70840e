"""The measurement runs from end to end; what it says of speed is nobody's business here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--rounds", "1", "--seconds", "0.4", "--streams", "6", "--rate", "20"]
PROXIES = ("ours", "bare")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CPU clocks of other processes are read as on Linux")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "result.json"
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "bench", *TINY, "--json", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("contender", PROXIES)
@pytest.mark.parametrize("test", ["streams", "plain"])
def test_a_proxy_has_every_figure_and_each_is_positive_when_measured(
    result: dict[str, Any], test: str, contender: str
) -> None:
    figures = result["figures"][test][contender]

    wanted = {"cpu_us", "cpu_over_base", "user_share", "units_per_s", "reads_per_unit", "harness_share", "others_share"}
    if test == "streams":
        wanted |= {"first_byte_us", "added_first_byte_us", "delivered_share"}
    assert set(figures) == wanted
    # Nothing else may be running, user time comes in steps, and the median of six first bytes may be anything.
    uncertain = {"others_share", "user_share", "added_first_byte_us"}
    assert {name for name, figure in figures.items() if figure["median"] <= 0} <= uncertain


def test_direct_has_no_cpu_time_of_its_own_when_measured(result: dict[str, Any]) -> None:
    figures = result["figures"]["streams"]["direct"]

    assert "cpu_us" not in figures
    assert figures["first_byte_us"]["median"] > 0


def test_every_event_arrives_when_streams_are_measured(result: dict[str, Any]) -> None:
    streams = [each for each in result["measurements"] if each["test"] == "streams"]

    assert [each["contender"] for each in streams] == ["ours", "bare", "direct"]
    assert [each["load"]["lost"] for each in streams] == [0, 0, 0]
    assert all(each["load"]["units"] > 0 for each in streams)


def test_a_spread_is_nought_when_there_was_one_round(result: dict[str, Any]) -> None:
    figures = [figure for of_test in result["figures"].values() for own in of_test.values() for figure in own.values()]

    assert {figure["spread"] for figure in figures} == {0.0}


def test_versions_and_machine_are_told_when_a_result_is_written(result: dict[str, Any]) -> None:
    assert set(result["machine"]) == {"cpu", "cores", "pinned", "system"}
    assert {"crossover", "python", "aiohttp", "uvloop"} <= set(result["versions"])
