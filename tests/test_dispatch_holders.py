"""State and its holder, at the desk: who waits for whom, and what is said where nobody can serve."""

from dataclasses import replace

import pytest
from fakes.rig import BASELINE, SPECULATIVE, Rig

from proxy.dispatch import Assignment
from proxy.dispatch.holders import keep_made, require_holder
from proxy.errors import SessionUnrouted, StateUnreachable
from proxy.model import EngineFacts, EngineLoad, Outcome, Reason, RequestFacts, Traits, Usage
from proxy.protocol.prefixes import response_state
from proxy.routing.rules import Affinity
from proxy.state.shelf import BLOCK_TOKENS, DEFAULT_TOKENS, Shelf

ASKS = Traits(session=True, state=response_state("resp_1"))


def shelves(rig: Rig) -> tuple[Shelf, Shelf]:
    return rig.desk.backend(SPECULATIVE).shelf, rig.desk.backend(BASELINE).shelf


def holding() -> Rig:
    """A desk whose baseline has made a response."""
    rig = Rig(limits=(None, 1), leave_at=9)
    place = rig.assign(asked=BASELINE)
    keep_made(rig.desk, place, "resp_1")
    rig.finish(place)
    return rig


def test_what_names_state_waits_for_its_holder_alone() -> None:
    rig = holding()
    assert rig.desk.wanted(ASKS) is BASELINE
    rig.assign(asked=BASELINE)
    assert not isinstance(rig.desk.assign(ASKS, "id", "/v1/responses"), Assignment)
    rig.desk.drain(BASELINE, draining=True)
    assert rig.desk.claims(ASKS) == {BASELINE}
    assert rig.desk.wanted(Traits()) is None


def test_a_holder_that_takes_no_requests_is_told_apart_from_none() -> None:
    rig = holding()
    require_holder(rig.desk, ASKS)
    rig.desk.drain(BASELINE, draining=True)
    with pytest.raises(StateUnreachable):
        require_holder(rig.desk, ASKS)
    with pytest.raises(SessionUnrouted):
        require_holder(rig.desk, Traits(session=True, state=response_state("resp_2")))
    rig.desk.pin(SPECULATIVE)
    require_holder(rig.desk, ASKS)


def test_a_place_of_nobody_and_an_answer_without_an_id_are_not_remembered() -> None:
    rig = Rig()
    keep_made(rig.desk, None, "resp_1")
    keep_made(rig.desk, rig.assign(), None)
    assert len(rig.desk.holdings) == 0


def test_counters_that_fall_say_that_an_engine_has_begun_anew() -> None:
    rig = holding()
    baseline = rig.desk.backend(BASELINE)
    for steps in (100.0, 200.0, 200.0):
        rig.desk.observe_load(baseline, EngineLoad(0, 0, moments=(steps, 1, 1, 1, 1, 1)))
        assert rig.desk.holder(ASKS.state) is BASELINE
    rig.desk.observe_load(baseline, EngineLoad(0, 0, moments=(3.0, 1, 1, 1, 1, 1)))
    assert rig.desk.holder(ASKS.state) is None


def test_fewer_tokens_than_before_say_so_too_of_an_engine_that_counts_nothing_else() -> None:
    rig = holding()
    baseline = rig.desk.backend(BASELINE)
    for generated in (100.0, None, 100.0, 200.0):
        rig.desk.observe_load(baseline, EngineLoad(0, 0, generated=generated))
        assert rig.desk.holder(ASKS.state) is BASELINE
    rig.desk.observe_load(baseline, EngineLoad(0, 0, generated=3.0))
    assert rig.desk.holder(ASKS.state) is None


@pytest.mark.parametrize("told", [{"moments": (100.0, 1, 1, 1, 1, 1)}, {"generated": 100.0}])
def test_a_rank_that_is_missing_from_the_sum_is_no_new_beginning(told: dict[str, object]) -> None:
    rig = holding()
    baseline = rig.desk.backend(BASELINE)
    less = {"moments": (50.0, 1, 1, 1, 1, 1)} if "moments" in told else {"generated": 50.0}
    for load, ranks in ((told, 2), (less, 1), (told, 2)):
        rig.desk.observe_load(baseline, EngineLoad(0, 0, ranks=ranks, **load))  # type: ignore[arg-type]
        assert rig.desk.holder(ASKS.state) is BASELINE


