"""Settings that go against what was measured are told with the mend; those that go with it are not."""

from pathlib import Path
from typing import Any

import pytest
from fakes.curves import NAME, context, measured, one_sided, write

from proxy.config import cautions, from_mapping
from proxy.config.curves_cautions import contradictions, outdated
from proxy.config.curves_file import read_curves
from proxy.model import Role

BACKENDS = {"speculative": {"url": "http://a:1"}, "baseline": {"url": "http://b:2"}}
REVERSE = context(crossings=[{"at": 32, "low": 16, "high": 64, "faster_above": "speculative"}])


def said(folder: Path, contexts: list[dict[str, Any]], placement: str = "separate", **routing: Any) -> list[str]:
    """What settings with these routing keys are told, beside a file with these buckets."""
    write(folder, measured(contexts=contexts, placement=placement))
    values = {"backends": BACKENDS, "placement": placement, "routing": {"curves_file": NAME, **routing}}
    return list(contradictions(from_mapping(values, folder)))


@pytest.mark.parametrize(
    ("verdict", "placement", "routing", "told"),
    [
        ("never_speculate", "separate", {"policy": "overflow"}, ("routing.policy: overflow", "run that instance wi")),
        ("never_speculate", "separate", {"policy": "threshold"}, ("routing.policy: threshold", "as a second baseline")),
        ("never_speculate", "shared", {"policy": "threshold"}, ("routing.policy: threshold", "set policy: pinned and")),
        ("never_speculate", "shared", {"policy": "pinned", "pin": "speculative"}, ("routing.pin", "set pin: baseline")),
        (
            "always_speculate",
            "shared",
            {"policy": "threshold"},
            ("routing.policy: threshold", "set policy: auto"),
        ),
        ("always_speculate", "separate", {"policy": "threshold"}, ("routing.policy: thr", "set policy: auto")),
        ("always_speculate", "separate", {"policy": "pinned"}, ("routing.pin: baseline", "set pin: speculative")),
    ],
)
def test_a_policy_against_a_one_sided_verdict_is_told_with_the_mend(
    tmp_path: Path, verdict: str, placement: str, routing: dict[str, Any], told: tuple[str, str]
) -> None:
    (message,) = said(tmp_path, [one_sided(verdict)], placement, **routing)
    assert message.startswith(told[0])
    assert told[1] in message.partition("; mend: ")[2]


@pytest.mark.parametrize(
    ("verdict", "placement", "routing"),
    [
        ("never_speculate", "separate", {"policy": "pinned"}),
        ("always_speculate", "separate", {"policy": "overflow"}),
        ("never_speculate", "separate", {}),
        ("always_speculate", "separate", {}),
        ("never_speculate", "separate", {"policy": "marginal"}),
        ("never_speculate", "shared", {}),
        ("always_speculate", "shared", {"policy": "consolidate"}),
        ("always_speculate", "shared", {"policy": "pinned", "pin": "speculative"}),
        ("unknown", "shared", {"leave_at": 500}),
    ],
)
def test_a_policy_that_goes_with_the_verdict_is_not_told(
    tmp_path: Path, verdict: str, placement: str, routing: dict[str, Any]
) -> None:
    assert said(tmp_path, [one_sided(verdict)], placement, **routing) == []


@pytest.mark.parametrize(
    ("policy", "leave_at", "far"),
    [
        *(("threshold", 2, True), ("threshold", 3, False), ("threshold", 14, False), ("threshold", 15, True)),
        *(("overflow", 2, False), ("overflow", 14, False), ("overflow", 15, True), ("pinned", 500, False)),
    ],
)
def test_a_leave_at_far_from_the_interval_is_told(tmp_path: Path, policy: str, leave_at: int, far: bool) -> None:
    found = said(tmp_path, [context()], policy=policy, leave_at=leave_at)
    assert [message.partition(" ")[0] for message in found] == ["routing.leave_at:"] * far


