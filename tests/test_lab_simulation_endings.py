"""Clients that leave: what the desk is told, how long their sequences stay at the engine, and who gets their place."""

from itertools import islice
from random import Random
from statistics import fmean

import pytest
from fakes.stepped import stepped

from proxy.lab.curves import find
from proxy.lab.engine import Engine, EngineLimits
from proxy.lab.simulation.arms import Bench, arm
from proxy.lab.simulation.arrivals import Gamma, Offer, open_source
from proxy.lab.simulation.course import Course
from proxy.lab.simulation.endings import LOOK_FOR_CLIENT_S
from proxy.lab.simulation.pace import paces
from proxy.lab.simulation.sharing import Bounds
from proxy.lab.simulation.trial import Trial
from proxy.model import BASELINE, ROLES, Outcome, Placement, RequestFacts

KIMI = "rtx6kpro_kimi26_v1_dcp1_ctx0"
LEAVING = Course(aborts=0.5)  # what each offer says is what happens; it says that somebody may leave


def _trial(offers: list[Offer], limit: int = 64, said: str = "only_baseline", running: int = 64) -> Trial:
    curve = find(KIMI)
    bench = Bench(curve, Placement.SEPARATE, paces(curve, limit), limit)
    bounds = dict.fromkeys(ROLES, Bounds(running, 400_000, curve.prefill_tokens_per_s))
    return Trial(arm(said, bench), bounds, open_source(iter(offers)), LEAVING)


def _hear(trial: Trial) -> list[RequestFacts]:
    heard: list[RequestFacts] = []
    trial.desk.heard = heard.append  # type: ignore[method-assign]
    return heard


def test_one_who_has_read_enough_leaves_in_the_stream_and_frees_the_place_at_once() -> None:
    trial = _trial([Offer(0.0, 0, 1000, read=0.25), Offer(0.0, 0, 1000)])
    heard = _hear(trial)
    times = trial.run(0, 2)
    step_s = trial.stations[BASELINE].pace.step_s
    assert [facts.outcome for facts in heard] == [Outcome.CLIENT_GONE_IN_STREAM, Outcome.FINISHED]
    assert heard[0].duration_s == pytest.approx(250 * step_s[2])
    assert times.e2e_s[0] == pytest.approx(250 * step_s[2] + 750 * step_s[1])
    assert (times.gone, times.failed, len(times.e2e_s)) == (1, 0, 1)
    assert trial.desk.backend(BASELINE).book.lingering == 0


def test_one_who_leaves_before_a_token_lingers_in_the_count() -> None:
    # The prompt takes four seconds to be filled.
    trial = _trial([Offer(0.0, 32_000, 500, patience_s=1.0), Offer(2.0, 0, 500)])
    heard = _hear(trial)
    trial.run(0, 1)
    book = trial.desk.backend(BASELINE).book
    assert [facts.outcome for facts in heard] == [Outcome.CLIENT_GONE_WAITING]
    assert heard[0].ttft_s is None
    assert (book.in_flight, book.lingering) == (1, 1)
    assert trial.now_s == pytest.approx(1.0)


def test_one_who_leaves_after_the_first_token_does_not_linger() -> None:
    trial = _trial([Offer(0.0, 10, 5000, patience_s=5.0)])
    heard = _hear(trial)
    trial.run(0, 1)
    assert heard[0].outcome is Outcome.CLIENT_GONE_IN_STREAM
    assert heard[0].ttft_s is not None
    assert trial.desk.backend(BASELINE).book.in_flight == 0
    assert not trial.stations[BASELINE].running
    assert trial.stations[BASELINE].reserved == 0


def test_an_engine_with_nothing_to_send_finds_out_when_it_looks() -> None:
    # One runs at a time there, so that the second waits for its turn, and its client leaves meanwhile.
    offers = [Offer(0.0, 0, 2000), Offer(0.5, 0, 2000, patience_s=1.0), Offer(30.0, 0, 10)]
    trial = _trial(offers, running=1)
    seen = []
    for at_s in (1.6, 0.4 + LOOK_FOR_CLIENT_S, 0.6 + LOOK_FOR_CLIENT_S):
        trial.agenda.at(at_s, lambda: seen.append(len(trial.stations[BASELINE].waiting)))
    trial.run(0, 3)
    assert seen == [1, 1, 0]


def test_an_engine_finds_out_with_the_first_token_where_that_comes_sooner() -> None:
    offers = [Offer(0.0, 16_000, 2000, patience_s=1.0), Offer(0.0, 0, 300)]
    trial = _trial(offers)
    seen = []
    for at_s in (1.9, 2.2):
        trial.agenda.at(at_s, lambda: seen.append(len(trial.stations[BASELINE].running)))
    times = trial.run(0, 2)
    assert seen == [0, 1]
    station = trial.stations[BASELINE]
    filled_s = 16_000 / station.bounds.prefill_tokens_per_s
    assert times.e2e_s[0] == pytest.approx(filled_s + 300 * station.pace.step_s[1], rel=0.01)


def test_one_who_leaves_within_the_first_step_is_gone_with_its_end() -> None:
    trial = _trial([Offer(0.0, 0, 5000, patience_s=0.001), Offer(0.0, 0, 30)])
    seen = []
    trial.agenda.at(0.2, lambda: seen.append(len(trial.stations[BASELINE].running)))
    trial.run(0, 2)
    assert seen == [1]


def test_who_waits_at_the_proxy_and_leaves_takes_no_place() -> None:
    offers = [Offer(0.0, 0, 2000), Offer(0.0, 0, 2000), Offer(0.1, 0, 50, patience_s=1.0), Offer(0.2, 0, 50)]
    trial = _trial(offers, limit=1)
    heard = _hear(trial)
    times = trial.run(0, 4)
    assert heard[0].outcome is Outcome.CLIENT_GONE_WAITING
    assert heard[0].decision is None
    assert (times.gone, len(times.e2e_s)) == (1, 3)
    assert sum(trial.desk.backend(role).book.opened for role in ROLES) == 3


def test_room_that_comes_when_one_who_left_lingers_no_more_is_found() -> None:
    offers = [Offer(0.0, 32_000, 50, patience_s=0.5), Offer(0.0, 32_000, 50, patience_s=0.5), Offer(1.0, 0, 50)]
    trial = _trial(offers, limit=1)
    times = trial.run(0, 3)
    assert (times.gone, len(times.e2e_s), times.waited) == (2, 1, 1)
    assert times.e2e_s[0] > 3.0


def test_means_with_clients_that_leave_are_those_of_the_engine_that_takes_every_step() -> None:
    source = Gamma().source(1.2, 3)
    offers = [source.take()._replace(read=0.4 if n % 3 == 0 else 1.0) for n in range(1200)]
    times = _trial(offers).run(0, len(offers))
    curve = find(KIMI)
    limits = EngineLimits(64, 400_000, prefill_tokens_per_s=curve.prefill_tokens_per_s)
    took_s = stepped(Engine(curve.step_time(BASELINE), limits, Random(7)), offers)
    assert len(times.e2e_s) == len(took_s) < 900
    assert fmean(times.e2e_s) == pytest.approx(fmean(took_s), rel=0.01)
    everybody = [offer._replace(read=1.0) for offer in islice(offers, len(offers))]
    assert fmean(_trial(everybody).run(0, len(offers)).e2e_s) > 1.1 * fmean(took_s)
