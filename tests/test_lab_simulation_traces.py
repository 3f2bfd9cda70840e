"""Recorded traffic in both forms, written small here."""

import json
from itertools import islice
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.lab.simulation.traces import Trace, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:48.6805900,100,0
2023-11-16 18:15:54.6805900,5000,7
"""
MOONCAKE = [
    {"timestamp": 1000, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 1700, "output_length": 100, "hash_ids": [0, 1, 3, 4]},
    {"timestamp": 5000, "input_length": 600, "output_length": 30, "hash_ids": [9, 10]},
]


def _azure(folder: Path, text: str = AZURE) -> Trace:
    path = folder / "code.csv"
    path.write_text(text)
    return read_trace(path)


def _mooncake(folder: Path) -> Trace:
    path = folder / "talk.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in MOONCAKE))
    return read_trace(path)


def test_a_csv_is_read_in_its_order_of_time_without_what_generates_nothing(tmp_path: Path) -> None:
    trace = _azure(tmp_path)
    assert trace.name == "code"
    assert [(row.prompt_tokens, row.tokens) for row in trace.rows] == [(374, 44), (396, 109), (5000, 7)]
    assert [row.at_s for row in trace.rows] == pytest.approx([0.0, 4.314579, 8.0])


def test_jsonl_brings_the_whole_blocks_of_each_prompt(tmp_path: Path) -> None:
    trace = _mooncake(tmp_path)
    assert [row.blocks for row in trace.rows] == [(0, 1), (0, 1, 3), (9,)]
    assert [row.at_s for row in trace.rows] == [0.0, 2.0, 4.0]


def test_means_count_only_what_no_cache_holds(tmp_path: Path) -> None:
    means = _mooncake(tmp_path).means
    assert means.prompt == pytest.approx((1100 + (1700 - 1024) + 600) / 3)
    assert means.output == pytest.approx(210.0)
    assert means.context == pytest.approx((500 * 1350 + 100 * 1750 + 30 * 615) / 630)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_trace_is_stretched_to_the_rate_and_goes_round(tmp_path: Path, seed: int) -> None:
    trace = _azure(tmp_path)
    source = trace.source(10.0, seed)
    offers = list(islice(iter(source.take, None), 301))
    assert offers[0].at_s == 0.0
    assert offers[300].at_s == pytest.approx(30.0)
    assert [offer.at_s for offer in offers] == sorted(offer.at_s for offer in offers)
    assert [offer.tokens for offer in offers[:3]] == [offer.tokens for offer in offers[3:6]]


def test_seeds_begin_at_different_places(tmp_path: Path) -> None:
    trace = _azure(tmp_path)
    assert len({trace.source(1.0, seed).take().tokens for seed in range(20)}) == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.6,374\n", "a.csv:2"),
        ("a.csv", AZURE.replace("374", "many"), "a.csv:2"),
        ("a.csv", AZURE.replace("2023-11-16 18:15:50.9951690", "noon"), "a.csv:3"),
        ("a.csv", AZURE.replace("109", "-109"), "a.csv:3"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no two requests"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 3}\n', "a.jsonl:1"),
        ("a.jsonl", "[1]\n", "a.jsonl:1"),
        ("a.jsonl", "{\n", "a.jsonl:1"),
        ("a.jsonl", '{"timestamp": 1, "input_length": 3, "output_length": 4}\n' + " " * (1 << 20) + "{}", "a.jsonl:2"),
        ("a.csv", AZURE + "9" * (1 << 21), f"a.csv:{AZURE.count(chr(10)) + 1}: no request (longer than"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_line_and_the_mend(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert said in caught.value.message
    assert "mend: " in caught.value.message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("a.csv", "0001-01-01 00:00:00,3,4", "ValueError|OverflowError"),
        ("a.csv", "9999-12-31 00:00:00,3,4", "between the years 1970 and 2100"),
        ("a.csv", "1969-12-01 00:00:00,3,4", "between the years 1970 and 2100"),
        ("a.csv", f"2020-01-01 00:00:00,{'9' * 200_000},4", "field larger than"),
        ("a.csv", "2020-01-01 00:00:00,100000000,4", "tokens are 0 to"),
        ("a.jsonl", '{"timestamp": 1e300, "input_length": 3, "output_length": 4}', "between the years"),
        ("a.jsonl", '{"timestamp": -5, "input_length": 3, "output_length": 4}', "between the years"),
        ("a.jsonl", '{"timestamp": 5, "input_length": 3, "output_length": 100000000}', "tokens are 0 to"),
        ("a.jsonl", '{"timestamp": 5, "input_length": 1e308, "output_length": 4}', "tokens are 0 to"),
    ],
)
def test_a_row_that_no_engine_and_no_clock_could_have_written_is_told_by_its_line(
    tmp_path: Path, name: str, row: str, said: str
) -> None:
    good = AZURE.splitlines()[:2] if name.endswith(".csv") else [json.dumps(MOONCAKE[0])]
    path = tmp_path / name
    path.write_text("\n".join([*good, row, *good[1:]]) + "\n")
    with pytest.raises(ConfigError, match=said) as refused:
        read_trace(path)
    assert refused.value.message.startswith(f"{path}:{len(good) + 1}: no request (")
    assert "; mend: " in refused.value.message
    assert len(refused.value.message) < 600
