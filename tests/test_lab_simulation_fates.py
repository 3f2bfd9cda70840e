"""What requests meet by chance: how well they draft, and clients that leave."""

from itertools import islice
from random import Random
from statistics import fmean, pstdev
from typing import cast

import pytest
from fakes.stepped import stepped

from proxy.errors import ConfigError
from proxy.lab.acceptance import Acceptance
from proxy.lab.curves import find
from proxy.lab.engine import Engine, EngineLimits
from proxy.lab.simulation.arms import Bench, arm
from proxy.lab.simulation.arrivals import Gamma, Offer, open_source
from proxy.lab.simulation.fates import RETHINK_S, Dispersion, Fated
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Trial
from proxy.model import ROLES, SPECULATIVE, Placement


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


class _Each:
    """Accepted lengths by each sequence's own chance, for an engine that takes every step."""

    def __init__(self, means: list[float], longest: int) -> None:
        self._laws = [Acceptance(mean, longest) for mean in means]
        self.engine: Engine

    def draw(self, rng: Random, count: int) -> list[int]:
        return [self._laws[number].draw(rng, 1)[0] for number in islice(self.engine._running, count)]


def test_means_with_requests_that_draft_differently_well_are_those_of_the_engine_that_takes_every_step() -> None:
    curve = find("rtx6kpro_kimi26_v1_dcp1_ctx0")
    bench = Bench(curve, Placement.SEPARATE, paces(curve, 64), 64)
    bounds = dict.fromkeys(ROLES, Bounds(64, 400_000, curve.prefill_tokens_per_s))
    offers = _fated(900, dispersion=Dispersion(curve.tokens_per_step, 4, 0.25))
    ours = Trial(arm("only_speculative", bench), bounds, open_source(iter(offers))).run(0, 900)
    law = _Each([min(4.0, max(1.0, curve.tokens_per_step * offer.acceptance)) for offer in offers], 4)
    limits = EngineLimits(64, 400_000, prefill_tokens_per_s=curve.prefill_tokens_per_s)
    law.engine = engine = Engine(curve.step_time(SPECULATIVE), limits, Random(7), cast("Acceptance", law))
    took_s = stepped(engine, offers)
    assert fmean(ours.e2e_s) == pytest.approx(fmean(took_s), rel=0.01)
    assert sorted(ours.e2e_s)[890] == pytest.approx(sorted(took_s)[890], rel=0.05)
