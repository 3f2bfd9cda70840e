"""What engines say of themselves, in the shapes that real ones gave, and in shapes that none should give."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.model import EngineFacts, EngineLoad
from proxy.protocol.engines import (
    MAX_NAME,
    MAX_NUMBER,
    parse_loads,
    parse_models,
    parse_props,
    parse_server_info,
    parse_slots,
    shows_keys,
)

RANK: dict[str, Any] = {
    "timestamp": 1795971306.78,
    "dp_rank": 0,
    "num_running_reqs": 7,
    "num_waiting_reqs": 2,
    "max_total_num_tokens": 131072,
    "max_running_requests": 256,
    "token_usage": 0.0,
    "decode_moments": [3.0, 3.0, 61787.0, 3.0, 61787.0, 7.0],
    "memory": {"weight_gb": 13.52},
    "queues": {"waiting": 0},
}
LOADS: dict[str, Any] = {
    "timestamp": "2026-11-29T16:55:06.784978+00:00",
    "version": "0.5.17",
    "accelerator": "NVIDIA H200",
    "loads": [RANK],
}
SERVER: dict[str, Any] = {
    "model_path": "/w/m/target",
    "served_model_name": "m",
    "weight_version": "default",
    "context_length": 4096,
    "max_req_input_len": 4090,
    "max_running_requests": 256,
    "speculative_algorithm": "EAGLE3",
    "speculative_adaptive": False,
    "internal_states": [{"effective_max_running_requests_per_dp": 128}, {"effective_max_running_requests_per_dp": 128}],
    "version": "0.5.23",
}


def loads(**changes: Any) -> EngineLoad | None:
    return parse_loads(orjson.dumps(LOADS | changes))


def facts(**changes: Any) -> EngineFacts:
    got = parse_server_info(orjson.dumps(SERVER | changes))
    assert got is not None
    return got


def test_the_load_of_one_rank_is_read() -> None:
    moments = (3.0, 3.0, 61787.0, 3.0, 61787.0, 7.0)
    assert loads() == EngineLoad(7, 2, 1795971306.78, 256, None, moments, "0.5.17", kv_tokens=131072)


def test_ranks_are_summed_and_the_oldest_dates_them() -> None:
    other = RANK | {"timestamp": 1795971300.0, "num_running_reqs": 1, "speculative": {"accept_length": 2.5}}
    third = RANK | {"decode_moments": None, "speculative": {"accept_length": 3.5}}
    got = loads(loads=[RANK, other, third])
    assert got is not None
    assert (got.running, got.waiting, got.at_s, got.max_running_requests) == (15, 6, 1795971300.0, 768)
    assert (got.accept_length, got.moments) == (3.0, (6.0, 6.0, 123574.0, 6.0, 123574.0, 14.0))
    assert got.ranks == 2  # those whose moments are summed


def test_a_rank_without_a_limit_leaves_the_limit_unknown() -> None:
    got = loads(loads=[RANK, RANK | {"max_running_requests": None}])
    assert got is not None
    assert got.max_running_requests is None


@pytest.mark.parametrize("moments", [None, [], [1, 2, 3], [1, 2, 3, 4, 5, "x"], [1, 2, 3, 4, 5, True], {}, [1] * 7])
def test_moments_that_make_no_sense_are_none(moments: object) -> None:
    got = loads(loads=[RANK | {"decode_moments": moments}])
    assert got is not None
    assert got.moments is None


def test_the_older_form_with_an_aggregate_is_read() -> None:
    aggregate = {"total_running_reqs": 8, "total_waiting_reqs": 3, "total_reqs": 11}
    got = loads(loads=[], aggregate=aggregate)
    assert got is not None
    assert (got.running, got.waiting, got.version) == (8, 3, "0.5.17")
    assert got.at_s == pytest.approx(1795971306.784978)
    assert loads(aggregate=aggregate) == loads()


def test_a_rank_that_tells_little_is_read_for_what_it_tells() -> None:
    assert parse_loads(b'{"loads":[{"num_running_reqs":4}]}') == EngineLoad(4, 0)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b"Not Found", b'{"loads":[]}', b'{"loads":[{"dp_rank":0}]}', b'{"loads":{}}']
)
def test_what_is_no_load_is_none(body: bytes) -> None:
    assert parse_loads(body) is None


def test_the_facts_of_an_engine_are_read() -> None:
    assert facts() == EngineFacts("m", "0.5.23", 4096, "default", 256, "EAGLE3", False)


def test_the_limit_in_force_goes_before_the_launch_argument() -> None:
    states = [{"effective_max_running_requests_per_dp": 48}]
    assert facts(max_running_requests=None, internal_states=states).max_running_requests == 48
    assert facts(internal_states=[{"last_gen_throughput": 1.0}]).max_running_requests == 256
    assert facts(internal_states=None).max_running_requests == 256
    assert facts(max_running_requests=None, internal_states=[]).max_running_requests is None


def test_what_an_engine_does_not_say_is_none() -> None:
    got = facts(context_length=None, served_model_name="", weight_version=None, speculative_adaptive="yes")
    assert got == EngineFacts("/w/m/target", "0.5.23", 4090, None, 256, "EAGLE3", False)
    assert facts(speculative_adaptive=True).speculative_adaptive


@pytest.mark.parametrize("algorithm", [None, "", "NONE", "None", 3])
def test_no_algorithm_is_no_speculation(algorithm: object) -> None:
    assert facts(speculative_algorithm=algorithm).speculative_algorithm is None


def test_model_info_gives_fewer_facts() -> None:
    body = b'{"model_path":"/w/m","served_model_name":"m","weight_version":"v2","is_generation":true}'
    assert parse_server_info(body) == EngineFacts(model="m", weight_version="v2")


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"detail":"Not Found"}', b'{"version":3}'])
def test_what_are_no_facts_is_none(body: bytes) -> None:
    assert parse_server_info(body) is None
    assert parse_models(body) is None


def test_a_model_list_gives_name_and_context() -> None:
    body = b'{"object":"list","data":[{"id":"org/m","object":"model","owned_by":"vllm","max_model_len":4096}]}'
    assert parse_models(body) == EngineFacts(model="org/m", context_length=4096)
    assert parse_models(b'{"data":["x",{"id":3},{"id":"a","max_model_len":null}]}') == EngineFacts(model="a")


NAMES = st.sampled_from(
    [
        "loads",
        "aggregate",
        "total_running_reqs",
        "num_running_reqs",
        "num_waiting_reqs",
        "timestamp",
        "max_running_requests",
        "decode_moments",
        "speculative",
        "accept_length",
        "version",
        "served_model_name",
        "context_length",
        "internal_states",
        "effective_max_running_requests_per_dp",
        "data",
        "id",
        "max_model_len",
    ]
)
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | st.just(1e308)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6) | st.just("2026-11-29T16:55:06Z"),
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=30,
)
PARSERS: list[Callable[[bytes], EngineLoad | EngineFacts | None]] = [parse_loads, parse_server_info, parse_models]


@given(st.sampled_from(PARSERS), st.dictionaries(NAMES, JSON, max_size=8))
def test_any_object_is_read_without_raising(
    parse: Callable[[bytes], EngineLoad | EngineFacts | None], value: dict[str, Any]
) -> None:
    got = parse(orjson.dumps(value))
    if isinstance(got, EngineLoad):
        assert got.running >= 0
        assert got.waiting >= 0
        assert got.moments is None or all(0 <= moment <= 7 * MAX_NUMBER for moment in got.moments)


@given(st.sampled_from(PARSERS), st.binary(max_size=80))
def test_any_bytes_are_read_without_raising(
    parse: Callable[[bytes], EngineLoad | EngineFacts | None], body: bytes
) -> None:
    assert parse(body) is None


PROPS: dict[str, Any] = {
    "default_generation_settings": {"params": {}, "n_ctx": 2048},
    "total_slots": 8,
    "model_alias": "m",
    "model_path": "/w/m.gguf",
    "build_info": "b7-abc",
}


@pytest.mark.parametrize(("drafts", "algorithm"), [(True, "unnamed"), (False, None)])
def test_llamacpp_tells_its_slots_and_whether_it_drafts(drafts: bool, algorithm: str | None) -> None:
    slots = [{"id": one, "is_processing": one < 3, "speculative": drafts} for one in range(8)]
    assert parse_props(orjson.dumps(PROPS), orjson.dumps(slots)) == EngineFacts(
        model="m",
        version="b7-abc",
        context_length=2048,
        max_running_requests=8,
        speculative_algorithm=algorithm,
        notices_leaving=False,
    )
    assert parse_slots(orjson.dumps(slots)) == EngineLoad(running=3, waiting=0, max_running_requests=8)


def test_llamacpp_whose_slots_are_hidden_is_not_asked_whether_it_drafts() -> None:
    facts = parse_props(orjson.dumps(PROPS), b"")
    assert facts is not None
    assert (facts.version, facts.speculative_algorithm) == (None, None)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_any_props_and_slots_are_read_without_raising(props: bytes, slots: bytes) -> None:
    assert (parse_props(props, slots), parse_slots(slots)) == (None, None)


def test_an_answer_that_lists_a_key_among_the_launch_arguments_shows_keys() -> None:
    assert shows_keys(b'{"model_path": "m", "admin_api_key": "secret"}')
    assert not shows_keys(b'{"model_path": "m", "api_key": null, "admin_api_key": null}')
    assert not shows_keys(b"not json")


def test_an_instant_before_1970_is_none() -> None:
    answer = {"timestamp": "1969-12-31T23:59:59+00:00", "aggregate": {"total_running_reqs": 3}}
    load = parse_loads(orjson.dumps(answer))
    assert load is not None
    assert load.at_s is None


def test_sums_over_ranks_are_no_more_than_one_number_may_be() -> None:
    counts = ("num_running_reqs", "num_waiting_reqs", "max_running_requests", "max_total_num_tokens")
    load = loads(loads=[RANK | dict.fromkeys(counts, 10**18) for _ in range(100)])
    assert load is not None
    assert {load.running, load.waiting, load.max_running_requests, load.kv_tokens} == {int(MAX_NUMBER)}
    states = [{"effective_max_running_requests_per_dp": 10**18}] * 100
    assert facts(internal_states=states).max_running_requests == MAX_NUMBER


def test_names_are_read_up_to_a_bound() -> None:
    long = "n" * 100_000
    told = facts(served_model_name=long, version=long, weight_version=long, speculative_algorithm=long)
    assert {told.model, told.version, told.weight_version, told.speculative_algorithm} == {"n" * MAX_NAME}
