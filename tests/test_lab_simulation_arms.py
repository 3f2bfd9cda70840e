"""Ways to use two engines: the proxy's policies from settings, and control arms."""

from types import SimpleNamespace
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.lab.curves import find
from proxy.lab.simulation.arms import Arm, Bench, arm, measured, names
from proxy.lab.simulation.clairvoyant import added_s, clairvoyants, grown
from proxy.lab.simulation.pace import Pace, paces
from proxy.lab.simulation.sharing import Bounds, Gpus, Station, Task
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement, Policy, Role
from proxy.routing.verdict import VerdictKind

KIMI, TREE, SEED, ALWAYS = (
    "rtx6kpro_kimi26_v1_dcp1_ctx0",
    "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21",
    "seed",
    "rtx6kpro_glm5_sglang_cutlass_ctx0",
)


def _bench(name: str = KIMI, placement: Placement = Placement.SEPARATE, limit: int = 64) -> Bench:
    return Bench(find(name), placement, paces(find(name), limit), limit)


def _asked(one: Arm, speculative: int, baseline: int, task: Any = None) -> Role:
    assert one.choose is not None
    return one.choose(SimpleNamespace(speculative=speculative, baseline=baseline), task)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("placement", Placement)
def test_every_policy_of_the_proxy_is_an_arm_with_rules_of_its_own(policy: Policy, placement: Placement) -> None:
    rules = arm(policy.value, _bench(placement=placement)).settings.rules()
    assert (rules.policy, rules.placement) == (policy, placement)
    assert not rules.allow_header


@pytest.mark.parametrize(("name", "leave_at"), [(TREE, 27), (KIMI, 64), (SEED, 1), (ALWAYS, 64)])
def test_thresholds_come_from_the_crossing_where_none_are_given(name: str, leave_at: int) -> None:
    rules = arm("threshold", _bench(name)).settings.rules()
    assert rules.leave_at == leave_at
    assert rules.enter_at < leave_at
    assert arm("overflow", _bench(name)).settings.rules().leave_at == (leave_at + 1) // 2


def test_numbers_that_are_given_hold() -> None:
    bench = _bench()
    rules = arm("threshold:17/9", bench).settings.rules()
    assert (rules.leave_at, rules.enter_at) == (17, 9)
    assert arm("overflow:12", bench).settings.rules().leave_at == 12
    assert arm("pinned:speculative", bench).settings.rules().pin is SPECULATIVE
    assert [_asked(arm("first:3", bench), n, 0) for n in (2, 3)] == [SPECULATIVE, BASELINE]


def test_limits_hold_for_policies_and_control_arms_alike() -> None:
    for said in ("overflow", "faster", "only_baseline"):
        settings = arm(said, _bench(limit=7)).settings
        assert [settings.backends.of(role).max_in_flight for role in ROLES] == [7, 7]


def test_the_faster_arm_looks_at_its_own_delay_and_the_other_at_everybody_s() -> None:
    bench = _bench(TREE)
    faster, least = arm("faster", bench), arm("least_delay", bench)
    # The published caps with the baseline idle are 30 and 15 by the fit; the measured table crosses sooner.
    selfish, social = (next(n for n in range(64) if _asked(one, n, 0) is BASELINE) for one in (faster, least))
    assert 8 < social < 20
    assert selfish > 1.3 * social


def test_engines_of_one_kind_are_filled_evenly_or_alone() -> None:
    for said in ("adaptive", "two_baselines"):
        apart, together = (arm(said, _bench(placement=placement)) for placement in Placement)
        assert [_asked(apart, *counts) for counts in ((0, 0), (1, 0), (1, 1))] == [SPECULATIVE, BASELINE, SPECULATIVE]
        assert _asked(together, 9, 0) is SPECULATIVE
        assert apart.paces[SPECULATIVE] == apart.paces[BASELINE]


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigError) as caught:
        arm("fastest", _bench())
    assert all(name in caught.value.message for name in names())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (TREE, VerdictKind.CROSSOVER_AT),
        (SEED, VerdictKind.NEVER_SPECULATE),
        (ALWAYS, VerdictKind.ALWAYS_SPECULATE),
    ],
)
def test_policies_are_told_the_curve_as_a_calibration_would(name: str, kind: VerdictKind) -> None:
    bench = _bench(name)
    (context,) = measured(bench).contexts
    assert context.verdict.kind is kind
    for role in ROLES:
        curve = context.of(role)
        assert curve is not None
        for n in (1, 3, 10, 40):
            assert curve.tok_s(n) == pytest.approx(bench.paces[role].tok_s(n), rel=0.01)


