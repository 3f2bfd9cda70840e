"""Frames fit their terminal, whatever is told, and have what an operator looks for first."""

from typing import Any

import pytest
from fakes.operators import STATUS
from fakes.watched import WATCHED, history
from hypothesis import given
from hypothesis import strategies as st

from proxy.terminal.bars import ASCII_BLOCKS, BLOCKS
from proxy.terminal.frame import MORE_TROUBLES, TROUBLE_LINES, frame
from proxy.terminal.top import text_of
from proxy.terminal.view import View

SENTENCE = "Each request goes where by the measured speeds it delays all of them least, with 3 in flight. " * 3


def view(**status: Any) -> View:
    told = history()
    samples = {name: [row[at] for row in told["samples"]] for at, name in enumerate(told["columns"])}
    return View(
        "http://127.0.0.1:29000",
        {**STATUS, "sentence": SENTENCE, **status},
        samples=samples,
        decisions=WATCHED["decisions"]["decisions"],
        events=WATCHED["journal"]["events"],
    )


def shown(seen: View, width: int = 80, height: int = 24, **more: Any) -> list[str]:
    return [text_of(line) for line in frame(seen, width, height, **more)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (1, 1), (200, 60)])
@pytest.mark.parametrize("seen", [view(), View("http://x", STATUS), View("x" * 500, {**STATUS, "backends": []})])
def test_a_frame_is_no_larger_than_the_terminal(seen: View, width: int, height: int) -> None:
    lines = frame(seen, width, height)
    assert len(lines) <= height
    assert all(sum(len(text) for text, _ in line) <= width for line in lines)


def test_a_usual_terminal_has_room_for_everything_and_is_filled() -> None:
    lines = shown(view())
    assert len(lines) == 24
    assert lines[0].startswith("Crossover 1.2.3 at http://127.0.0.1:29000: serving, ready")
    assert lines[1].startswith("Each request goes where")
    text = "\n".join(lines)
    for words in (
        "speculative  3          48     up      closed   3.0    300    0.25 s  0.02 s",
        "baseline     12         48     up      closed   1.0    100    -       -",
        "75 % of 240 to speculative, in 60 s",
        "threshold 3.1 (5 to 9)  waiting 2  failures 0  refused 0",
        "00000000  speculative  cheaper        3+1        0.50 | 1.25 s",
    ):
        assert words in text, text
    assert sum("cheaper" in line for line in lines) >= 4
    assert sum("Event" in line for line in lines) >= 2


def test_what_has_no_room_ends_in_dots_and_never_in_the_middle_of_a_word_unseen() -> None:
    seen = view(sentence=SENTENCE * 3)
    lines = shown(seen)
    assert lines[3].endswith("..."), "of nine sentences three lines are told"
    assert all(line.endswith("...") for line in lines if "Event" in line)
    head = next(line for line in lines if line.startswith("decisions"))
    assert head.endswith("cost (speculative | baseline)"), "the head of the table fits a usual terminal"
    narrow = shown(seen, 40)
    assert all(line.endswith("...") for line in narrow if len(line) == 40 and "cheaper" in line)
    assert next(line for line in narrow if line.startswith("decisions")).endswith("...")


def test_both_curves_have_one_scale() -> None:
    first, second = [line for line in shown(view()) if set(line) & set(BLOCKS[1:])]
    assert first.endswith(f"{BLOCKS[-1]}  60") and BLOCKS[-2] in first
    assert len(set(second.split()[1])) == 1


def test_a_terminal_without_blocks_gets_ascii_alone() -> None:
    assert all(line.isascii() for line in shown(view(), blocks=ASCII_BLOCKS))


def test_what_is_wrong_stands_out() -> None:
    down = [{**each, "eligible": False, "up": False} for each in STATUS["backends"]]
    lines = frame(view(backends=down, ready=False), 80, 24)
    alarmed = ["".join(text for text, _ in line) for line in lines if any("red" in style for _, style in line)]
    assert len(alarmed) == 3 and "NOT READY" in alarmed[0]


def test_a_backend_that_gives_nothing_stands_out() -> None:
    silent = [{**each, "silent": each["role"] == "baseline"} for each in STATUS["backends"]]
    lines = frame(view(backends=silent), 80, 24)
    [alarmed] = ["".join(text for text, _ in line) for line in lines if any("red" in style for _, style in line)]
    assert "baseline" in alarmed and "SILENT" in alarmed


DOWN = {"code": "down", "message": "Speculative is down: it does not answer its probes and gets no requests."}
DRAINED = {
    "code": "drained",
    "message": "Baseline is drained: an operator keeps new requests from it.",
    "severe": False,
}


def test_troubles_are_told_below_the_sentence_the_severe_ones_in_red() -> None:
    lines = frame(view(troubles=[DOWN, DRAINED]), 80, 24)
    at = next(number for number, line in enumerate(lines) if text_of(line).startswith("! "))
    assert [text_of(line) for line in lines[at : at + 2]] == [f"! {DOWN['message']}", f"! {DRAINED['message']}"]
    assert [line[0][1] for line in lines[at : at + 2]] == ["bold red", "yellow"]
    assert text_of(lines[at - 1]).endswith("..."), "the sentence stands above"
    assert len(lines) == 24 and sum("cheaper" in text_of(line) for line in lines) >= 2


def test_more_troubles_than_have_room_are_told_of() -> None:
    lines = shown(view(troubles=[DOWN] * 9), 60)
    told = [line for line in lines if line.startswith("!")]
    assert told[-1] == MORE_TROUBLES and len(told) == 3, "of two lines each, the third has no room"
    assert any("speculative  3 " in line for line in lines)


def test_only_troubles_that_are_shown_are_broken_into_lines() -> None:
    looked_at: list[int] = []
    lines = shown(view(troubles=(looked_at.append(number) or DOWN for number in range(1000))))  # type: ignore[func-returns-value]
    assert MORE_TROUBLES in lines
    assert len(looked_at) <= TROUBLE_LINES + 1


def test_a_frame_without_troubles_has_no_line_for_them() -> None:
    assert not any(line.startswith("!") for line in [*shown(view(troubles=[])), *shown(view())])


def test_a_view_that_is_old_says_so_in_place_of_its_sentence() -> None:
    lines = shown(view(), trouble="NO ANSWER since then")
    assert lines[1] == "NO ANSWER since then" and SENTENCE[:20] not in "\n".join(lines)


def test_words_of_others_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\r\n[red]"
    seen = View(
        evil,
        {**STATUS, "version": evil, "sentence": evil, "policy": evil, "phase": evil},
        decisions=[{"request_id": evil, "role": evil, "reason": evil, "because": {}, "at_s": None}],
        events=[{"sentence": evil, "at_s": "x"}],
    )
    assert not set("\x1b\r\n") & set("".join(shown(seen)))


@given(st.dictionaries(st.sampled_from(sorted(STATUS.keys() - {"backends", "phase", "policy", "ready"})), st.none()))
def test_what_an_older_proxy_does_not_tell_is_not_needed(absent: dict[str, None]) -> None:
    told = {name: value for name, value in STATUS.items() if name not in absent}
    assert shown(View("http://x", told))
