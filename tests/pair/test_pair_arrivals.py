"""Arms compare only where all of them get the same requests."""

from pair.arrivals import LONGEST, PAUSE_S, SHORTEST, Arrival, Step, arrivals
from pair.talk import messages

from proxy.lab.loadreport import spread
from proxy.lab.prompts import PromptKind


def test_arrivals_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    steps = [Step(5.0, 20.0), Step(50.0, 20.0)]

    assert arrivals(steps, 200, 1) == arrivals(steps, 200, 1)
    assert arrivals(steps, 200, 1) != arrivals(steps, 200, 2)


def test_a_step_has_the_same_gaps_and_answers_whatever_came_before_it() -> None:
    one, other = (arrivals([first, Step(8.0, 30.0)], 100, 1) for first in (Step(2.0, 30.0), Step(40.0, 30.0)))

    later = [[(each.at_s, each.tokens) for each in found if each.step == 1] for found in (one, other)]
    assert later[0] == later[1] != []


def test_arrivals_come_in_order_within_their_step_and_as_often_as_asked_for() -> None:
    found = arrivals([Step(10.0, 400.0), Step(1.0, 400.0)], 200, 3)

    assert [each.index for each in found] == list(range(len(found)))
    assert all(400.0 * each.step <= each.at_s < 400.0 * (each.step + 1) for each in found)
    assert found == sorted(found, key=lambda each: each.at_s)
    counts = [sum(each.step == place for each in found) for place in (0, 1)]
    # Five standard deviations of a Poisson count.
    assert abs(counts[0] - 4000) < 5 * 4000**0.5
    assert abs(counts[1] - 400) < 5 * 400**0.5


def test_answers_differ_about_their_mean_and_none_is_out_of_all_proportion() -> None:
    lengths = spread(each.tokens for each in arrivals([Step(10.0, 400.0)], 200, 3))

    assert lengths is not None
    assert abs(lengths.mean - 200) < 10
    assert 200 * SHORTEST <= lengths.p10 < 150
    assert 250 < lengths.p90 <= 200 * LONGEST


def test_turns_of_a_conversation_follow_one_another_and_come_as_often_as_asked_for() -> None:
    found = arrivals([Step(8.0, 400.0), Step(8.0, 400.0)], 200, 3, turns=4)

    assert [each.index for each in found] == list(range(len(found)))
    assert found == sorted(found, key=lambda each: each.at_s)
    # Five standard deviations, and the turns that would have come after their step.
    assert abs(len(found) - 6400) < 5 * (6400 * 4) ** 0.5 + 2 * 8 * 2 * PAUSE_S
    by_conversation: dict[int, list[Arrival]] = {}
    for one in found:
        by_conversation.setdefault(one.conversation, []).append(one)
    assert sorted(by_conversation) == list(range(len(by_conversation)))
    for turns in by_conversation.values():
        assert [each.turn for each in turns] == list(range(len(turns)))
        assert len({each.step for each in turns}) == 1
    assert max(len(turns) for turns in by_conversation.values()) == 4


def test_a_turn_begins_with_all_of_the_one_before_and_no_two_conversations_begin_alike() -> None:
    found = arrivals([Step(20.0, 20.0)], 200, 3, turns=3)
    said = {
        (one.conversation, one.turn, nonce): messages(PromptKind.MIXED, 3, nonce, 3, one)
        for one in found
        for nonce in ("one", "other")
    }

    for (conversation, turn, nonce), text in said.items():
        if turn:
            before = said[conversation, turn - 1, nonce]
            assert text[: len(before)] == before
            assert len(text) > len(before)
    beginnings = [text[0]["content"] for (_, turn, _), text in said.items() if turn == 0]
    assert len(set(beginnings)) == len(beginnings)
