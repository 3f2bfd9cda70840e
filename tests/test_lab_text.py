import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.lab.text import corpus, count_tokens


def test_the_corpus_has_about_four_bytes_a_token() -> None:
    text = corpus()
    assert 3.5 < len(text.text) / len(text) < 4.8


@given(st.integers(0, 10**9), st.integers(0, 300))
def test_json_bytes_decode_to_the_text(start: int, count: int) -> None:
    text = corpus()
    assert json.loads(b'"' + text.take_json(start, count) + b'"') == text.take(start, count)


@given(st.integers(0, 10**6), st.lists(st.integers(0, 40), max_size=12))
def test_pieces_put_together_are_the_whole(start: int, counts: list[int]) -> None:
    text, place, pieces = corpus(), start, []
    for count in counts:
        pieces.append(text.take(place, count))
        place += count
    assert "".join(pieces) == text.take(start, sum(counts))


def test_text_goes_round_at_the_end_of_the_corpus() -> None:
    text = corpus()
    assert text.take(len(text) - 1, 2) == text.take(len(text) - 1, 1) + text.take(0, 1)


def test_an_opening_begins_a_sentence_or_a_block() -> None:
    text = corpus()
    assert all(text.take(text.opening(seed), 3)[0] in "`TFHIAN" for seed in range(200))


@given(st.text())
def test_prompt_tokens_are_a_quarter_of_the_bytes_rounded_up(text: str) -> None:
    size = len(text.encode())
    assert size / 4 <= count_tokens(text) < size / 4 + 1