@pytest.mark.parametrize("said", [{"version": "0.5.24"}, {"started": 2.0}])
def test_another_version_or_start_says_so_too(said: dict[str, object]) -> None:
    rig = holding()
    baseline = rig.desk.backend(BASELINE)
    first = {"version": "0.5.23", "started": 1.0}
    rig.desk.learn_facts(baseline, EngineFacts(**first))  # type: ignore[arg-type]
    rig.desk.learn_facts(baseline, EngineFacts(**first, model="m"))  # type: ignore[arg-type]
    assert rig.desk.holder(ASKS.state) is BASELINE
    rig.desk.learn_facts(baseline, EngineFacts(**{**first, **said}))  # type: ignore[arg-type]
    assert rig.desk.holder(ASKS.state) is None


def test_a_circuit_that_closes_again_finds_an_empty_cache_and_the_state_that_was_there() -> None:
    rig = holding()
    rig.open_circuit(BASELINE)
    assert rig.desk.holder(ASKS.state) is BASELINE
    rig.now_s += 60.0
    rig.finish(rig.assign(asked=BASELINE))
    assert rig.desk.holder(ASKS.state) is BASELINE, "failures alone, which any client can bring about, lose no state"


def test_the_room_of_a_shelf_is_what_the_engine_says_or_the_operator() -> None:
    rig = Rig(affinity=Affinity())
    backend = rig.desk.backend(SPECULATIVE)
    assert backend.shelf.room_tokens == DEFAULT_TOKENS
    rig.desk.learn_facts(backend, EngineFacts(kv_tokens=100_000))
    assert backend.shelf.room_tokens == 100_000
    rig.desk.observe_load(backend, EngineLoad(0, 0, kv_tokens=200_000))
    assert backend.shelf.room_tokens == 200_000
    rig.desk.learn_facts(backend, EngineFacts(kv_tokens=0))
    assert backend.shelf.room_tokens == 0
    told = Rig(affinity=Affinity(cache_tokens=9999))
    told.desk.learn_facts(told.desk.backend(SPECULATIVE), EngineFacts(kv_tokens=100_000))
    assert told.desk.backend(SPECULATIVE).shelf.room_tokens == 9999


def test_an_answer_that_reports_less_than_was_believed_shrinks_the_room() -> None:
    rig = Rig(affinity=Affinity())
    prefix = tuple(range(1, 20))
    traits = Traits(prompt_bytes=19 * 4 * BLOCK_TOKENS, prefix=prefix)
    shelf = rig.desk.backend(SPECULATIVE).shelf
    for cached in (0, 9000, 9000, 10, 10):
        place = rig.desk.assign(traits, "id", "/v1/chat/completions")
        assert isinstance(place, Assignment)
        assert place.decision.reason in (Reason.ROOM, Reason.AFFINITY)
        rig.desk.taken(place, traits)
        rig.finish(place)
        facts = RequestFacts("id", "/", "POST", Outcome.FINISHED, 200, place.decision, traits)
        rig.desk.heard(facts._replace(usage=Usage(9800, 5, cached), url=place.backend.url))
    assert shelf.room_tokens < 0.92 * DEFAULT_TOKENS


def test_without_affinity_nothing_of_prompts_is_kept() -> None:
    rig = Rig()
    traits = Traits(prompt_bytes=9000, prefix=(1, 2, 3), conversation=4)
    place = rig.desk.assign(traits, "id", "/v1/chat/completions")
    assert isinstance(place, Assignment)
    rig.desk.taken(place, traits)
    assert rig.desk.backend(SPECULATIVE).shelf.held_tokens == 0
    assert len(rig.desk.holdings) == 0


def test_what_is_not_followed_any_more_is_not_believed_later() -> None:
    rig = Rig(affinity=Affinity())
    traits = Traits(prompt_bytes=9000, prefix=(1, 2, 3), conversation=4)
    followed = rig.desk.plan
    place = rig.desk.assign(traits, "id", "/v1/chat/completions")
    assert isinstance(place, Assignment)
    rig.desk.taken(place, traits)
    keep_made(rig.desk, rig.assign(), "resp_1")
    assert rig.desk.holdings.whereabouts(traits, shelves(rig)).home is SPECULATIVE
    rig.desk.reload(replace(followed, rules=replace(followed.rules, affinity=None)))
    rig.desk.reload(followed)
    assert rig.desk.holdings.whereabouts(traits, shelves(rig)).home is None
    assert rig.desk.holder(ASKS.state) is SPECULATIVE
