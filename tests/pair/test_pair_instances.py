"""What each instance is started with, which trials follow, and what stands in where there is no GPU."""

import asyncio
import socket
from pathlib import Path

import pytest
from fakes.engine import FakeEngine
from pair.arms import trials
from pair.instances import NotUp, instances, serves, started
from pair.limits import Limits
from pair.options import ADAPTIVE, BASELINE, BESIDE, SPECULATIVE, Options, parsed
from pair.stand_in import command

from proxy.config import from_mapping
from proxy.model import Placement, Policy

NUMBERS = {placement: Limits(crossing=13, fixed=10) for placement in Placement}


def options(*more: str) -> Options:
    return parsed(["--model", "target", "--draft", "eagle", "--accepts", "2.2,2.6", *more])


def made(asked: Options, *without: str, curves: Path = Path("curves.yaml")) -> list[str]:
    up = {one.name: one for one in instances(asked) if one.name not in without}
    return [one.key for one in trials(asked, up, NUMBERS, curves)]


def test_all_instances_share_the_flags_and_only_those_that_draft_have_a_draft() -> None:
    found = {one.name: one for one in instances(options("--flags=--dtype bfloat16"))}

    assert set(found) == {SPECULATIVE, BASELINE, ADAPTIVE}
    assert all("--dtype bfloat16" in one.line and "--model-path target" in one.line for one in found.values())
    assert "draft" not in found[BASELINE].line
    assert "SGLANG_SIMULATE_ACC_LEN" not in found[BASELINE].line
    assert "SGLANG_SIMULATE_ACC_LEN=2.2" in found[SPECULATIVE].line
    assert "SGLANG_SIMULATE_ACC_LEN=2.6" in found[ADAPTIVE].line
    assert "--speculative-adaptive" in found[ADAPTIVE].command
    assert len({one.url for one in found.values()}) == len(found)


def test_one_gpu_is_placement_shared_for_two_instances_on_it() -> None:
    asked = options("--gpus", "0")

    assert {one.gpu for one in instances(asked)} == {"0"}
    assert made(asked) == [
        *("only-speculative", "only-baseline", "adaptive"),
        *("fixed-limit-shared", "threshold-shared", "auto-shared"),
    ]


def test_two_gpus_are_placement_separate_and_a_second_baseline_makes_the_shared_one_too() -> None:
    asked = options("--gpus", "0,1", "--placements", "separate,shared", "--arms", "auto")
    found = {one.name: one.gpu for one in instances(asked)}

    assert found == {SPECULATIVE: "0", BASELINE: "1", BESIDE: "0"}
    up = {one.name: one for one in instances(asked)}
    pairs = [[each.name for each in one.engines] for one in trials(asked, up, NUMBERS, Path("curves.yaml"))]
    assert pairs == [[SPECULATIVE, BASELINE], [SPECULATIVE, BESIDE]]


def test_separate_is_refused_when_there_is_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--gpus", "0", "--placements", "separate")

    assert "needs two GPUs" in capsys.readouterr().err


def test_trials_of_an_instance_that_did_not_come_up_are_left_out() -> None:
    assert "adaptive" not in made(options(), ADAPTIVE)
    shared = made(options("--gpus", "0,1", "--placements", "separate,shared"), BESIDE)
    assert [one for one in shared if one.endswith("shared")] == []


def test_every_configuration_of_the_proxy_is_a_right_one(tmp_path: Path) -> None:
    asked = options("--gpus", "0,1", "--placements", "separate,shared")
    up = {one.name: one for one in instances(asked)}
    found = {one.key: one for one in trials(asked, up, NUMBERS, tmp_path / "curves.yaml") if one.config}

    rules = {}
    for key, one in found.items():
        told = {**one.config, "routing": {k: v for k, v in one.config["routing"].items() if k != "curves_file"}}
        rules[key] = from_mapping(told).routing
        assert from_mapping(told).placement == one.placement
    assert (rules["fixed-limit-separate"].policy, rules["fixed-limit-separate"].leave_at) == (Policy.OVERFLOW, 10)
    assert (rules["threshold-shared"].policy, rules["threshold-shared"].leave_at) == (Policy.THRESHOLD, 13)
    assert found["auto-shared"].config["routing"]["curves_file"] == str(tmp_path / "curves.yaml")


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ("--model-path m --port 1", ("--role", "baseline")),
        ("--speculative-algorithm EAGLE3 --speculative-num-steps 2 --port 1", ("--role", "speculative")),
    ],
)
def test_a_stand_in_has_the_role_that_sglangs_flags_say(flags: str, wanted: tuple[str, str]) -> None:
    line = command(flags.split())

    assert " ".join(wanted) in " ".join(line)
    assert "--speculative-adaptive" not in line


def test_a_stand_in_is_adaptive_and_as_wide_as_it_is_told_to_be() -> None:
    asked = "--speculative-algorithm EAGLE3 --speculative-adaptive --max-running-requests 256 --port 1"

    line = command(asked.split())

    assert "--speculative-adaptive" in line
    assert line[line.index("--max-running-requests") + 1] == "256"


def test_a_taken_port_ends_the_run_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        asked = options("--port", str(other.getsockname()[1]))
        with pytest.raises(NotUp, match="something listens"), started(instances(asked), tmp_path, 1.0):
            pass

    assert list(tmp_path.iterdir()) == []


async def test_instances_that_run_are_measured_and_neither_started_nor_ended(tmp_path: Path) -> None:
    async with FakeEngine() as one, FakeEngine() as other:
        asked = options("--arms", "auto", "--running", f"speculative={one.url},baseline={other.url}")
        up, after = await asyncio.to_thread(_seen, asked, tmp_path / "logs")

    assert up == {SPECULATIVE: one.url, BASELINE: other.url}
    assert after == [True, True]


def _seen(asked: Options, logs: Path) -> tuple[dict[str, str], list[bool]]:
    with started(instances(asked), logs, 30.0) as up:
        found = {name: each.url for name, each in up.items()}
    assert not logs.exists()
    return found, [serves(url) for url in found.values()]


def test_a_running_instance_of_no_known_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--running", "basline=http://127.0.0.1:1")

    assert "basline is none of" in capsys.readouterr().err


def test_arms_that_leave_a_part_of_auto_out_differ_in_that_alone(tmp_path: Path) -> None:
    asked = options("--arms", "auto,unlearned,blind")
    up = {one.name: one for one in instances(asked)}
    auto, unlearned, blind = (one.config["routing"] for one in trials(asked, up, NUMBERS, tmp_path / "curves.yaml"))

    assert unlearned == {**auto, "learn": False}
    assert blind == {**auto, "affinity": {"enabled": False}}
    urls = {role: {"url": f"http://127.0.0.1:{port}"} for port, role in ((1, SPECULATIVE), (2, BASELINE))}
    for rules in (unlearned, blind):
        rules.pop("curves_file")
        assert from_mapping({"backends": urls, "routing": rules}).routing.policy is Policy.AUTO