# ---------------------------------------------------------------- those that know lengths


def _loaded(pace: Pace, lengths: list[int]) -> Station:
    station = Station(pace, Bounds(64, 400_000, 1e9))
    gpus = Gpus(station)
    for length in lengths:
        gpus.submit(station, Task(0, length), 0.0)
    gpus.fire()
    gpus.fire()
    assert len(station.running) == len(lengths)
    return station


def _all_s(stations: dict[Role, tuple[Pace, list[int]]], placement: Placement) -> float:
    """Seconds until each of them has ended, summed, in the engine model itself."""
    made = {role: Station(pace, Bounds(64, 400_000, 1e9)) for role, (pace, _) in stations.items()}
    shared = Gpus(*made.values())
    gpus = {role: shared if placement is Placement.SHARED else Gpus(made[role]) for role in ROLES}
    for role, (_, lengths) in stations.items():
        for length in lengths:
            gpus[role].submit(made[role], Task(0, length), 0.0)
    total_s = 0.0
    for one in set(gpus.values()):
        while one.next_at_s < float("inf"):
            ended = one.fire()
            total_s += 0.0 if ended is None else ended.ended_at_s
    return total_s


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize(
    ("drafted", "plain", "length"),
    [
        ([300, 20, 90], [], 100),
        ([50] * 12, [400, 400], 30),
        ([1000] * 20, [10], 700),
        ([], [], 5),
        ([200] * 3, [5, 5, 900], 250),
    ],
)
def test_foresight_sends_where_all_end_sooner(
    placement: Placement, drafted: list[int], plain: list[int], length: int
) -> None:
    bench = _bench(TREE, placement)
    there = dict(zip(ROLES, (drafted, plain), strict=True))
    totals = {}
    for role in ROLES:
        after = {each: (bench.paces[each], [*there[each], *([length] if each is role else [])]) for each in ROLES}
        totals[role] = _all_s(after, placement)
    view = SimpleNamespace(
        speculative=len(drafted),
        baseline=len(plain),
        stations={role: _loaded(bench.paces[role], there[role]) for role in ROLES},
    )
    if placement is Placement.SEPARATE:
        for role in ROLES:
            before_s = _all_s(
                {**dict.fromkeys(ROLES, (bench.paces[role], [])), role: (bench.paces[role], there[role])}, placement
            )
            after_s = _all_s(
                {**dict.fromkeys(ROLES, (bench.paces[role], [])), role: (bench.paces[role], [*there[role], length])},
                placement,
            )
            assert added_s(view.stations[role], Task(0, length), grown(bench.paces[role])) == pytest.approx(
                after_s - before_s
            )
    foresight = clairvoyants(bench)[0]
    assert foresight.choose is not None
    assert foresight.choose(view, Task(0, length)) is min(ROLES, key=lambda role: totals[role])  # type: ignore[arg-type]


def test_who_knows_the_caches_goes_where_the_prompt_is_held() -> None:
    bench = _bench()
    stations = {role: Station(bench.paces[role], Bounds(64, 400_000, 1000.0)) for role in ROLES}
    stations[BASELINE].cache.use((1, 2, 3))
    stations[BASELINE].cache.release((1, 2, 3))
    view = SimpleNamespace(speculative=0, baseline=0, stations=stations)
    for one in clairvoyants(bench):
        assert one.choose is not None
        assert one.choose(view, Task(1600, 50, blocks=(1, 2, 3))) is BASELINE  # type: ignore[arg-type]
        assert one.choose(view, Task(1600, 50, blocks=(7, 8, 9))) is SPECULATIVE  # type: ignore[arg-type]
