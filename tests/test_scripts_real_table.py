"""How the table of a real pair is put together: turns, what is held against what, the words. No engine runs."""

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

import real_table  # noqa: E402
from real_table import ARMS, Row  # noqa: E402


class Pair:
    """What a real pair says of its configuration."""

    def settings(self, **sections: Any) -> dict[str, Any]:
        return {"placement": "shared", "routing": {"policy": "threshold", "leave_at": 4, "enter_at": 2}, **sections}


def test_each_arm_goes_first_in_turn_and_what_is_compared_stays_together() -> None:
    rounds = [real_table.turn(ARMS, number) for number in range(2 * len(ARMS))]
    assert {order[0] for order in rounds} == set(ARMS)
    for order in rounds:
        assert sorted(order) == sorted(ARMS)
        # Around the ends too: the last of one round runs before the first of the next.
        places = {arm.name: place for place, arm in enumerate(order)}
        for role in ("speculative", "baseline"):
            apart = abs(places[role] - places[f"{role}, through the proxy"])
            assert apart in (1, len(ARMS) - 1)


def test_an_arm_through_the_proxy_is_held_against_the_same_role_without_round_by_round() -> None:
    rows = {arm: Row(tok_s=[10.0 + place, 20.0 + place, 30.0 + place]) for place, arm in enumerate(ARMS)}
    held = {arm.name: real_table._direct(arm, rows) for arm in ARMS}
    assert held == {
        "speculative": None,
        "speculative, through the proxy": rows[ARMS[0]],
        "baseline": None,
        "baseline, through the proxy": rows[ARMS[2]],
        "proxy": None,
    }
    assert real_table.ratios([9.0, 22.0], [10.0, 20.0]) == [0.9, 1.1]
    assert real_table.spread([1.1, 0.9, 1.0], 2) == "1.00 (0.90 to 1.10)"


def test_a_line_tells_the_share_of_the_free_arm_alone() -> None:
    row = Row([2.0], [3.0], load=[0.5], others=[0.25])
    row.went.update(speculative=1, baseline=3)
    free, asked = ARMS[-1], ARMS[1]
    assert real_table._line(4, free, row, None).split(" | ")[4:7] == ["-", "25 %", "0"]
    assert real_table._line(4, asked, row, row).split(" | ")[4:7] == ["1.00 (1.00 to 1.00)", "-", "0"]
    assert real_table._line(4, free, row, None).count("|") == len(real_table.HEAD) + 1


def test_sections_are_laid_over_the_pairs_key_by_key() -> None:
    said = real_table.settings_of(Pair(), {"routing": {"leave_at": 8}, "placement": "separate"})  # type: ignore[arg-type]
    assert said["routing"] == {
        "policy": "threshold",
        "leave_at": 8,
        "enter_at": 2,
        "min_dwell_s": 1.0,
        "smoothing_s": 1.0,
    }
    assert said["placement"] == "separate"


def test_time_of_this_process_is_part_of_that_of_the_machine() -> None:
    before = real_table._ticks([os.getpid()])
    total = 0
    while (after := real_table._ticks([os.getpid()])).own_s <= before.own_s + 0.05:
        total += sum(range(10_000))
    assert after.engines_s - before.engines_s >= 0.05
    # Two clocks of ticks: each may be one behind.
    assert after.all_s - before.all_s >= after.own_s - before.own_s - 0.03
