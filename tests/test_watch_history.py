"""Samples tell counts as they are, what the step brought, and speeds by the engines' own counts where they count."""

from fakes.rig import Rig

from proxy.metrics import Metrics
from proxy.model import EngineLoad, Outcome, Reason, RequestFacts, Role, Traits, Usage
from proxy.routing.health import Evidence
from proxy.watch.history import COLUMNS, MAX_SAMPLES, History, Sample, row

SPECULATIVE, BASELINE = Role


class Bench:
    """A desk on a clock set by hand, its counters and its history."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.metrics = Metrics(lambda: None)  # type: ignore[arg-type, return-value]
        self.rig.desk.on_decision = self.metrics.decided
        self.history = History(self.rig.desk, self.metrics.totals, lambda: 3)

    def second(self) -> Sample:
        self.rig.now_s += 1.0
        return self.history.take()

    def end(self, role: Role, *, tokens: int = 0, ttft_s: float | None = None, failure: str | None = None) -> None:
        place = self.rig.assign(asked=role)
        self.rig.finish(place)
        facts = RequestFacts(
            "id", "/v1/completions", "POST", Outcome.FINISHED, 200, place.decision, Traits(), failure=failure
        )
        self.metrics.request_ended(facts._replace(usage=Usage(0, tokens), ttft_s=ttft_s, tpot_s=ttft_s))

    def generated(self, role: Role, tokens: float | None) -> None:
        self.rig.desk.observe_load(self.rig.desk.backend(role), EngineLoad(0, 0, generated=tokens))


def test_the_counts_are_those_of_the_moment() -> None:
    bench = Bench()
    bench.rig.assign(3, asked=SPECULATIVE)
    bench.rig.assign(2, asked=BASELINE)
    sample = bench.second()
    assert (sample.speculative_in_flight, sample.baseline_in_flight, sample.waiting) == (3, 2, 3)
    assert (sample.enter_at, sample.leave_at) == (bench.rig.desk.rules.enter_at, bench.rig.desk.rules.leave_at)
    assert sample.regime is bench.rig.desk.regime.role


def test_requests_failures_and_means_are_those_of_the_step_alone() -> None:
    bench = Bench()
    bench.end(SPECULATIVE, ttft_s=9.0, failure="backend_broken")
    bench.second()
    bench.end(SPECULATIVE, ttft_s=0.1)
    bench.end(SPECULATIVE, ttft_s=0.3)
    bench.end(BASELINE, ttft_s=0.5)
    bench.metrics.refused("queue_full")
    sample = bench.second()
    assert (sample.speculative_requests, sample.baseline_requests) == (2, 1)
    assert (sample.speculative_ttft_s, sample.baseline_ttft_s) == (0.2, 0.5)
    assert (sample.speculative_tpot_s, sample.baseline_tpot_s) == (0.2, 0.5)
    assert (sample.failures, sample.refused) == (0, 1)
    quiet = bench.second()
    assert (quiet.speculative_requests, quiet.speculative_ttft_s, quiet.refused) == (0, None, 0)


def test_a_request_that_never_got_a_place_is_refused_and_no_backends_failure() -> None:
    bench = Bench()
    facts = RequestFacts("id", "/v1/completions", "POST", Outcome.FAILED_BEFORE_COMMIT, 429, None, Traits())
    bench.metrics.request_ended(facts._replace(failure="queue_full"))
    bench.end(BASELINE, failure="backend_broken")
    sample = bench.second()
    assert (sample.failures, sample.refused) == (1, 1)


def test_a_speed_is_told_between_two_polls_and_holds_until_the_next() -> None:
    bench = Bench()
    bench.generated(SPECULATIVE, 1000.0)
    assert bench.second().speculative_tok_s is None
    bench.rig.now_s += 1.0
    bench.generated(SPECULATIVE, 1600.0)
    assert bench.second().speculative_tok_s == 300.0
    assert bench.second().speculative_tok_s == 300.0


def test_a_speed_is_told_no_longer_than_until_the_next_poll_is_overdue() -> None:
    bench = Bench()
    for tokens in (0.0, 100.0, 200.0):
        bench.generated(SPECULATIVE, tokens)
        last = bench.second()
    assert last.speculative_tok_s == 100.0
    assert [bench.second().speculative_tok_s for _ in range(3)] == [100.0, None, None]


def test_polls_that_are_always_so_far_apart_are_not_overdue() -> None:
    bench = Bench()
    for tokens in (0.0, 200.0, 400.0, 600.0):
        bench.generated(SPECULATIVE, tokens)
        told = [bench.second().speculative_tok_s for _ in range(2)]
    assert told == [100.0, 100.0]
    assert [bench.second().speculative_tok_s for _ in range(3)] == [100.0, 100.0, None]


def test_an_engine_that_gives_nothing_while_requests_wait_there_generates_nothing() -> None:
    bench = Bench()
    backend = bench.rig.desk.backend(SPECULATIVE)
    bench.rig.desk.observe_health(backend, Evidence.HIT)
    bench.rig.assign(asked=SPECULATIVE)
    for tokens in (0.0, 100.0):
        bench.generated(SPECULATIVE, tokens)
        bench.second()
    bench.rig.desk.observe_health(backend, Evidence.MISS)
    assert bench.second().speculative_tok_s == 0.0


def test_an_engine_that_falls_silent_has_no_speed() -> None:
    bench = Bench()
    bench.generated(SPECULATIVE, 0.0)
    bench.second()
    bench.generated(SPECULATIVE, 100.0)
    assert bench.second().speculative_tok_s == 100.0
    bench.rig.now_s += 60.0
    assert bench.second().speculative_tok_s is None


def test_an_engine_that_has_begun_anew_has_no_speed_below_nothing() -> None:
    bench = Bench()
    bench.generated(BASELINE, 5000.0)
    bench.second()
    bench.generated(BASELINE, 10.0)
    assert bench.second().baseline_tok_s is None
    bench.generated(BASELINE, 30.0)
    assert bench.second().baseline_tok_s == 20.0


def test_an_engine_that_counts_nothing_has_the_speed_of_the_answers_that_ended() -> None:
    bench = Bench()
    bench.generated(SPECULATIVE, None)
    bench.end(SPECULATIVE, tokens=120)
    assert bench.second().speculative_tok_s == 120.0
    assert bench.second().speculative_tok_s == 60.0, "an answer is spread over the steps in which it was made"


def test_decode_moments_tell_the_tokens_of_an_engine_that_counts_no_others() -> None:
    bench = Bench()
    backend = bench.rig.desk.backend(SPECULATIVE)
    for tokens in (100.0, 350.0):
        bench.rig.desk.observe_load(backend, EngineLoad(0, 0, moments=(1.0, 1.0, 1.0, 1.0, 1.0, tokens)))
        last = bench.second()
    assert last.speculative_tok_s == 250.0


def test_two_polls_at_nearly_the_same_instant_tell_no_speed() -> None:
    bench = Bench()
    backend = bench.rig.desk.backend(SPECULATIVE)
    for at_s, tokens in ((10.0, 0.0), (11.0, 100.0), (11.1, 190.0), (12.0, 200.0)):
        bench.rig.desk.observe_load(backend, EngineLoad(0, 0, at_s=at_s, generated=tokens))
        last = bench.second()
        assert last.speculative_tok_s in (None, 100.0), "by the engine's own clock"
    assert last.speculative_tok_s == 100.0


def test_half_an_hour_is_kept_and_no_more() -> None:
    bench = Bench()
    for _ in range(MAX_SAMPLES + 10):
        last = bench.second()
    assert len(bench.history.samples) == MAX_SAMPLES
    assert bench.history.samples[-1] is last
    latest = bench.history.since(last.at_s - 3.0)
    assert [sample.at_s for sample in latest] == [last.at_s - 2.0, last.at_s - 1.0, last.at_s]


def test_a_row_has_every_column_and_unix_seconds() -> None:
    bench = Bench()
    sample = bench.second()
    told = row(sample, 1e9)
    assert len(told) == len(COLUMNS)
    assert told[0] == sample.at_s + 1e9


def test_a_request_that_failed_over_is_counted_once_where_it_is_served() -> None:
    bench = Bench()
    bench.end(SPECULATIVE)
    bench.end(BASELINE)
    place = bench.rig.assign(asked=BASELINE)
    bench.metrics.decided(place.decision._replace(reason=Reason.FAILOVER))
    sample = bench.second()
    assert (sample.speculative_requests, sample.baseline_requests) == (0, 3)


def test_a_failover_a_second_later_is_made_good_and_no_second_counts_below_nothing() -> None:
    bench = Bench()
    place = bench.rig.assign(asked=SPECULATIVE)
    assert bench.second().speculative_requests == 1
    bench.metrics.decided(place.decision._replace(role=BASELINE, reason=Reason.FAILOVER))
    sample = bench.second()
    assert (sample.speculative_requests, sample.baseline_requests) == (0, 1)
    for _ in range(2):
        bench.end(SPECULATIVE)
    assert bench.second().speculative_requests == 1


def test_requests_that_went_where_their_client_or_a_rule_sent_them_are_counted_apart() -> None:
    bench = Bench()
    bench.end(SPECULATIVE)
    bench.second()
    place = bench.rig.assign()
    bench.metrics.decided(place.decision._replace(reason=Reason.RULE))
    bench.end(BASELINE)
    bench.end(SPECULATIVE)
    sample = bench.second()
    assert (sample.named, sample.ruled) == (2, 1)
    assert (bench.second().named, bench.second().ruled) == (0, 0)
