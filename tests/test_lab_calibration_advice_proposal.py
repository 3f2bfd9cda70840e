from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from fakes.calibrated import context, findings, of_curve, running, seed_box
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.loading import from_mapping
from proxy.config.settings import Settings
from proxy.lab.calibration.advice.proposal import Proposal, placement_of, propose
from proxy.lab.calibration.report import curves_yaml
from proxy.lab.calibration.values import Findings
from proxy.model import Placement, Role
from proxy.routing.verdict import VerdictKind

SEPARATE, SHARED = Placement.SEPARATE, Placement.SHARED
URLS = {role.value: {"url": f"http://127.0.0.1:{30001 + index}"} for index, role in enumerate(Role)}

CROSSING = "rtx6kpro_glm51_dcp4_ctx16384"
SEVERAL = "rtx6kpro_glm5_sglang_b12x_ctx0"
REVERSE = "rtx6kpro_qwen35_397b_awq_vllm_ctx64k"
ALWAYS = "amd_mi355x_kimi25_eagle3_bf16"

tables = st.lists(st.floats(1.0, 500.0), min_size=0, max_size=6).map(
    lambda speeds: {2**index: speed for index, speed in enumerate(speeds)}
)


def of(name: str, placement: Placement) -> Proposal:
    return propose(findings(of_curve(name), placement=placement))


def keys(proposal: Proposal) -> dict[str, object]:
    """The keys of the fixed rule."""
    return dict(proposal.by_hand)


def loaded(found: Findings, before: dict[str, Any] | None = None) -> Settings:
    """The settings with the proposed blocks in them and the curves beside them, as an operator would merge them."""
    values: dict[str, Any] = yaml.safe_load(propose(found).yaml()) or {}
    routing = {**(before or {}), **values.get("routing", {})}
    backends = {role: {**one, **values.get("backends", {}).get(role, {})} for role, one in URLS.items()}
    settings = {"backends": backends, "placement": placement_of(found).value, "routing": routing}
    with TemporaryDirectory() as folder:
        if (curves := curves_yaml.text(found)) is not None:
            (Path(folder) / "curves.yaml").write_text(curves, encoding="utf-8")
        return from_mapping(settings, Path(folder))


def test_a_crossover_on_shared_gpus_is_a_threshold_with_its_band() -> None:
    assert keys(of(CROSSING, SHARED)) == {"policy": "threshold", "leave_at": 7, "enter_at": 5}


def test_a_crossover_on_separate_gpus_is_an_overflow_at_the_best_limit() -> None:
    assert keys(of(CROSSING, SEPARATE)) == {"policy": "overflow", "leave_at": 4}


@pytest.mark.parametrize("placement", Placement)
def test_never_speculating_pins_the_baseline(placement: Placement) -> None:
    assert keys(of("seed", placement)) == {"policy": "pinned", "pin": "baseline"}


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("name", [CROSSING, SEVERAL, REVERSE, ALWAYS, "seed"])
def test_whatever_the_verdict_the_curves_themselves_are_proposed_first(name: str, placement: Placement) -> None:
    found = of(name, placement)
    assert found.routing == {"policy": "auto", "curves_file": "curves.yaml"}
    assert ("policy marginal" if placement is SEPARATE else "policy consolidate") in found.because[1]
    assert any(said.startswith("By hand instead") for said in found.because)


def test_the_split_by_the_curves_is_told_in_numbers() -> None:
    said = of("seed", SEPARATE).because[1]
    assert "of 1, 4, 16, 64 and 500 in flight 0, 2, 7, 22 and 151" in said
    assert of("seed", SEPARATE).because[2].startswith("Beside baseline alone, which has half of the GPUs")


def test_the_curves_are_named_as_the_configuration_finds_them() -> None:
    found = propose(replace(findings(of_curve(CROSSING)), curves_file="../calibration/curves.yaml"))
    assert found.routing["curves_file"] == "../calibration/curves.yaml"


def test_always_speculating_pins_speculative_on_shared_gpus() -> None:
    assert keys(of(ALWAYS, SHARED)) == {"policy": "pinned", "pin": "speculative"}


def test_always_speculating_overflows_late_on_separate_gpus() -> None:
    found = keys(of(ALWAYS, SEPARATE))
    assert found["policy"] == "overflow"
    assert isinstance(found["leave_at"], int)
    assert found["leave_at"] > 64


def test_several_crossings_take_the_first_and_say_what_is_lost_above() -> None:
    found = of(SEVERAL, SHARED)
    assert keys(found) == {"policy": "threshold", "leave_at": 6, "enter_at": 3}
    assert "There are 2 crossings" in found.because[-1]
    assert "% longer" in found.because[-1]


