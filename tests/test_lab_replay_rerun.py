"""One way through the whole traffic, request by request."""

from math import isnan
from random import Random

import pytest
from fakes.replayed import CHAT, KIMI, came, ground, random_traffic

from proxy.lab.replay.candidates import AS_RECORDED, Candidate
from proxy.lab.replay.rerun import Rerun, Times
from proxy.lab.replay.traffic import Traffic
from proxy.lab.simulation.arrivals import Offer, open_source
from proxy.lab.simulation.trial import Trial
from proxy.model import BASELINE, ROLES, SPECULATIVE, Placement


def run(candidate: Candidate, traffic: Traffic) -> Times:
    return Rerun(candidate.arm, candidate.bounds, traffic).run()


@pytest.mark.parametrize("placement", Placement)
@pytest.mark.parametrize("said", ["overflow:3", "threshold:6/3", "auto", "first:4", "two_baselines"])
def test_requests_of_one_sequence_take_what_they_take_in_the_simulation(said: str, placement: Placement) -> None:
    traffic = random_traffic(800, 2.0)
    stand = ground(traffic, placement)
    candidate = stand.candidate(said)
    ours = run(candidate, traffic)
    rng = Random(1)
    offers = [Offer(row.at_s, row.uncached_tokens, row.tokens, rng.random()) for row in traffic.requests]
    theirs = Trial(candidate.arm, candidate.bounds, open_source(iter(offers))).run(0, len(offers))
    assert sorted(ours.e2e_s) == pytest.approx(sorted(theirs.e2e_s))
    assert sum(ours.speculative) == theirs.speculative
    assert ours.most == theirs.most


def test_the_same_traffic_gives_the_same_times_and_every_request_is_served() -> None:
    traffic = random_traffic(300, 3.0)
    one, again = (run(ground(traffic, limit=4).candidate("overflow:2"), traffic) for _ in range(2))
    assert one.e2e_s == again.e2e_s
    assert not any(isnan(took_s) for took_s in one.e2e_s)
    assert sum(one.waited) > 0
    assert max(one.most.values()) <= 4


def test_each_request_goes_where_it_went() -> None:
    rows = tuple(came(float(n), went=ROLES[n % 3 % 2]) for n in range(60))
    traffic = Traffic(rows)
    times = run(ground(traffic).candidate(AS_RECORDED), traffic)
    assert [ROLES[0] if there else ROLES[1] for there in times.speculative] == [
        row.was.role for row in rows if row.was is not None
    ]


def test_a_request_holds_as_many_places_as_it_has_sequences_and_its_prompt_is_filled_once() -> None:
    three = Traffic((came(0.0, weight=3, prompt=8000),))
    apart = Traffic(tuple(came(0.0, prompt=8000) for _ in range(3)))
    together, separate = (run(ground(each).candidate("pinned:baseline"), each) for each in (three, apart))
    assert together.most[BASELINE] == 3
    saved_s = max(separate.e2e_s) - together.e2e_s[0]
    assert saved_s == pytest.approx(2 * 8000 / KIMI.curve.prefill_tokens_per_s, rel=0.1)  # type: ignore[union-attr]


def test_a_request_of_more_sequences_than_an_engine_runs_is_served_all_the_same() -> None:
    traffic = Traffic((came(0.0, weight=9), came(0.1)))
    times = run(ground(traffic, limit=4).candidate("pinned:speculative"), traffic)
    assert times.most[SPECULATIVE] == 4
    assert not any(isnan(took_s) for took_s in times.e2e_s)


def test_a_lone_request_takes_its_prompt_and_its_tokens_at_the_measured_speed() -> None:
    traffic = Traffic((came(0.0, tokens=101, prompt=400),))
    stand = ground(traffic)
    times = run(stand.candidate("pinned:baseline"), traffic)
    pace, bounds = stand.engines.bench.paces[BASELINE], stand.engines.bounds[BASELINE]
    assert times.e2e_s[0] == pytest.approx(400 / bounds.prefill_tokens_per_s + 101 * pace.seconds_per_token(1))
    assert times.ttft_s[0] == pytest.approx(400 / bounds.prefill_tokens_per_s + pace.seconds_per_token(1))
    assert times.tpot_s[0] == pytest.approx(pace.seconds_per_token(1))


def test_what_a_cache_held_is_not_filled_again() -> None:
    whole = came(0.0, prompt=8000)
    held = Traffic((whole._replace(uncached_tokens=1),))
    cold = Traffic((whole,))
    times = [run(ground(each).candidate("pinned:baseline"), each).ttft_s[0] for each in (held, cold)]
    assert times[0] < 0.2 * times[1]


@pytest.mark.parametrize(("heard", "expected"), [(0.0, 256.0), (100.0, 100.0)])
def test_the_proxy_hears_of_tokens_only_what_engines_told(heard: float, expected: float) -> None:
    traffic = Traffic(tuple(came(float(n), weight=2)._replace(heard_tokens=heard) for n in range(600)))
    candidate = ground(traffic).candidate("auto")
    rerun = Rerun(candidate.arm, candidate.bounds, traffic)
    rerun.run()
    assert rerun.expected_tokens(CHAT) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("waiting", "overloaded"), [(0, False), (1, True)])
def test_long_answers_are_no_overload_but_where_a_request_waits_for_their_places(
    waiting: int, overloaded: bool
) -> None:
    light, long = [came(float(n)) for n in range(60)], [came(60.0, tokens=1_000_000)] * 4
    traffic = Traffic((*light, *long, *[came(60.0)] * waiting))
    times = run(ground(traffic, limit=4).candidate("pinned:baseline"), traffic)
    assert times.after_s > max(9 * 60.0, 3600.0)
    assert times.overloaded(60.0) is overloaded
