"""Whether an engine runs as many as it was given."""

import pytest

from proxy.routing.company import Company


def looked(ran: float, held: float, begun: float) -> Company:
    """After half a minute of the same."""
    company = Company()
    for _ in range(30):
        company.look(ran, held, begun, 1.0)
    return company


@pytest.mark.parametrize(
    ("ran", "held", "begun"),
    [(0.0, 0.0, 0.0), (4.0, 4.0, 4.0), (3.4, 4.0, 3.5), (4.0, 4.0, 3.2), (1.0, 0.6, 0.5), (40.0, 44.0, 38.0)],
)
def test_what_it_was_given_and_runs_is_no_company(ran: float, held: float, begun: float) -> None:
    assert not looked(ran, held, begun).strays


@pytest.mark.parametrize(("ran", "held"), [(2.0, 1.0), (12.0, 4.0), (8.0, 5.0), (3.0, 0.0)])
def test_an_engine_that_runs_more_than_it_was_given_serves_others(ran: float, held: float) -> None:
    assert looked(ran, held, held).strays


@pytest.mark.parametrize(("ran", "held"), [(0.0, 1.0), (2.0, 4.0), (10.0, 20.0)])
def test_an_engine_that_runs_fewer_than_have_begun_has_ended_some(ran: float, held: float) -> None:
    assert looked(ran, held, held).strays


def test_one_odd_poll_is_no_company() -> None:
    company = looked(4.0, 4.0, 4.0)
    company.look(8.0, 4.0, 4.0, 1.0)
    assert not company.strays
