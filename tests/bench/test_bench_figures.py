"""What the measurement makes of its numbers."""

from typing import Any

import pytest
from bench.figures import MIB, Figure, Figures, figures
from bench.jobs import BATCH, IDLE, LOAD, PLAIN, STOPPED, Load, Measurement
from bench.tables import seen_table, table

BASES = ("haproxy", "bare")


def measured(number: int, contender: str, cpu_us: float | None, *, test: str = LOAD, **more: Any) -> Measurement:
    """A window of two seconds with 1,000 events."""
    cpu_s = None if cpu_us is None else cpu_us / 1000
    values: dict[str, Any] = {
        "units": 1000,
        "reads": 900,
        "window_s": 2.0,
        "lost": 0,
        "harness_cpu_s": 0.5,
        "others_cpu_s": 0.0,
        "offered": 1000.0,
        "cpu_s": cpu_s,
        "user_s": None if cpu_s is None else cpu_s / 2,
    }
    return Measurement(number, test, contender, Load(**{**values, **more}))


def made(*measurements: Measurement) -> Figures:
    return figures(measurements, bases=BASES, direct="direct")


def test_a_figure_is_the_median_with_its_spread_when_there_are_rounds() -> None:
    figure = made(*(measured(number, "ours", cpu_us) for number, cpu_us in enumerate((80, 100, 90))))[LOAD]["ours"]

    assert figure["cpu_us"].median == pytest.approx(90)
    assert figure["cpu_us"].spread == pytest.approx(20 / 90)


def test_the_middle_spread_leaves_out_a_slow_round_when_there_are_several() -> None:
    assert Figure((99.0, 100.0, 100.0, 101.0, 180.0)).middle_spread == pytest.approx(0.01)


def test_a_ratio_compares_within_its_round_when_the_machine_changes_pace() -> None:
    slow, quick = (
        (measured(0, "ours", 150), measured(0, "haproxy", 100)),
        (measured(1, "ours", 75), measured(1, "haproxy", 50)),
    )

    ratio = made(*slow, *quick)[LOAD]["ours"]["over_haproxy"]

    assert ratio.median == pytest.approx(1.5)
    assert ratio.spread == pytest.approx(0)


def test_a_ratio_leaves_a_round_out_when_the_base_failed_in_it() -> None:
    failed = Measurement(1, LOAD, "haproxy", failure="it fell over")

    ratio = made(measured(0, "ours", 150), measured(0, "haproxy", 100), measured(1, "ours", 900), failed)

    assert ratio[LOAD]["ours"]["over_haproxy"].values == pytest.approx((1.5,))


def test_the_added_delay_is_what_direct_does_not_have_when_both_were_measured() -> None:
    found = made(
        measured(0, "ours", 80, delay_p50_s=0.0015, first_byte_s=0.004),
        measured(0, "direct", None, delay_p50_s=0.0005, first_byte_s=0.001),
    )[LOAD]

    assert found["ours"]["added_delay_p50_us"].median == pytest.approx(1000)
    assert found["ours"]["added_first_byte_us"].median == pytest.approx(3000)
    assert not any(what.startswith("added_") for what in found["direct"])


def test_nothing_is_compared_when_there_is_nothing_to_compare_with() -> None:
    found = made(measured(0, "ours", 80, first_byte_s=0.001))[LOAD]["ours"]

    assert not any(what.startswith(("added_", "over_")) for what in found)


def test_the_ratio_is_of_memory_when_the_streams_were_idle() -> None:
    ours, base = (
        measured(0, name, 80, test=IDLE, streams=1024, before_bytes=10 * MIB, after_bytes=after * MIB)
        for name, after in (("ours", 34), ("bare", 22))
    )

    found = made(ours, base)[IDLE]["ours"]

    assert found["kib_per_stream"].median == pytest.approx(24)
    assert found["over_bare"].median == pytest.approx(2)


def test_growth_is_the_most_seen_less_what_was_before_when_the_reader_stopped() -> None:
    seen = measured(0, "ours", 80, test=STOPPED, before_bytes=10 * MIB, peak_bytes=13 * MIB, after_bytes=11 * MIB)

    assert made(seen)[STOPPED]["ours"]["grew_mib"].median == pytest.approx(3)


def test_the_table_has_a_dash_where_a_contender_has_no_such_figure() -> None:
    found = made(measured(0, "ours", 80), measured(1, "ours", 80), measured(0, "direct", None))[LOAD]

    ours, direct = table(LOAD, found, BASES).splitlines()[2:]
    assert [cell.strip() for cell in ours.split("|")][1:3] == ["ours", "80.0 (0%)"]
    assert [cell.strip() for cell in direct.split("|")][1:3] == ["direct", "-"]


def test_the_table_has_no_column_for_a_base_that_was_not_measured() -> None:
    found = made(measured(0, "ours", 80), measured(0, "bare", 40))[LOAD]

    head = table(LOAD, found, BASES).splitlines()[0]
    assert "/ bare" in head
    assert "/ haproxy" not in head


def test_the_table_speaks_of_requests_when_the_test_was_plain() -> None:
    assert "CPU us/request" in table(PLAIN, {"ours": {"cpu_us": Figure((1.0,))}}, BASES)
    assert "CPU us/event" in table(BATCH, {"ours": {"cpu_us": Figure((1.0,))}}, BASES)


def test_what_was_seen_stands_in_columns_when_something_broke() -> None:
    rows = seen_table({"ours": {"killed": "cut", "left": "1 ms"}, "bare": {"left": "never"}}).splitlines()

    assert [cell.strip() for cell in rows[0].split("|")][1:-1] == ["contender", "killed", "left"]
    assert [cell.strip() for cell in rows[3].split("|")][1:-1] == ["bare", "-", "never"]
