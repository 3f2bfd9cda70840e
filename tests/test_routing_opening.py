"""Who is favoured first on shared GPUs where curves do not tell, and when not any more."""

from math import inf

from fakes.speeds import TABLES, Table, bucket, curves, of_both
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import SPECULATIVE
from proxy.routing.delays import MAX_LISTED
from proxy.routing.opening import SLOWER, first_role, is_worse
from proxy.routing.trying import KEEPS

FLAT: Table = {1: 40.0, 8: 310.0, 64: 900.0}
HELD = st.floats(1.0, 4.0 * MAX_LISTED)


@given(TABLES)
def test_curves_that_are_alike_say_nothing_of_who_is_to_be_first(table: Table) -> None:
    assert first_role(of_both(table, table)) is SPECULATIVE


def test_curves_that_tell_in_any_context_are_left_to_themselves() -> None:
    assert first_role(of_both({1: 80.0}, {1: 40.0})) is None
    assert first_role(curves(bucket(FLAT, FLAT), bucket({1: 40.0}, {1: 80.0}, 32_768))) is None


@given(HELD, HELD, st.floats(-3.0, 0.0), st.floats(0.0, 1.0))
def test_nobody_is_left_who_is_as_fast_at_what_is_there_now(
    here: float, there: float, slower: float, variance: float
) -> None:
    assert not is_worse((here, there), slower, variance)


@given(HELD, HELD, st.floats(-3.0, 3.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_better_evidence_of_the_same_leaves_sooner(
    here: float, there: float, slower: float, variance: float, share: float
) -> None:
    if is_worse((here, there), slower, variance):
        assert is_worse((here, there), slower, share * variance)
        assert variance < inf and slower >= SLOWER * variance**0.5


def test_a_tenth_more_in_flight_is_not_worth_a_change() -> None:
    assert not is_worse((20.0, 20.0 / (1.0 + 0.9 * KEEPS)), 0.5, 0.0)
    assert is_worse((20.0, 20.0 / (1.0 + 1.1 * KEEPS)), 0.5, 0.0)


def test_where_neither_seems_to_carry_the_demand_speeds_alone_decide() -> None:
    both = (1.0 * MAX_LISTED, 1.5 * MAX_LISTED)
    assert is_worse(both, 1.1 * KEEPS, 0.0)
    assert not is_worse(both, 0.9 * KEEPS, 0.0)
    assert not is_worse((*both[:1], 0.5 * MAX_LISTED), 0.9 * KEEPS, 1.0)
    assert is_worse((*both[:1], 0.5 * MAX_LISTED), 0.9 * KEEPS, 0.0)
