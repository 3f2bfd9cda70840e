"""What requests ended with: the latest of each id, the last five thousand, in bounded memory."""

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.model import Outcome, RequestFacts, Traits
from proxy.state.settled import MAX_REMEMBERED, Settled, Settlement


def facts(request_id: str, status: int = 200, **traits: object) -> RequestFacts:
    return RequestFacts(
        request_id,
        "/v1/chat/completions",
        "POST",
        Outcome.FINISHED,
        status,
        None,
        Traits(**traits),  # type: ignore[arg-type]
    )


def test_a_request_is_remembered_with_the_instant_of_its_end() -> None:
    settled = Settled()
    settled.keep(7.0, facts("a"))
    assert settled.of("a") == Settlement(7.0, facts("a"))
    assert settled.of("b") is None


def test_of_two_requests_with_one_id_the_last_is_told() -> None:
    settled = Settled()
    settled.keep(1.0, facts("a", 200))
    settled.keep(2.0, facts("a", 503))
    found = settled.of("a")
    assert (len(settled), found and found.facts.status) == (1, 503)


def test_the_oldest_is_forgotten_and_one_whose_id_came_again_is_not_the_oldest() -> None:
    settled = Settled()
    for number in range(MAX_REMEMBERED):
        settled.keep(float(number), facts(str(number)))
    settled.keep(1e6, facts("0"))
    settled.keep(1e6, facts("new"))
    assert len(settled) == MAX_REMEMBERED
    assert settled.of("1") is None
    assert all(settled.of(name) for name in ("0", "2", "new"))


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3 * MAX_REMEMBERED), max_size=200))
def test_the_last_ids_are_the_ones_that_are_kept(more: list[int]) -> None:
    settled, ids = Settled(), [*range(MAX_REMEMBERED), *more]
    for number in ids:
        settled.keep(0.0, facts(str(number)))
    latest = list(dict.fromkeys(reversed(ids)))[:MAX_REMEMBERED]
    assert len(settled) == len(latest)
    assert all(settled.of(str(number)) for number in latest)


def test_those_that_failed_are_told_newest_first_and_no_others() -> None:
    settled = Settled()
    for number in range(10):
        failed = facts(str(number), 502)._replace(failure="upstream_failed" if number % 2 else None)
        settled.keep(float(number), failed)
    assert [one.facts.request_id for one in settled.failed(3)] == ["9", "7", "5"]
    assert len(settled.failed(100)) == 5


def test_the_hashes_of_prompts_are_let_go_and_all_else_is_kept() -> None:
    settled = Settled()
    settled.keep(0.0, facts("a", prefix=(1, 2, 3), weight=4, model="m"))
    found = settled.of("a")
    assert found is not None and found.facts.traits == Traits(weight=4, model="m")


def test_memory_does_not_grow_with_what_clients_send() -> None:
    settled = Settled()

    def fill(begin: int) -> None:
        for number in range(begin, begin + MAX_REMEMBERED):
            prefix = tuple(range(1000 + number, 1064 + number))
            settled.keep(0.0, facts(f"{number:0128}", prefix=prefix, model="m" * 256))

    tracemalloc.start()
    try:
        for turn in range(1):
            fill(turn * MAX_REMEMBERED)
        before = tracemalloc.get_traced_memory()[0]
        for turn in range(1, 3):
            fill(turn * MAX_REMEMBERED)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert after < 1.1 * before
    assert after < 8_000_000  # bytes; three times that with the hashes of prompts


def test_what_failed_is_what_has_a_failure_and_who_left_a_silent_backend() -> None:
    settled = Settled()
    gone = facts("left", 499)._replace(outcome=Outcome.CLIENT_GONE_WAITING)
    settled.keep(1.0, facts("well"))
    settled.keep(2.0, facts("broke", 502)._replace(failure="backend_broken"))
    settled.keep(3.0, gone)
    settled.keep(4.0, gone._replace(request_id="draining", backend_out="down"))
    settled.keep(5.0, gone._replace(request_id="unheard", backend_out="silent", silent_s=7.0))
    assert [each.facts.request_id for each in settled.failed(9)] == ["unheard", "broke"]
    assert [each.facts.request_id for each in settled.failed(1)] == ["unheard"]
