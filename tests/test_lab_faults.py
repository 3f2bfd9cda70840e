import pytest

from proxy.lab.faults import Fault, FaultBook, FaultKind, Planned, parse_fault


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_kind_is_read_by_its_name(kind: FaultKind) -> None:
    assert parse_fault(str(kind)).kind is kind


def test_an_argument_is_read_and_defaults_where_it_is_left_away() -> None:
    assert parse_fault("slow=2.5") == Fault(FaultKind.SLOW, 2.5)
    assert parse_fault("reset-stream") == Fault(FaultKind.RESET_STREAM, 1.0)


@pytest.mark.parametrize(
    ("text", "complaint"), [("explode", "use one of"), ("slow=x", "number"), ("slow=-1", "least 0")]
)
def test_a_wrong_fault_says_what_is_right(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_fault(text)


def test_a_planned_fault_strikes_as_often_as_planned() -> None:
    book = FaultBook()
    book.plan(Planned(Fault(FaultKind.RESET), left=2))
    assert [book.take(0.0, generation=True) is not None for _ in range(3)] == [True, True, False]


def test_a_planned_fault_ends_at_its_time() -> None:
    book = FaultBook()
    book.plan(Planned(Fault(FaultKind.SILENT), until_s=10.0))
    assert book.take(9.9, generation=True) is not None
    assert book.take(10.0, generation=True) is None


def test_only_a_fault_for_everywhere_strikes_other_routes() -> None:
    book = FaultBook()
    book.plan(Planned(Fault(FaultKind.RESET)))
    assert book.take(0.0, generation=False) is None
    book.plan(Planned(Fault(FaultKind.SILENT), everywhere=True))
    assert book.take(0.0, generation=False) == Fault(FaultKind.SILENT)


def test_cleared_faults_strike_no_more() -> None:
    book = FaultBook()
    book.plan(Planned(Fault(FaultKind.RESET)))
    book.clear()
    assert book.take(0.0, generation=True) is None