@pytest.mark.parametrize("placement", Placement)
def test_speculation_that_pays_only_above_a_number_pins_the_better_one(placement: Placement) -> None:
    found = of(REVERSE, placement)
    assert keys(found) == {"policy": "pinned", "pin": "baseline"}
    assert any("only above a number in flight" in said for said in found.because)


def test_what_is_unknown_stays_as_it_is() -> None:
    alike = findings(context({1: 10.0, 2: 20.0}, {1: 10.0, 2: 20.0}))
    found = propose(alike)
    assert found.routing == {}
    assert found.because[0] == "Leave the routing as it is: the two do not differ by more than 3 %."
    assert found.diff(running()) == ""
    assert yaml.safe_load(found.yaml()) is None


def test_one_arm_alone_proposes_nothing() -> None:
    assert propose(findings(context({}, {1: 10.0}))).routing == {}


def test_nothing_measured_proposes_nothing() -> None:
    assert propose(findings()).routing == {}


def test_the_first_context_decides_and_the_others_are_told() -> None:
    both = findings(of_curve(CROSSING, tokens=1024), of_curve("seed", tokens=8192), placement=SHARED)
    found = propose(both)
    assert keys(found)["leave_at"] == 7
    assert found.because[-1].startswith("This holds for a context of 1024 tokens. Speculation pays never at 8192")


def test_gpus_of_their_own_are_assumed_aloud_where_nothing_says_the_placement() -> None:
    bare = findings(of_curve(CROSSING), running=None)
    assert placement_of(bare) is SEPARATE
    assert propose(bare).because[-1].startswith("No configuration said the placement")


def test_the_diff_shows_what_changes_and_keeps_what_does_not() -> None:
    lines = of(CROSSING, SHARED).diff(running(SHARED, policy="pinned")).splitlines()
    assert [line for line in lines if line[0] in "+-"] == [
        "--- running",
        "+++ proposed",
        "-  policy: pinned",
        "+  policy: auto",
        "+  curves_file: curves.yaml",
    ]


def test_the_diff_is_empty_when_the_same_runs() -> None:
    assert of(CROSSING, SHARED).diff(running(SHARED, curves_file="curves.yaml")) == ""
    assert "+  curves_file: curves.yaml" in of(CROSSING, SHARED).diff(running(SHARED, curves_file="old.yaml"))


def test_an_engine_that_gets_slower_beyond_its_peak_gets_a_limit() -> None:
    falling = context({1: 10.0, 4: 20.0, 16: 24.0}, {1: 12.0, 4: 40.0, 16: 30.0})
    found = propose(findings(falling))
    assert dict(found.max_in_flight) == {Role.BASELINE: 4}
    assert loaded(findings(falling)).backends.baseline.max_in_flight == 4
    assert "+    max_in_flight: 4" in found.diff(running())


def test_a_fall_within_the_intervals_is_no_limit() -> None:
    falling = {1: 10.0, 4: 20.0, 16: 17.0}, {1: 12.0, 4: 40.0, 16: 41.0}
    assert propose(findings(context(*falling, spread=0.01))).max_in_flight == {Role.SPECULATIVE: 4}
    assert propose(findings(context(*falling, spread=0.1))).max_in_flight == {}


def test_a_fall_of_a_few_per_cent_is_no_limit() -> None:
    falling = context({1: 10.0, 4: 20.0, 16: 19.2}, {1: 12.0, 4: 40.0, 16: 41.0}, spread=0.001)
    assert propose(findings(falling)).max_in_flight == {}


def test_the_box_this_began_from_is_pinned_to_its_baseline() -> None:
    assert seed_box().main[0].verdict.kind is VerdictKind.NEVER_SPECULATE
    assert keys(propose(seed_box())) == {"policy": "pinned", "pin": "baseline"}


@given(tables, tables, st.sampled_from(Placement), st.integers(1, 40), st.data())
def test_every_proposal_is_a_configuration_that_loads(speculative, baseline, placement, leave_at, data) -> None:
    enter_at = data.draw(st.integers(0, leave_at - 1))
    before = running(placement, leave_at=leave_at, enter_at=enter_at)
    calibrated = findings(context(speculative, baseline), placement=placement, running=before)
    settings, found = loaded(calibrated, {"leave_at": leave_at, "enter_at": enter_at}), propose(calibrated)
    assert found.because
    for key, value in found.routing.items():
        assert getattr(settings.routing, key) == value
    loaded(calibrated, {"leave_at": leave_at, "enter_at": enter_at, **({"enter_at": "auto"} | keys(found))})