def test_the_mend_of_leave_at_is_the_band_where_the_ratios_tell_one(tmp_path: Path) -> None:
    (message,) = said(tmp_path, [context()], policy="threshold", leave_at=100)
    assert message == (
        "routing.leave_at: 100 is far from where baseline was measured to overtake, 5 to 7 in flight at 1024 tokens of "
        "context; mend: set policy: auto, which follows the curves, or set leave_at: 7 and enter_at: 5"
    )
    (message,) = said(tmp_path, [context(ratio=[], crossings=context()["crossings"])], policy="overflow", leave_at=100)
    assert message.endswith("mend: set policy: auto, which follows the curves, or set leave_at: 6")


def test_a_leave_at_that_fits_one_bucket_is_not_told(tmp_path: Path) -> None:
    longer = context(context_tokens=8192, crossings=[{"at": 100, "low": 90, "high": 110, "faster_above": "baseline"}])
    assert said(tmp_path, [context(), longer], policy="threshold", leave_at=100) == []


def test_a_one_sided_bucket_beside_others_is_not_told_since_no_policy_looks_at_context(tmp_path: Path) -> None:
    never = one_sided("never_speculate", context_tokens=8192)
    assert said(tmp_path, [context(), never], policy="threshold", leave_at=6) == []


@pytest.mark.parametrize("policy", ["threshold", "overflow"])
def test_a_reverse_crossing_is_told_since_every_policy_speculates_while_few_run(tmp_path: Path, policy: str) -> None:
    (message,) = said(tmp_path, [REVERSE], policy=policy, leave_at=32)
    assert "the measured order is the reverse" in message
    assert "mend: set policy: auto, which follows the curves, or set policy: pinned" in message


def test_no_crossing_is_told_where_the_policy_follows_the_curves(tmp_path: Path) -> None:
    assert said(tmp_path, [REVERSE], leave_at=500) == []
    assert said(tmp_path, [context()], policy="marginal", leave_at=500) == []


def test_consolidate_on_gpus_of_their_own_is_told(tmp_path: Path) -> None:
    (message,) = said(tmp_path, [context()], policy="consolidate")
    assert message.startswith("routing.policy: consolidate uses one backend at a time, and placement is separate")
    assert message.endswith("mend: set policy: auto")


def test_marginal_on_shared_gpus_is_told(tmp_path: Path) -> None:
    (message,) = said(tmp_path, [context()], "shared", policy="marginal")
    assert message.startswith("routing.policy: marginal takes each backend to have GPUs of its own")
    assert message.endswith("mend: set policy: auto")


def test_speeds_that_leave_out_a_backend_are_told_since_auto_cannot_follow_them(tmp_path: Path) -> None:
    gap = context(context_tokens=8192, baseline=[])
    (message,) = said(tmp_path, [context(), gap])
    assert message.startswith("routing.curves_file: has no speeds of the baseline backend at 8192 tokens of context")
    assert "so policy auto takes overflow" in message


def test_another_placement_than_the_one_measured_is_told(tmp_path: Path) -> None:
    write(tmp_path, measured(placement="shared"))
    settings = from_mapping({"backends": BACKENDS, "routing": {"curves_file": NAME, "leave_at": 6}}, tmp_path)
    (message,) = contradictions(settings)
    assert "was written for placement shared, and placement is separate" in message
    assert message in cautions(settings)


def test_without_curves_nothing_is_told() -> None:
    assert contradictions(from_mapping({"backends": BACKENDS})) == ()
    assert outdated(None, {Role.BASELINE: "0.6"}) == ()


@pytest.mark.parametrize(
    ("measured_with", "running", "told"),
    [
        ("0.5.23", "0.5.24", True),
        ("0.5.23", "0.5.23", False),
        ("0.5.23", None, False),
        (None, "0.5.24", False),
    ],
)
def test_an_engine_of_another_version_than_the_one_measured_is_told(
    tmp_path: Path, measured_with: str | None, running: str | None, told: bool
) -> None:
    curves, _ = read_curves(write(tmp_path, measured(engines={"baseline": measured_with})))
    found = outdated(curves, {Role.SPECULATIVE: "0.5.23", Role.BASELINE: running})
    assert (
        list(found)
        == [
            "routing.curves_file: the baseline engine is version 0.5.24, and its speeds were measured with 0.5.23; "
            "mend: calibrate again"
        ]
        * told
    )
