"""Header fields as bytes."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol import fields


def test_values_are_found_by_lower_case_name() -> None:
    assert fields.by_name([(b"Host", b"x"), (b"X-A", b"1")]) == {b"host": b"x", b"x-a": b"1"}


def test_values_of_a_repeated_name_are_joined_in_their_order() -> None:
    assert fields.by_name([(b"Via", b"a"), (b"x", b"-"), (b"VIA", b"b"), (b"via", b"c")])[b"via"] == b"a, b, c"


@given(st.binary())
def test_any_bytes_survive_being_text(value: bytes) -> None:
    assert fields.raw(fields.text(value)) == value
