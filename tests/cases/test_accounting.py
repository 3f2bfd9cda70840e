"""H8, H9, H11, H30: the one count is true whatever backends, paths, weights and processes do to it."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml
from fakes.dialects import SAMPLES
from fakes.engine import Exchange, either
from fakes.flaps import (
    Flap,
    as_reported,
    change_places_twice,
    drain_and_undrain,
    fail,
    fail_health,
    open_and_close_the_circuit,
    remove_and_add,
    take_over,
    watched,
)
from fakes.held import Crowd, answers, body_of, crowded
from fakes.raw import RawClient, ask, chat, request
from fakes.reloading import Engine
from fakes.second_process import second_process, written
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import config
from proxy.config import InvalidConfig
from proxy.model import Outcome, Role
from proxy.protocol.allowlist import LIVENESS_PATHS, READINESS_PATHS, ROUTES, EngineKind, Route

SPECULATIVE, BASELINE = Role.SPECULATIVE, Role.BASELINE


async def metrics(stage: Stage) -> dict[str, float]:
    """Every sample of one scrape, by name and labels as they are written."""
    async with aiohttp.ClientSession() as session:
        text = await (await session.get(f"http://127.0.0.1:{stage.app.admin_port}/metrics")).text()
    samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


async def gauge(stage: Stage, role: Role) -> float:
    return (await metrics(stage))[f'crossover_in_flight{{role="{role.value}"}}']


def in_flight(stage: Stage, role: Role) -> int:
    return stage.app.desk.snapshot().of(role).in_flight


# ---------------------------------------------------------------- H8: the counter goes below zero


@pytest.mark.parametrize("role", [SPECULATIVE, BASELINE])
@pytest.mark.parametrize(
    "flap",
    [as_reported, fail_health, remove_and_add, change_places_twice, drain_and_undrain, open_and_close_the_circuit],
)
async def test_h8_the_count_is_true_after_a_backend_has_flapped_under_its_requests(flap: Flap, role: Role) -> None:
    """Twenty on A in every dialect, streaming and not; A flaps; five new ones run while the twenty end."""
    sections = {
        "routing": {"policy": "pinned", "pin": role.value},
        "circuit": {"max_failures": 2, "open_s": 0.1},
        "retries": {"reserve": 1000},
    }
    async with Engine() as spare, crowded(**sections) as (stage, crowd, held), watched(stage):
        old = await crowd.of_every_kind(20)
        stage.b.script = stage.a.script if role is BASELINE else either
        stage.a.script = stage.a.script if role is SPECULATIVE else either
        assert await gauge(stage, role) == 20
        engine = stage.a if role is SPECULATIVE else stage.b
        await until(lambda: engine.open == 20)
        await flap(stage, role, spare.url)
        assert await gauge(stage, role) == 20
        before, held.opened = held.opened, asyncio.Event()
        await crowd.of_every_kind(5)
        await until(lambda: in_flight(stage, role) == 25)
        before.set()
        assert {said.status for said in await answers(old)} == {200}
        await until(lambda: in_flight(stage, role) == 5)
        assert await gauge(stage, role) == 5
        assert engine.open == 5


async def test_h8_what_is_left_on_a_removed_backend_is_told_and_never_counted_on_its_successor() -> None:
    async with Engine() as spare, crowded(routing={"policy": "pinned", "pin": "speculative"}) as (stage, crowd, held):
        old = await crowd.of_every_kind(20)
        await take_over(stage, spare.url, stage.b.url)
        assert await gauge(stage, SPECULATIVE) == 0
        assert stage.app.status()["dropped_in_flight"] == {stage.a.url: 20}
        held.opened.set()
        assert {said.status for said in await answers(old)} == {200}
        assert await gauge(stage, SPECULATIVE) == 0
        await until(lambda: stage.app.status()["dropped_in_flight"] == {})


# ---------------------------------------------------------------- H9: traffic that the router does not see

AS_REPORTED = ("/v1/completions", "/v1/responses", "/v1/messages", "/generate")
COUNTED = [
    (kind, route, method)
    for kind in EngineKind
    for route in ROUTES[kind]
    if route.counts
    for method in sorted(route.methods)
]
CONTROL = [
    (kind, route, method)
    for kind in EngineKind
    for route in ROUTES[kind]
    if not route.counts
    for method in sorted(route.methods)
]


# What makes an engine work, written down once more: a path that changes its class there changes it here too.
WORK = {
    EngineKind.SGLANG: """
        /v1/chat/completions /invocations /v1/completions /v1/responses /v1/messages /generate /vertex_generate
        /api/chat /api/generate /v1/embeddings /v1/classify /v1/score /v1/decisions /v1/systemone /classify /encode
        /v1/rerank /v1/audio/transcriptions
        """,
    EngineKind.VLLM: """
        /v1/chat/completions /invocations /v1/chat/completions/batch /v1/completions /inference/v1/generate
        /v1/responses /v1/messages /cohere/v2/chat /generative_scoring /v1/decisions /v1/systemone /v1/embeddings
        /v2/embed /pooling /classify /score /v1/score /rerank /v1/rerank /v2/rerank /v1/audio/transcriptions
        /v1/audio/translations
        """,
    EngineKind.LLAMACPP: """
        /v1/chat/completions /chat/completions /v1/completions /v1/responses /responses /v1/messages /completion
        /completions /infill /v1/embeddings /embeddings /embedding /v1/rerank /v1/reranking /rerank /reranking
        /v1/systemone /v1/audio/transcriptions /audio/transcriptions
        """,
    EngineKind.OPENAI: """
        /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/embeddings /v1/audio/transcriptions
        /v1/audio/translations
        """,
}


@pytest.mark.parametrize("kind", EngineKind)
def test_h9_paths_that_count_are_all_that_make_the_engine_work(kind: EngineKind) -> None:
    assert {route.template for route in ROUTES[kind] if route.counts} == set(WORK[kind].split())


def named(value: object) -> str:
    return value.template if isinstance(value, Route) else str(value)


@pytest.mark.parametrize("policy", ["overflow", "threshold"])
async def test_h9_thirty_two_requests_on_each_of_four_paths_are_as_many_for_the_next_decision(policy: str) -> None:
    routing = {"policy": policy, "leave_at": 128, "smoothing_s": 0.0, "min_dwell_s": 0.0}
    async with crowded(routing=routing) as (stage, crowd, _):
        samples = [sample for sample in SAMPLES if sample.target in AS_REPORTED]
        await asyncio.gather(*(open_stream(crowd, sample.target, sample.body) for sample in samples * 32))
        assert (stage.a.open, await gauge(stage, SPECULATIVE)) == (128, 128)
        said = await (await crowd.ask("/v1/chat/completions", chat(stream=True))).head()
        assert said.header("x-crossover-backend") == "baseline"
        assert said.header("x-crossover-in-flight") == "speculative=128, baseline=0"


async def open_stream(crowd: Crowd, target: str, body: bytes) -> None:
    client = await crowd.connect()
    await client.send(request(target, body))
    assert (await client.head()).status == 200


@pytest.mark.parametrize(("kind", "route", "method"), COUNTED, ids=named)
async def test_h9_every_path_that_makes_the_engine_work_counts(kind: EngineKind, route: Route, method: str) -> None:
    async with crowded() as (stage, crowd, held):
        stage.app.door.engines = (kind,)
        client = await crowd.connect()
        await client.send(request(route.template, b"{}", method=method))
        await until(lambda: stage.a.open == 1)
        assert in_flight(stage, SPECULATIVE) == 1
        held.opened.set()
        assert (await client.answer()).status == 200
        await until(lambda: in_flight(stage, SPECULATIVE) == 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("role", [SPECULATIVE, BASELINE])
async def test_h9_a_request_counts_by_either_role_http_version_and_address_family(role: Role, host: str) -> None:
    """All dialects, streaming (after the first byte) and not (before it)."""
    async with crowded(host=host, routing={"policy": "pinned", "pin": role.value}) as (stage, crowd, _):
        for version, total in (("1.0", 12), ("1.1", 24)):
            await crowd.of_every_kind(12, version)
            assert in_flight(stage, role) == total
        await until(lambda: stage.a.open + stage.b.open == 24)
        assert in_flight(stage, role.other) == 0


async def test_h9_two_hundred_questions_for_models_and_health_never_count() -> None:
    async with crowded() as (stage, crowd, _), RawClient(stage.app.port) as client:
        await crowd.of_every_kind(3)
        opened, decided = [backend.book.opened for backend in stage.app.desk.backends], len(stage.app.desk.ring)
        for _ in range(200):
            for path in ("/v1/models", "/health"):
                await client.send(request(path, method="GET"))
                assert (await client.answer()).status == 200
                assert stage.in_flight == 3
        assert [backend.book.opened for backend in stage.app.desk.backends] == opened
        assert len(stage.app.desk.ring) == decided


@pytest.mark.parametrize(("kind", "route", "method"), CONTROL, ids=named)
async def test_h9_a_question_is_not_counted_while_the_engine_answers_it(
    kind: EngineKind, route: Route, method: str
) -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        asked.set()
        await gate.wait()
        await exchange.answer(b"" if exchange.request.method == "HEAD" else b"{}")

    async with staged(a=slow, b=slow) as stage, RawClient(stage.app.port) as client:
        stage.app.door.engines = (kind,)
        path = route.template.replace("{model:path}", "org/m").replace("{rest:path}", "x")
        body = b"" if method in ("GET", "HEAD") else b"{}"
        await client.send(request(path, body, method=method))
        await until(asked.is_set)
        assert (stage.in_flight, stage.app.admission.waiting) == (0, 0)
        gate.set()
        assert (await client.answer(bodiless=method == "HEAD")).status == 200
        assert not stage.app.desk.ring


@pytest.mark.parametrize("path", sorted(LIVENESS_PATHS | READINESS_PATHS))
async def test_h9_the_proxys_own_health_answers_never_count(path: str) -> None:
    async with staged() as stage:
        assert (await ask(stage.app.port, request(path, method="GET"))).status == 200
        assert [backend.book.opened for backend in stage.app.desk.backends] == [0, 0]
        assert stage.a.requests == stage.b.requests == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/unknown", 404),
        ("/generate2", 404),
        ("/v1/chat/completions/", 404),
        ("/v1/chat/completions/more", 404),
        ("/flush_cache", 403),
        ("/v1/models", 405),
    ],
)
async def test_h9_a_path_that_is_not_known_is_refused_and_told_not_passed_uncounted(target: str, status: int) -> None:
    async with staged() as stage:
        assert (await stage.ask(target=target)).status == status
        assert stage.a.requests == stage.b.requests == []
        refused = {name: value for name, value in (await metrics(stage)).items() if "crossover_refusals_total" in name}
        assert sum(refused.values()) == 1
        assert [backend.book.opened for backend in stage.app.desk.backends] == [0, 0]


# ---------------------------------------------------------------- H11: requests are not equal

LONG = "x" * 100_000
WEIGHTS: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/chat/completions", {"n": 16}, 16),
    ("/v1/chat/completions", {"max_tokens": 1}, 1),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}, 1),
    ("/v1/completions", {"prompt": ["a", "b", "c"], "n": 2}, 6),
    ("/v1/completions", {"prompt": [[1, 2], [3]]}, 2),
    ("/generate", {"text": ["a", "b"], "sampling_params": {"n": 4}}, 8),
    ("/generate", {"text": "a", "sampling_params": [{"n": 3}]}, 3),
    ("/v1/responses", {"input": LONG}, 1),
    ("/v1/messages", {"max_tokens": 1}, 1),
    ("/api/chat", {"options": {"num_predict": 1}}, 1),
    ("/v1/embeddings", {"input": ["a"] * 5}, 5),
]


def body(**said: Any) -> bytes:
    return orjson.dumps({"model": "m", **said})


async def test_h11_sixteen_answers_a_long_prompt_and_a_short_answer_weigh_what_the_engine_runs() -> None:
    """And the weight that is released at the end is the one that was taken at the start."""
    async with crowded(routing={"policy": "pinned", "pin": "speculative"}) as (stage, crowd, _):
        sixteen = await crowd.ask("/v1/chat/completions", chat(n=16))
        assert in_flight(stage, SPECULATIVE) == 16
        long = await crowd.ask("/v1/chat/completions", chat(prompt=LONG))
        assert in_flight(stage, SPECULATIVE) == 17
        await crowd.ask("/v1/chat/completions", chat(max_tokens=1))
        assert await gauge(stage, SPECULATIVE) == 18
        assert [record.weight for record in stage.app.desk.ring] == [16, 1, 1]
        sixteen.leave()
        await until(lambda: in_flight(stage, SPECULATIVE) == 2)
        long.leave()
        await until(lambda: in_flight(stage, SPECULATIVE) == 1)
        await until(lambda: len(stage.ended) == 2)
        assert stage.ended[1].traits.prompt_bytes > 100_000


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("target", "said", "weight"), WEIGHTS)
async def test_h11_a_request_counts_its_sequences_from_start_to_end(
    target: str, said: dict[str, Any], weight: int, stream: bool
) -> None:
    async with crowded() as (stage, crowd, held):
        client = await crowd.ask(target, body(**said, stream=stream))
        assert (in_flight(stage, SPECULATIVE), stage.in_flight) == (weight, weight)
        held.opened.set()
        assert (await client.answer()).status == 200
        await until(lambda: stage.in_flight == 0)


@pytest.mark.parametrize(("policy", "smoothing_s"), [("overflow", 0.0), ("overflow", 2.0), ("threshold", 0.0)])
async def test_h11_the_threshold_is_held_against_sequences_not_requests(policy: str, smoothing_s: float) -> None:
    """Decided the long way, and the short one by two counts, which there is with smoothing alone."""
    routing = {"policy": policy, "leave_at": 9, "enter_at": 4, "smoothing_s": smoothing_s, "min_dwell_s": 0.0}
    async with crowded(routing=routing) as (stage, crowd, _):
        await crowd.ask("/v1/chat/completions", chat(n=4))
        await crowd.ask("/v1/completions", body(prompt=["a", "b"], n=2))
        assert in_flight(stage, SPECULATIVE) == 8
        await crowd.ask("/v1/chat/completions", chat(n=2))
        assert (in_flight(stage, SPECULATIVE), in_flight(stage, BASELINE)) == (8, 2)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
@pytest.mark.parametrize("stream", [False, True])
async def test_h11_the_size_of_the_prompt_is_there_for_the_policy(sample: Any, stream: bool) -> None:
    rules = [{"when": "long_prompt", "role": "baseline", "min_prompt_bytes": 65536}]
    async with crowded(routing={"rules": rules}) as (stage, crowd, _):
        short = body_of(sample, stream=stream)
        await crowd.ask(sample.target, short)
        await crowd.ask(sample.target, short[:-1] + b',"user":"' + LONG.encode() + b'"}')
        first, second = (record.decision for record in stage.app.desk.ring)
        assert (first.role, first.reason) == (SPECULATIVE, "room")
        assert (second.role, second.reason) == (BASELINE, "rule")


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("before", "after"), [(8, 256), (12, 4)])
async def test_h11_what_was_taken_is_released_though_the_engines_limit_has_changed_since(
    before: int, after: int, stream: bool, leaves: bool
) -> None:
    """An engine of eight places runs eight of sixteen answers: eight are counted, and eight given back."""
    async with crowded(places=before) as (stage, crowd, held):
        client = await crowd.ask("/v1/chat/completions", chat(n=16, stream=stream))
        stage.a.max_running_requests = stage.b.max_running_requests = after
        await until(lambda: stage.app.desk.backend(SPECULATIVE).max_in_flight == after)
        assert in_flight(stage, SPECULATIVE) == before
        if leaves:
            client.leave()
        else:
            held.opened.set()
            assert (await client.answer()).status == 200
        await until(lambda: stage.ended)
        assert [in_flight(stage, role) for role in (SPECULATIVE, BASELINE)] == [0, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_h11_a_request_that_moves_gives_back_what_it_took_on_each_side(stream: bool) -> None:
    """Sixteen on the first backend, eight on the second, which has no more places."""
    async with crowded() as (stage, crowd, held):
        stage.a.script, stage.b.max_running_requests = fail, 8
        await until(lambda: stage.app.desk.backend(BASELINE).max_in_flight == 8)
        client = await crowd.connect()
        await client.send(request(body=chat(n=16, stream=stream)))
        await until(lambda: stage.b.open == 1)
        assert [in_flight(stage, role) for role in (SPECULATIVE, BASELINE)] == [0, 8]
        held.opened.set()
        assert (await client.answer()).status == 200
        facts = await stage.ended_one()
        assert (facts.outcome, facts.attempts) == (Outcome.FINISHED, 2)
        assert [in_flight(stage, role) for role in (SPECULATIVE, BASELINE)] == [0, 0]


# ---------------------------------------------------------------- H30: several processes


@pytest.mark.parametrize(("ports", "told"), [({}, "admin.port"), ({"admin": 0}, "listen.port")])
async def test_h30_a_second_process_on_the_same_configuration_refuses_to_start_and_takes_nothing(
    tmp_path: Path, ports: dict[str, int], told: str
) -> None:
    """A hundred long streams, twenty scrapes, one more request: one process has one truth, before and after.
    Either port is enough to refuse."""
    async with crowded(routing={"policy": "overflow", "leave_at": 60}) as (stage, crowd, held):
        streams = [await crowd.ask("/v1/chat/completions", chat(stream=True)) for _ in range(100)]
        assert [await both(stage) for _ in range(10)] == [(60.0, 40.0)] * 10
        status, said = await second_process(written(tmp_path / "crossover.yaml", stage, **ports))
        assert (status, f"{told}: " in said, "is taken by another Crossover; one process" in said) == (1, True, True)
        assert [await both(stage) for _ in range(10)] == [(60.0, 40.0)] * 10
        more = await (await crowd.ask("/v1/chat/completions", chat(stream=True))).head()
        assert more.header("x-crossover-in-flight") == "speculative=60, baseline=40"
        held.opened.set()
        assert all(said.whole and said.status == 200 for said in await answers(streams))


async def both(stage: Stage) -> tuple[float, float]:
    samples = await metrics(stage)
    return samples['crossover_in_flight{role="speculative"}'], samples['crossover_in_flight{role="baseline"}']


async def test_h30_there_is_no_way_to_ask_for_several_processes(tmp_path: Path) -> None:
    async with staged() as stage:
        path = written(tmp_path / "crossover.yaml", stage)
        status, said = await second_process(path, "--workers", "2")
        assert (status, "--workers" in said) == (2, True)
        with pytest.raises(InvalidConfig, match="workers"):
            config.from_mapping({**yaml.safe_load(path.read_text()), "workers": 2})


async def test_h30_a_second_proxy_with_ports_of_its_own_shows_in_the_first_ones_metrics() -> None:
    """What goes round this proxy is not in its count, but the engine says that it runs: the difference is a metric."""
    async with crowded(routing={"policy": "pinned", "pin": "speculative"}) as (stage, crowd, _):
        await crowd.of_every_kind(3)
        async with contextlib.AsyncExitStack() as others:
            for _ in range(5):
                client = await others.enter_async_context(RawClient(stage.a.port))
                await client.send(request(body=chat(stream=True)))
            await until(lambda: stage.a.open == 8)
            await until(lambda: stage.app.desk.backend(SPECULATIVE).drift() == 5)
            samples = await metrics(stage)
            assert samples['crossover_drift_sequences{role="speculative"}'] == 5
            assert samples['crossover_in_flight{role="speculative"}'] == 3
