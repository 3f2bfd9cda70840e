"""Running and waiting sequences out of Prometheus text, as engines write it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import EngineLoad
from proxy.protocol.engines import parse_metrics

LABELS = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="{tp}"'
SGLANG = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{%s} 45.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{%s} 3.0
sglang:num_grammar_queue_reqs{%s} 9.0
sglang:queue_time_seconds_bucket{le="0.001",%s} 22.0
""".replace("%s", LABELS.format(tp=0))
VLLM = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 4.0
vllm:num_requests_running{engine="1",model_name="a } b"} 5.0 1795971306000
vllm:num_requests_waiting{engine="0",model_name="a } b"} 1
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
"""


def running(*labels: str) -> str:
    return "".join(f"sglang:num_running_reqs{{{text}}} {at + 1}\n" for at, text in enumerate(labels))


def test_the_gauges_of_sglang_are_read() -> None:
    assert parse_metrics(SGLANG) == EngineLoad(45, 3)


def test_the_gauges_of_vllm_are_summed_over_engines() -> None:
    assert parse_metrics(VLLM) == EngineLoad(9, 1)


def test_ranks_of_one_replica_are_not_summed() -> None:
    assert parse_metrics(running(*(LABELS.format(tp=tp) for tp in (1, 0, 2)))) == EngineLoad(2, 0)


def test_replicas_are_summed_each_by_its_lowest_rank() -> None:
    text = running(
        'dp_rank="0",tp_rank="0"', 'dp_rank="0",tp_rank="1"', 'dp_rank="1",tp_rank="3"', 'dp_rank="1",tp_rank="2"'
    )
    assert parse_metrics(text) == EngineLoad(1 + 4, 0)


def test_of_priorities_only_the_total_counts() -> None:
    assert parse_metrics(running('priority="3",tp_rank="0"', 'priority="",tp_rank="0"')) == EngineLoad(2, 0)


def test_a_gauge_without_labels_is_read() -> None:
    assert parse_metrics("sglang:num_running_reqs 3\r\nsglang:num_queue_reqs 1e0\n") == EngineLoad(3, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "# sglang:num_running_reqs 3",
        "sglang:num_running_reqs NaN",
        "sglang:num_running_reqs +Inf",
        "sglang:num_running_reqs -1",
        "sglang:num_running_reqs x",
        "sglang:num_queue_reqs 3",
        "other:num_running_reqs 3",
    ],
)
def test_what_tells_no_load_is_none(text: str) -> None:
    assert parse_metrics(text) is None


def test_llamacpp_has_one_series_each() -> None:
    text = "llamacpp:requests_processing 8\nllamacpp:requests_deferred 4\nllamacpp:n_decode_total 77\n"
    assert parse_metrics(text) == EngineLoad(running=8, waiting=4)


PARTS = [
    "sglang:num_running_reqs",
    "vllm:num_requests_running",
    "{",
    "}",
    'tp_rank="',
    '"',
    "\\",
    " ",
    "\n",
    "7",
    "1e999",
]


@given(st.text(max_size=100) | st.lists(st.sampled_from(PARTS), max_size=20).map("".join))
def test_any_text_is_read_without_raising(text: str) -> None:
    got = parse_metrics(text)
    assert got is None or got.running >= 0


def test_a_label_name_as_long_as_an_answer_may_be_is_read_to_its_end() -> None:
    assert parse_metrics(f"vllm:num_requests_running{{{'a' * (1 << 20)}}} 1") == EngineLoad(running=1, waiting=0)


CACHE = 'vllm:cache_config_info{block_size="16",enable_prefix_caching="%s",engine="%d",num_gpu_blocks="%s"} 1.0\n'


@pytest.mark.parametrize(
    ("caches", "tokens"),
    [
        (CACHE % ("True", 0, "573"), 573 * 16),
        (CACHE % ("True", 0, "573") + CACHE % ("True", 1, "27"), 600 * 16),
        (CACHE % ("False", 0, "573"), 0),
        (CACHE % ("True", 0, "None"), None),
        (CACHE % ("True", 0, "9" * 30), None),
        ("vllm:cache_config_info 1.0\n", None),
        ("", None),
    ],
)
def test_the_room_of_vllms_cache_is_read_from_its_labels(caches: str, tokens: int | None) -> None:
    load = parse_metrics(f"vllm:num_requests_running 3\n{caches}")
    assert load is not None
    assert (load.running, load.kv_tokens) == (3, tokens)
