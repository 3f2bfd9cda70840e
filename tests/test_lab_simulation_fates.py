"""What requests meet by chance: how well they draft, and clients that leave."""

from itertools import islice
from random import Random
from statistics import fmean, pstdev

import pytest

from proxy.errors import ConfigError
from proxy.lab.acceptance import Acceptance
from proxy.lab.simulation.arrivals import Gamma, Offer
from proxy.lab.simulation.fates import RETHINK_S, Dispersion, Fated


def _fated(count: int, *, aborts: float = 0.0, dispersion: Dispersion | None = None, seed: int = 1) -> list[Offer]:
    source = Fated(Gamma().source(1.0, 5), seed, aborts, dispersion)
    return list(islice(iter(source.take, None), count))


@pytest.mark.parametrize(
    ("tokens", "longest", "deviation"), [(2.2, 4, 0.1), (2.2, 4, 0.3), (3.6, 8, 0.2), (1.3, 2, 0.1)]
)
def test_the_mean_time_for_a_token_stays_whatever_the_dispersion(tokens: float, longest: int, deviation: float) -> None:
    dispersion, rng = Dispersion(tokens, longest, deviation), Random(3)
    drawn = [dispersion.draw(rng) for _ in range(40_000)]
    assert fmean(1.0 / factor for factor in drawn) == pytest.approx(1.0, abs=0.01)
    # No request gains less than a token a step, nor more than the longest.
    assert min(drawn) * tokens > 0.9
    assert max(drawn) < longest


def test_a_wider_dispersion_spreads_requests_further() -> None:
    spreads = []
    for deviation in (0.05, 0.1, 0.3):
        dispersion, rng = Dispersion(2.2, 4, deviation), Random(3)
        spreads.append(pstdev(dispersion.draw(rng) for _ in range(5000)))
    assert spreads == sorted(spreads)
    assert spreads[0] > 0.02


def test_a_dispersion_that_no_chance_can_have_is_refused_with_the_most_it_can() -> None:
    alpha = Acceptance(2.2, 4).alpha
    most = (alpha * (1 - alpha)) ** 0.5
    Dispersion(2.2, 4, 0.99 * most)
    with pytest.raises(ConfigError, match="mend: stay below"):
        Dispersion(2.2, 4, 1.01 * most)


def test_as_many_clients_leave_as_asked_half_of_them_at_once() -> None:
    offers = _fated(20_000, aborts=0.3)
    hasty = [offer.patience_s for offer in offers if offer.patience_s < float("inf")]
    readers = [offer.read for offer in offers if offer.read < 1.0]
    assert len(hasty) == pytest.approx(3000, rel=0.06)
    assert len(readers) == pytest.approx(3000, rel=0.06)
    assert fmean(hasty) == pytest.approx(RETHINK_S, rel=0.06)
    assert fmean(readers) == pytest.approx(0.5, abs=0.02)


def test_requests_themselves_are_the_same_whatever_their_fate() -> None:
    plain = list(islice(iter(Gamma().source(1.0, 5).take, None), 50))
    fated = _fated(50, aborts=0.5, dispersion=Dispersion(2.2, 4, 0.2))
    assert [offer[:6] for offer in fated] == [offer[:6] for offer in plain]
    assert _fated(50, aborts=0.5) == _fated(50, aborts=0.5) != _fated(50, aborts=0.5, seed=2)
