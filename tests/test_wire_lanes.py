"""The lanes of those who wait: kept in the order of coming, whoever comes, leaves or changes lanes."""

import random

from proxy.dispatch.sight import Lane
from proxy.model import BASELINE, ROLES, SPECULATIVE
from proxy.wire.lanes import Lanes

FAST, SLOW, FREE, BULKY = Lane(SPECULATIVE), Lane(BASELINE), Lane(), Lane(bulk=(8, 8))
CLAIMS = {
    FAST: frozenset((SPECULATIVE,)),
    SLOW: frozenset((BASELINE,)),
    FREE: frozenset(ROLES),
    BULKY: frozenset(),
}


def lanes_of(*lanes: Lane) -> Lanes[str]:
    made: Lanes[str] = Lanes()
    for turn, lane in enumerate(lanes):
        made.put(turn, f"w{turn}", lane, CLAIMS[lane])
    return made


def test_only_the_first_of_each_lane_are_named_in_their_order() -> None:
    lanes, seen, named = lanes_of(FAST, FAST, BULKY, FREE, FAST, BULKY, FREE), set[int](), []
    while (waiter := lanes.first(seen)) is not None:
        named.append(waiter)
        seen.add(int(waiter[1:]))
    assert named == ["w0", "w2", "w3"]


def test_who_has_left_makes_the_next_of_its_lane_the_first() -> None:
    lanes = lanes_of(FAST, FAST, FREE)
    lanes.drop(0)
    assert (lanes.first(()), list(lanes)) == ("w1", ["w1", "w2"])


def test_who_changes_lanes_stands_there_by_its_turn_and_not_at_the_end() -> None:
    lanes = lanes_of(FREE, SLOW, FREE, SLOW)
    assert lanes.put(0, "w0", SLOW, CLAIMS[SLOW])
    assert not lanes.put(2, "w2", SLOW, CLAIMS[SLOW])
    named = []
    for turn in range(4):
        named.append(lanes.first(()))
        lanes.drop(turn)
    assert (named, lanes.places) == (["w0", "w1", "w2", "w3"], {})


def test_claimed_is_what_the_first_of_the_lanes_before_a_turn_claim() -> None:
    lanes = lanes_of(BULKY, FAST, FREE)
    assert [lanes.claimed(before=turn) for turn in range(4)] == [
        frozenset(),
        frozenset(),
        frozenset((SPECULATIVE,)),
        frozenset(ROLES),
    ]
    assert lanes.claimed() == frozenset(ROLES)


def test_a_lane_whose_first_claims_something_else_now_is_known_for_that() -> None:
    lanes = lanes_of(FREE, FREE)
    assert not lanes.put(1, "w1", FREE, CLAIMS[FAST])
    assert lanes.claimed() == frozenset(ROLES)
    assert lanes.put(0, "w0", FREE, CLAIMS[FAST])
    assert lanes.claimed() == frozenset((SPECULATIVE,))


def test_ahead_counts_who_waits_for_a_role_before_a_turn() -> None:
    lanes = lanes_of(FAST, FREE, SLOW, BULKY, FAST, FREE)
    assert [lanes.ahead(SPECULATIVE, turn) for turn in (0, 1, 2, 5, 6)] == [0, 1, 2, 3, 4]
    assert [lanes.ahead(BASELINE, turn) for turn in (0, 2, 6)] == [0, 1, 3]


def test_behind_goes_on_where_somebody_has_been_who_is_gone_by_now() -> None:
    lanes = lanes_of(FAST, SLOW, FREE, BULKY)
    lanes.drop(1)
    assert (lanes.behind(1, 2), lanes.behind(-1, 2), lanes.behind(3, 2)) == (["w2", "w3"], ["w0", "w2"], [])


def test_whatever_happens_all_are_in_order_and_in_one_lane_each() -> None:
    chance, lanes, there = random.Random(5), Lanes[int](), dict[int, Lane]()
    for _ in range(3000):
        turn, lane = chance.randrange(60), chance.choice(list(CLAIMS))
        if chance.random() < 0.4:
            lanes.drop(turn)
            there.pop(turn, None)
        else:
            lanes.put(turn, turn, lane, CLAIMS[lane])
            there[turn] = lane
        assert list(lanes) == sorted(there)
        heads = {min(turn for turn, lane in there.items() if lane == each) for each in there.values()}
        assert lanes.first(()) == min(heads, default=None)
        assert {turn: lane for turn, (_, lane) in lanes.places.items()} == there
