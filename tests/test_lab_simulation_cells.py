"""Cells: every way on the same requests, held against the oracles; and rows as they are written."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.lab.curves import find
from proxy.lab.simulation.arms import Bench, arm, names
from proxy.lab.simulation.arrivals import Arrivals, Closed, Gamma, Sizes
from proxy.lab.simulation.cells import Cell, Conduct, Row, compare
from proxy.lab.simulation.course import Course, Loss, read_shifts
from proxy.lab.simulation.goals import Slo
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.plots import pictures
from proxy.lab.simulation.rows import as_json, table
from proxy.lab.simulation.tally import Overload, regret, shortfall, span
from proxy.lab.simulation.worst import summary
from proxy.model import SPECULATIVE, Placement

KIMI, TREE, SEED = "rtx6kpro_kimi26_v1_dcp1_ctx0", "specdecodebench_sglang_qwen3-8b_gsm8k_tree_k21", "seed"
QUICK = Conduct(requests=500, seeds=3)
TINY = Conduct(requests=150, seeds=2)
# Three minutes of traffic come before what counts, so that few requests are quick only where few come.
CALM = 0.05


def _rows(
    *said: str,
    name: str = KIMI,
    placement: Placement = Placement.SEPARATE,
    load: float | None = 0.3,
    kind: Arrivals = Gamma(),  # noqa: B008 - frozen
    conduct: Conduct = QUICK,
) -> list[Row]:
    curve = find(name)
    bench = Bench(curve, placement, paces(curve, 48, kind.means.context), 48)
    return compare(Cell(bench, load, kind), said, conduct)[0]


def test_a_way_that_is_an_oracle_has_no_regret_against_it() -> None:
    (row,) = _rows("overflow:8", conduct=Conduct(300, 3, oracles=("o3",)))
    assert row.oracle["o3"].name == "overflow:8"
    assert row.regret["o3"].mean == pytest.approx(0.0)
    assert row.regret["o3"].low == pytest.approx(0.0)


@pytest.mark.parametrize("placement", Placement)
def test_no_fixed_rule_beats_the_optimum_by_more_than_chance(placement: Placement) -> None:
    rows = _rows(
        "overflow:4", "faster", "least_delay", placement=placement, conduct=replace(QUICK, oracles=("o1", "o3"))
    )
    for row in rows:
        assert row.regret["o1"].mean > -0.01
    assert rows[0].oracle["o3"].mean_e2e_s > 0.99 * rows[0].oracle["o1"].mean_e2e_s
    assert rows[0].oracle["o1"].mean_e2e_s == pytest.approx(rows[0].foretold_s, rel=0.15)


def test_policy_marginal_is_near_the_optimum_on_separate_gpus() -> None:
    for name in (KIMI, TREE, SEED):
        (row,) = _rows("marginal", name=name, kind=Gamma(sizes=Sizes(0)), conduct=Conduct(600, 3, oracles=("o1",)))
        assert abs(row.regret["o1"].mean) < 0.01


def test_using_both_engines_pays_even_where_speculation_always_loses() -> None:
    marginal, baseline = _rows("marginal", "only_baseline", name=SEED, conduct=Conduct(600, 3, oracles=()))
    assert marginal.tally.mean_e2e_s < 0.8 * baseline.tally.mean_e2e_s


def test_knowing_lengths_helps_where_prefill_is_long() -> None:
    (row,) = _rows(
        "least_delay", name=TREE, load=0.5, kind=Gamma(sizes=Sizes(800)), conduct=Conduct(500, 2, oracles=("o1", "o2"))
    )
    assert row.oracle["o2"].mean_e2e_s < 0.99 * row.oracle["o1"].mean_e2e_s


def test_who_knows_all_lengths_knows_too_when_one_engine_alone_is_better() -> None:
    # On shared GPUs two busy engines give less than one, which who looks at a single request does not see.
    rows = _rows(
        *("only_speculative", "only_baseline"),
        name="rtx6kpro_glm51_dcp8_ctx16384",
        placement=Placement.SHARED,
        kind=Gamma(2.0),
        conduct=Conduct(500, 3, oracles=("o2",)),
    )
    assert rows[0].oracle["o2"].name == "only_baseline"
    assert min(row.regret["o2"].mean for row in rows) == pytest.approx(0.0)


def test_a_load_beyond_the_chain_s_bounds_has_no_exact_optimum() -> None:
    (row,) = _rows("least_delay", load=1.2, conduct=Conduct(300, 1, oracles=("o1",)))
    assert row.oracle == row.regret == {}


def test_a_closed_loop_has_no_load_and_no_exact_optimum() -> None:
    (row,) = _rows("marginal", load=None, kind=Closed(12))
    assert (row.load, row.rate_per_s) == (None, None)
    assert set(row.oracle) == {"o2", "o3"}
    assert row.tally.in_flight == pytest.approx(12.0, rel=0.01)


def test_bursts_take_longer_than_steady_traffic_of_the_same_rate() -> None:
    steady, bursty = (
        _rows("least_delay", kind=kind, conduct=Conduct(1000, 3, oracles=()))[0] for kind in (Gamma(), Gamma(4.0))
    )
    assert bursty.tally.mean_e2e_s > 1.2 * steady.tally.mean_e2e_s


def test_goodput_counts_what_keeps_both_limits() -> None:
    strict, loose, slow = (
        _rows("least_delay", conduct=Conduct(300, 1, slo, oracles=()))[0].tally.goodput
        for slo in (Slo(1e-6, 1.0), Slo(100.0, 100.0), Slo(100.0, 1e-6))
    )
    assert (strict, loose) == (0.0, 1.0)
    assert slow < 0.05  # answers of one token have no second one to wait for


def test_one_seed_gives_means_without_intervals() -> None:
    (row,) = _rows("overflow", conduct=Conduct(300, 1, oracles=("o3",)))
    assert (row.mean_e2e_s.low, row.regret["o3"].high) == (None, None)
    assert "±" not in table([row]).splitlines()[2]


def test_a_regret_is_a_ratio_of_what_had_the_same_seed() -> None:
    found = regret([1.1, 2.2, 3.3], [1.0, 2.0, 3.0])
    assert found == pytest.approx((0.1, 0.1, 0.1))
    assert span([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - 2.484, 2.0 + 2.484), abs=0.001)


def test_the_same_cell_gives_the_same_bytes() -> None:
    one, again = (as_json(_rows("marginal", "overflow", load=CALM, conduct=TINY)) for _ in range(2))
    assert one == again


_NUMBERS = (
    *("mean_e2e_s", "p50_e2e_s", "p99_e2e_s", "mean_ttft_s", "p99_ttft_s", "mean_tpot_s", "goodput"),
    *("share_speculative", "waited", "switches", "tok_s", "in_flight"),
)


def _row_of(raw: bytes) -> dict[str, Any]:
    document = json.loads(raw)
    assert document["made_by"].startswith("crossover ")
    (row,) = document["rows"]
    return dict(row)


def test_a_row_has_every_field_that_is_promised() -> None:
    row = _row_of(as_json(_rows("marginal", load=CALM)))
    head = (row["curve"], row["placement"], row["policy"], row["arrivals"], row["load"], row["seeds"], row["requests"])
    assert head == (KIMI, "separate", "marginal", "poisson", CALM, 3, 500)
    assert all(isinstance(row[name], float) and row[name] >= 0.0 for name in (*_NUMBERS, "rate_per_s"))
    assert row["mean_e2e_ci95_s"][0] < row["mean_e2e_s"] < row["mean_e2e_ci95_s"][1]
    assert row["p50_e2e_s"] < row["mean_e2e_s"] < row["p99_e2e_s"]
    assert set(row["oracle"]) == set(row["regret"]) == set(row["regret_p99"]) == {"o1", "o2", "o3"}
    for name in ("o1", "o2", "o3"):
        assert row["oracle"][name] > 0.0
        low, high = row["regret"][name]["ci95"]
        assert low <= row["regret"][name]["mean"] <= high
    assert row["oracle_policy"]["o1"] == "optimum"
    assert row["foretold_o1_s"] > 0.0


def test_what_is_not_known_is_null_in_a_row() -> None:
    row = _row_of(as_json(_rows("overflow", conduct=Conduct(300, 1, oracles=()))))
    assert row["oracle"] == row["regret"] == {"o1": None, "o2": None, "o3": None}
    assert row["mean_e2e_ci95_s"] == [None, None]
    assert (row["oracle_policy"], row["foretold_o1_s"]) == ({}, None)


def test_the_table_has_a_line_for_each_way_and_each_oracle() -> None:
    lines = table(_rows("marginal", "first:6", load=CALM, conduct=TINY)).splitlines()
    assert lines[0].startswith(f"{KIMI}, separate GPUs, poisson, load {CALM} (")
    assert [line.split()[0] for line in lines[1:]] == ["policy", "marginal", "first:6", "o1:", "o2:", "o3:"]


def test_the_worst_cell_of_a_way_is_one_where_more_comes_than_it_carries() -> None:
    calm, busy = (_rows("overflow:8", load=load, conduct=Conduct(150, 2, oracles=("o2",)))[0] for load in (0.1, 0.2))
    stuck = replace(busy, regret={}, overload=Overload(1, 5000.0, 10_001))
    assert summary([calm, stuck]).split("overflow:8", 1)[1].split()[:4] == ["2", "o2", "overloaded", "overloaded"]
    assert "load 0.2" in summary([calm, stuck])


def test_pictures_are_drawn_one_for_each_theme(tmp_path: Path) -> None:
    rows = [row for load in (0.02, CALM) for row in _rows("marginal", "overflow", load=load, conduct=TINY)]
    (path,) = pictures(rows, tmp_path / "new")
    drawn = path.read_text()
    assert path.name == f"{KIMI}_separate_poisson.svg"
    assert all(f"<!-- {word} -->" in drawn for word in ("marginal", "overflow", "o1", "o2", "o3"))


@pytest.mark.parametrize("name", ["hochelaga8b_rtx5090_k1", "eagle4_sglang_b300_ratio", "rtx6kpro_glm51_dcp4_ctx0"])
def test_every_way_runs_on_any_curve(name: str) -> None:
    said = [each for each in names() if each != "pinned"]
    rows = _rows(*said, "pinned:baseline", name=name, load=CALM, conduct=Conduct(100, 1, oracles=()))
    assert [row.policy for row in rows] == [*said, "pinned:baseline"]


def test_ways_with_two_engines_of_one_kind_tell_no_share_of_speculative() -> None:
    told = table(_rows("two_baselines", "adaptive", "only_baseline", conduct=Conduct(100, 1, oracles=())))
    assert [line.split()[6] for line in told.splitlines()[2:5]] == ["-", "-", "0%"]


def test_acceptance_that_falls_makes_answers_slower_and_o2_knows_it() -> None:
    course = Course(shifts=read_shifts("0.55@0s"))
    (usual,) = _rows("only_speculative", conduct=Conduct(400, 3, oracles=()))
    conduct = Conduct(400, 3, oracles=("o1", "o2"), course=course)
    fallen = _rows("marginal", "only_speculative", "least_delay", conduct=conduct)
    assert fallen[1].tally.mean_e2e_s > 1.5 * usual.tally.mean_e2e_s
    assert set(fallen[0].oracle) == {"o2"}
    by_name = {row.policy: row for row in fallen}
    # The policy goes by the curve as it was measured; a rule with the true speeds is as good as ever.
    assert by_name["marginal"].regret["o2"].mean > by_name["least_delay"].regret["o2"].mean + 0.02
    assert by_name["least_delay"].regret["o2"].mean < 0.05


def test_an_engine_that_is_lost_costs_goodput() -> None:
    course = Course(losses=(Loss(SPECULATIVE, 200.0, 30.0),))
    (row,) = _rows("marginal", load=0.5, conduct=Conduct(600, 1, oracles=(), course=course))
    (calm,) = _rows("marginal", load=0.5, conduct=Conduct(600, 1, oracles=()))
    assert row.tally.failed > 0.0 == calm.tally.failed
    assert row.tally.goodput < calm.tally.goodput
    assert row.course == ("lose speculative@200s+30s",)


def test_regret_in_goodput_is_the_share_that_an_oracle_serves_well_beyond_ours() -> None:
    assert shortfall([0.9, 0.7], [0.95, 0.85]).mean == pytest.approx(0.1)
    rows = _rows("only_baseline", conduct=Conduct(400, 3, Slo(2.0, 0.03), oracles=("o2",)))
    row = json.loads(as_json(rows))["rows"][0]
    expected = row["oracle_goodput"]["o2"] - row["goodput"]
    assert row["regret_goodput"]["o2"]["mean"] == pytest.approx(expected)
    assert expected > 0.3


def test_goals_reach_the_policy_only_where_asked() -> None:
    curve = find(KIMI)
    goals = Slo(1.0, 0.03)
    for slo, expected in ((None, None), (goals, (1.0, 0.03))):
        bench = Bench(curve, Placement.SEPARATE, paces(curve, 8), 8, slo)
        told = arm("marginal", bench).settings.routing.slo.goals()
        assert expected == (None if told is None else (told.ttft_s, told.tpot_s))
