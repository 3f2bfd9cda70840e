"""What the measurement makes of its numbers."""

import pytest
from bench.figures import Figure, Figures, figures, table
from bench.jobs import PLAIN, STREAMS, Load, Measurement


def measured(number: int, contender: str, cpu_us: float | None, *, first_byte_s: float | None = None) -> Measurement:
    """A window of two seconds with 1,000 events."""
    cpu_s = None if cpu_us is None else cpu_us / 1000
    load = Load(
        units=1000,
        reads=900,
        window_s=2.0,
        lost=0,
        harness_cpu_s=0.5,
        others_cpu_s=0.0,
        offered=1000.0,
        first_byte_s=first_byte_s,
        cpu_s=cpu_s,
        user_s=None if cpu_s is None else cpu_s / 2,
    )
    return Measurement(number, STREAMS, contender, load)


def made(*measurements: Measurement) -> Figures:
    return figures(measurements, base="bare", direct="direct")


def test_a_figure_is_the_median_with_its_spread_when_there_are_rounds() -> None:
    figure = made(*(measured(number, "ours", cpu_us) for number, cpu_us in enumerate((80, 100, 90))))[STREAMS]["ours"]

    assert figure["cpu_us"].median == pytest.approx(90)
    assert figure["cpu_us"].spread == pytest.approx(20 / 90)


def test_the_middle_spread_leaves_out_a_slow_round_when_there_are_several() -> None:
    assert Figure((99.0, 100.0, 100.0, 101.0, 180.0)).middle_spread == pytest.approx(0.01)


def test_a_ratio_compares_within_its_round_when_the_machine_changes_pace() -> None:
    slow, quick = (
        (measured(0, "ours", 150), measured(0, "bare", 100)),
        (measured(1, "ours", 75), measured(1, "bare", 50)),
    )

    ratio = made(*slow, *quick)[STREAMS]["ours"]["cpu_over_base"]

    assert ratio.median == pytest.approx(1.5)
    assert ratio.spread == pytest.approx(0)


def test_the_added_delay_is_what_direct_does_not_have_when_both_were_measured() -> None:
    found = made(measured(0, "ours", 80, first_byte_s=0.0015), measured(0, "direct", None, first_byte_s=0.0005))[
        STREAMS
    ]

    assert found["ours"]["added_first_byte_us"].median == pytest.approx(1000)
    assert "added_first_byte_us" not in found["direct"]


def test_nothing_is_compared_when_there_is_nothing_to_compare_with() -> None:
    found = made(measured(0, "ours", 80, first_byte_s=0.001))[STREAMS]["ours"]

    assert not {"cpu_over_base", "added_first_byte_us"} & set(found)


def test_the_table_has_a_dash_where_a_contender_has_no_such_figure() -> None:
    found = made(measured(0, "ours", 80), measured(0, "direct", None))[STREAMS]

    ours, direct = table(STREAMS, found).splitlines()[1:]
    assert ours.split()[:3] == ["ours", "80.0", "(0%)"]
    assert direct.split()[:2] == ["direct", "-"]


def test_the_table_speaks_of_requests_when_the_test_was_plain() -> None:
    assert "CPU us/request" in table(PLAIN, {"ours": {"cpu_us": Figure((1.0,))}})
