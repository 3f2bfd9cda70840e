"""Questions are answered by whichever engine lives, unchanged, and occupy nobody."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.until import until

from proxy.app import App
from proxy.model import Role

MODELS = b'{"object":"list","data":[{"id":"org/name","max_model_len":4096,"invented":[1, 2.0]}]}'
Script = Callable[[Exchange], Awaitable[None]]


async def models(exchange: Exchange) -> None:
    await exchange.answer(MODELS, "200 OK", "x-request-id: the engine's", "x-engine: yes")


def saying(status: str, body: bytes = b'{"error":{"message":"no"}}') -> Script:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, status)

    return answer


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def silent(exchange: Exchange) -> None:
    await exchange.gone()


async def halting(exchange: Exchange) -> None:
    """A head and half a body, and then nothing."""
    await exchange.head("200 OK", "content-length: 100")
    await exchange.send(b"half")
    await exchange.gone()


@dataclass
class Pair:
    app: App
    speculative: FakeEngine
    baseline: FakeEngine

    async def get(self, path: str = "/v1/models", *lines: str, method: str = "GET") -> Said:
        return await ask(self.app.port, request(path, b"", *lines, method=method), bodiless=method == "HEAD")


@contextlib.asynccontextmanager
async def pair(speculative: Script = models, baseline: Script = models, **sections: Any) -> AsyncIterator[Pair]:
    async with (
        FakeEngine(script=speculative) as a,
        FakeEngine(script=baseline, role="baseline") as b,
        running(settings(a.url, b.url, **sections)) as app,
    ):
        yield Pair(app, a, b)


# ---------------------------------------------------------------- who is asked


async def test_the_baseline_is_asked_and_its_answer_passes_unchanged() -> None:
    async with pair() as asked:
        said = await asked.get()
        assert not asked.speculative.requests
    assert (said.status, said.body) == (200, MODELS)
    assert said.header("x-engine") == "yes"
    assert said.header("x-crossover-backend") == "baseline"


async def test_a_stamp_stands_once_though_the_engine_sends_its_own() -> None:
    async with pair() as asked:
        said = await asked.get("/v1/models", "x-request-id: mine")
    assert [value for name, value in said.headers if name.lower() == "x-request-id"] == ["mine"]


@pytest.mark.parametrize("role", list(Role))
async def test_a_client_may_name_who_is_asked(role: Role) -> None:
    async with pair() as asked:
        said = await asked.get("/v1/models", f"x-crossover-backend: {role.value}")
    assert said.header("x-crossover-backend") == role.value


async def test_a_backend_that_looks_down_is_asked_last() -> None:
    async with pair() as asked:
        asked.app.drain_backend(Role.BASELINE, draining=True)
        assert (await asked.get()).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize("baseline", [reset, saying("500 Internal Server Error"), saying("503 Service Unavailable")])
async def test_the_other_is_asked_when_the_first_fails(baseline: Script) -> None:
    async with pair(baseline=baseline) as asked:
        said = await asked.get()
    assert (said.status, said.body, said.header("x-crossover-backend")) == (200, MODELS, "speculative")


async def test_the_other_is_asked_when_the_first_is_not_there() -> None:
    async with pair() as asked:
        await asked.baseline.close()
        assert (await asked.get()).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize("baseline", [silent, halting])
async def test_the_other_is_asked_when_the_first_hangs(baseline: Script) -> None:
    async with pair(baseline=baseline) as asked:
        asked.app.informer.answer_within_s = 0.05
        said = await asked.get()
        await until(lambda: not asked.baseline.open)
    assert (said.status, said.body) == (200, MODELS)


async def test_a_hung_engine_holds_a_model_list_up_for_a_short_while_and_other_questions_longer() -> None:
    async with pair(baseline=silent) as asked:
        asked.app.informer.list_within_s = 0.05
        assert (await asked.get()).header("x-crossover-backend") == "speculative"
        async with RawClient(asked.app.port) as client:
            await client.send(request("/v1/models/name", method="GET"))
            await until(lambda: asked.baseline.open)
            assert (await asked.get()).header("x-crossover-backend") == "speculative"
            assert asked.baseline.open, "still waited for"


async def test_the_remembered_list_answers_after_the_short_while_when_both_hang() -> None:
    async with pair() as asked:
        await asked.get()
        asked.speculative.script = asked.baseline.script = silent
        asked.app.informer.list_within_s = 0.05
        said = await asked.get()
    assert (said.status, said.body, said.header("x-crossover-cached")) == (200, MODELS, "1")


async def test_a_backend_whose_latest_probe_went_unanswered_is_asked_last() -> None:
    async with pair() as asked:
        backend = asked.app.desk.backend(Role.BASELINE)
        backend.health = replace(backend.health, up=True, misses=1)
        assert (await asked.get()).header("x-crossover-backend") == "speculative"


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "422 Unprocessable Entity"])
async def test_what_one_engine_calls_wrong_is_not_asked_twice(status: str) -> None:
    async with pair(saying(status), saying(status)) as asked:
        said = await asked.get("/v1/models/none")
        assert (len(asked.baseline.requests), len(asked.speculative.requests)) == (1, 0)
    assert said.status == int(status[:3])


# ---------------------------------------------------------------- when nobody has an answer


async def test_when_both_fail_the_first_engines_own_error_passes() -> None:
    async with pair(reset, saying("500 Internal Server Error", b"mine")) as asked:
        said = await asked.get()
    assert (said.status, said.body, said.header("x-crossover-backend")) == (500, b"mine", "baseline")


@pytest.mark.parametrize(
    ("script", "status", "code"), [(reset, 502, "backend_broken"), (silent, 504, "first_byte_timeout")]
)
async def test_when_neither_answers_the_error_is_ours(script: Script, status: int, code: str) -> None:
    async with pair(script, script) as asked:
        asked.app.informer.answer_within_s = 0.05
        said = await asked.get()
    assert (said.status, said.json["error"]["code"]) == (status, code)  # type: ignore[index]


@pytest.mark.parametrize("fails", [reset, saying("503 Service Unavailable")])
async def test_the_model_list_is_remembered_and_marked_when_no_engine_has_one(fails: Script) -> None:
    async with pair() as asked:
        assert (await asked.get()).header("x-crossover-cached") is None
        asked.speculative.script = asked.baseline.script = fails
        said = await asked.get()
        head = await asked.get(method="HEAD")
    assert (said.status, said.body, said.header("x-crossover-cached")) == (200, MODELS, "1")
    assert said.header("x-crossover-backend") == "baseline"
    assert (head.status, head.header("content-length")) == (200, str(len(MODELS)))


async def test_only_a_good_model_list_is_remembered() -> None:
    async with pair(saying("404 Not Found"), saying("404 Not Found")) as asked:
        await asked.get()
        asked.speculative.script = asked.baseline.script = reset
        assert (await asked.get()).status == 502
        asked.speculative.script = asked.baseline.script = models
        await asked.get("/v1/models/org/name")
        asked.speculative.script = asked.baseline.script = reset
        assert (await asked.get()).status == 502


# ---------------------------------------------------------------- what is passed


async def test_head_has_the_head_of_get_and_no_body() -> None:
    async with pair(_heads, _heads) as asked, RawClient(asked.app.port) as client:
        await client.send(request("/v1/models", method="HEAD") + request("/v1/models", method="GET"))
        head = await client.answer(bodiless=True)
        whole = await client.answer()
    assert head.status == whole.status == 200
    assert head.header("content-length") == str(len(MODELS))
    assert whole.body == MODELS


async def _heads(exchange: Exchange) -> None:
    body = b"" if exchange.request.method == "HEAD" else MODELS
    await exchange.head("200 OK", f"content-length: {len(MODELS)}")
    await exchange.send(body)


@pytest.mark.parametrize("path", ["/v1/models/org/name", "/v1/models/org%2Fname"])
async def test_the_target_goes_byte_for_byte(path: str) -> None:
    target = f"{path}?b=2&a=1&b=3&flag&sig=%E9%FF&s=1;2&q=hello%20world"
    async with pair() as asked:
        assert (await asked.get(target)).status == 200
        assert asked.baseline.requests[0].target == target


async def test_a_question_with_a_body_is_passed_with_it() -> None:
    async with pair() as asked:
        await ask(asked.app.port, request("/tokenize", b'{"prompt": "\xc3\xa9"}', "authorization: Bearer k"))
        got = asked.baseline.requests[0]
    assert (got.method, got.body, got.header("authorization")) == ("POST", b'{"prompt": "\xc3\xa9"}', "Bearer k")


async def test_a_body_over_the_limit_is_refused_before_anybody_is_asked() -> None:
    async with pair(listen={"max_body_bytes": 1024}) as asked:
        said = await ask(asked.app.port, request("/tokenize", b"x" * 2000))
        assert said.status == 413
        assert not asked.baseline.requests


async def test_the_key_of_the_engine_takes_the_place_of_the_clients() -> None:
    async with FakeEngine(script=models) as a, FakeEngine(script=models, role="baseline") as b:
        backends = {"speculative": {"url": a.url}, "baseline": {"url": b.url, "api_key": "theirs"}}
        async with running(settings(a.url, b.url, backends=backends)) as app:
            await ask(app.port, request("/v1/models", b"", "authorization: Bearer mine", method="GET"))
        assert b.requests[0].header("authorization") == "Bearer theirs"


# ---------------------------------------------------------------- what it costs


async def test_a_question_is_neither_decided_nor_counted_in_flight() -> None:
    seen: list[int] = []

    async def looking(exchange: Exchange) -> None:
        seen.append(asked.app.desk.snapshot().in_flight)
        await models(exchange)

    async with pair(looking, looking) as asked:
        await asked.get()
        assert seen == [0]
        assert not asked.app.desk.ring


async def test_a_question_is_answered_while_every_place_is_taken() -> None:
    async with (
        FakeEngine(script=_models_only, max_running_requests=1) as a,
        FakeEngine(script=_models_only, max_running_requests=1, role="baseline") as b,
        running(settings(a.url, b.url)) as app,
        RawClient(app.port) as first,
        RawClient(app.port) as second,
    ):
        await first.send(request(body=chat()))
        await second.send(request(body=chat()))
        await until(lambda: app.desk.snapshot().in_flight == 2)
        assert (await ask(app.port, request("/v1/models", method="GET"))).status == 200


async def _models_only(exchange: Exchange) -> None:
    await (models if exchange.request.method == "GET" else silent)(exchange)


async def test_a_client_that_leaves_ends_its_question() -> None:
    async with pair(silent, silent) as asked:
        async with RawClient(asked.app.port) as client:
            await client.send(request("/v1/models", method="GET"))
            await until(lambda: asked.baseline.open)
        await until(lambda: not asked.baseline.open)
        assert not asked.speculative.requests
