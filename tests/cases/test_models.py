"""H18: the model list comes from whichever engine lives, as that engine wrote it, or from memory and marked so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.failing import hang
from fakes.leaping import leaping_where
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged

# Health verdicts stay as they were at the start: a question meets the dead engine itself.
UNWATCHED = {"interval_s": 300}
Script = Callable[[Exchange], Awaitable[None]]


def listing(created: int) -> bytes:
    """A list as SGLang writes it, odd spaces and unknown fields included."""
    entry = b'{"id":"org/name","object":"model","created":%d,"owned_by":"sglang","root":"/models/x",' % created
    return b'{"object": "list","data":[' + entry + b'"parent":null,"max_model_len":131072,"invented":[1, 2.0]}]}'


def lists(created: int) -> Script:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(listing(created), "200 OK", "x-engine: yes")

    return answer


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def garbage(exchange: Exchange) -> None:
    await exchange.send(b"no HTTP at all\r\n\r\n")
    exchange.writer.close()


async def half(exchange: Exchange) -> None:
    await exchange.head("200 OK", "content-type: application/json", "content-length: 100")
    await exchange.send(b'{"object":')
    exchange.writer.close()


async def starting(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":"loading"}', "503 Service Unavailable")


async def failing(exchange: Exchange) -> None:
    await exchange.answer(b"Internal Server Error", "500 Internal Server Error")


WAYS_DOWN: dict[str, Script | None] = {
    "gone": None,
    "reset": reset,
    "garbage": garbage,
    "half": half,
    "hang": hang,
    "503": starting,
    "500": failing,
}


async def bring_down(engine: FakeEngine, way: str) -> None:
    script = WAYS_DOWN[way]
    if script is None:
        await engine.close()
    else:
        engine.script = script


async def models(stage: Stage, *lines: str, target: str = "/v1/models", **how: Any) -> Said:
    bodiless = how.get("method") == "HEAD"
    return await ask(stage.app.port, request(target, b"", *lines, **{"method": "GET", **how}), bodiless=bodiless)


ON_ITS_LOOP = leaping_where(lambda way, **_: way == "hang")


# ---------------------------------------------------------------- one or both up


@pytest.mark.parametrize("way", WAYS_DOWN)
@pytest.mark.parametrize("dead", ["speculative", "baseline"])
@pytest.mark.parametrize("watched", [False, True])
@ON_ITS_LOOP
async def test_h18_list_comes_from_the_engine_that_lives(way: str, dead: str, watched: bool) -> None:
    health = {"interval_s": 0.1} if watched else UNWATCHED
    async with staged(lists(1), lists(2), health=health) as stage:
        await bring_down(stage.a if dead == "speculative" else stage.b, way)
        for _ in range(3):
            said = await models(stage)
            living, created = ("baseline", 2) if dead == "speculative" else ("speculative", 1)
            assert (said.status, said.body, said.whole) == (200, listing(created), True)
            assert (said.header("x-crossover-backend"), said.header("x-crossover-cached")) == (living, None)


@pytest.mark.parametrize("created", [(7, 7), (1, 2)], ids=["same", "different"])
async def test_h18_list_of_two_engines_has_one_entry_for_their_model_with_every_field(created: tuple[int, int]) -> None:
    async with staged(lists(created[0]), lists(created[1])) as stage:
        for _ in range(10):
            said = await models(stage)
            assert (said.status, said.body, said.header("x-engine")) == (200, listing(created[1]), "yes")
            assert [entry["id"] for entry in orjson.loads(said.body)["data"]] == ["org/name"]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_h18_list_is_the_same_over_every_kind_of_connection(version: str, host: str) -> None:
    async with staged(lists(1), lists(2), host=host) as stage:
        said = await models(stage, version=version)
        assert (said.status, said.body, said.whole) == (200, listing(2), True)


@pytest.mark.parametrize("way", ["gone", "500"])
@pytest.mark.parametrize("target", ["/model_info", "/api/tags", "/v1/models/org/name", "/metrics"])
async def test_h18_every_other_question_comes_from_the_engine_that_lives(target: str, way: str) -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        await bring_down(stage.b, way)
        said = await models(stage, target=target)
        assert (said.status, said.header("x-crossover-backend")) == (200, "speculative")


async def test_h18_posted_question_comes_from_the_engine_that_lives_with_its_body() -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        await stage.b.close()
        said = await ask(stage.app.port, request("/tokenize", b'{ "prompt":"x" }'))
        assert (said.status, stage.a.requests[0].body) == (200, b'{ "prompt":"x" }')


async def test_h18_list_is_answered_while_every_place_is_taken_and_the_queue_is_full() -> None:
    gate = asyncio.Event()

    async def busy(exchange: Exchange) -> None:
        if exchange.request.method == "POST":
            await gate.wait()
        await lists(1)(exchange)

    async with (
        staged(busy, busy, max_in_flight=1, queue={"max_waiting": 0}) as stage,
        RawClient(stage.app.port) as first,
        RawClient(stage.app.port) as second,
    ):
        for client in (first, second):
            await client.send(request(body=chat()))
        assert (await stage.ask()).status == 429
        assert (await models(stage)).status == 200
        gate.set()
        for client in (first, second):
            assert (await client.answer()).status == 200


# ---------------------------------------------------------------- both down


@pytest.mark.parametrize("way", WAYS_DOWN)
@ON_ITS_LOOP
async def test_h18_list_comes_from_memory_and_says_so_when_no_engine_lives(way: str) -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        assert (await models(stage)).header("x-crossover-cached") is None
        await bring_down(stage.a, way)
        await bring_down(stage.b, way)
        said = await models(stage)
        assert (said.status, said.body, said.header("x-crossover-cached")) == (200, listing(2), "1")
        assert said.header("content-type") == "application/json"


async def test_h18_list_is_fresh_again_once_an_engine_is_back() -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        await models(stage)
        await stage.a.close()
        await stage.b.close()
        assert (await models(stage)).header("x-crossover-cached") == "1"
        stage.a.script = lists(9)
        await stage.a.listen()
        said = await models(stage)
        assert (said.body, said.header("x-crossover-cached")) == (listing(9), None)


@pytest.mark.parametrize(
    ("way", "status"), [("gone", 502), ("reset", 502), ("garbage", 502), ("half", 502), ("hang", 504)]
)
@ON_ITS_LOOP
async def test_h18_error_is_ours_when_no_engine_lives_and_none_was_ever_asked(way: str, status: int) -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        await bring_down(stage.a, way)
        await bring_down(stage.b, way)
        said = await models(stage)
        error: Any = said.json["error"]
        assert (said.status, set(error)) == (status, {"message", "type", "param", "code"})
        assert "127.0.0.1" not in error["message"]


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key"])
async def test_h18_list_from_memory_is_not_shown_to_a_client_with_another_key(name: str) -> None:
    """Where the engines check the keys of clients, nobody else does: who was not let in then is not let in now."""

    async def checks(exchange: Exchange) -> None:
        if exchange.request.header(name) == "right":
            return await lists(2)(exchange)
        return await exchange.answer(b'{"error":{}}', "401 Unauthorized")

    async with staged(checks, checks, health=UNWATCHED) as stage:
        assert (await models(stage, f"{name}: right")).status == 200
        await stage.a.close()
        await stage.b.close()
        assert (await models(stage, f"{name}: right")).header("x-crossover-cached") == "1"
        for lines in ((), (f"{name}: wrong",)):
            said = await models(stage, *lines)
            assert (said.status, b"org/name" in said.body) == (502, False)


async def test_h18_list_from_memory_is_for_everybody_where_the_engine_has_a_key_of_ours() -> None:
    async with FakeEngine(script=lists(1)) as a, FakeEngine(script=lists(2), role="baseline") as b:
        backends = {"speculative": {"url": a.url, "api_key": "k"}, "baseline": {"url": b.url, "api_key": "k"}}
        async with running(settings(a.url, b.url, backends=backends, health=UNWATCHED)) as app:
            await ask(app.port, request("/v1/models", b"", "authorization: Bearer one", method="GET"))
            await a.close()
            await b.close()
            said = await ask(app.port, request("/v1/models", b"", "authorization: Bearer two", method="GET"))
            assert (said.status, said.header("x-crossover-cached")) == (200, "1")


# ---------------------------------------------------------------- one model


@pytest.mark.parametrize("name", ["org/name", "org%2Fname", "org%2fname", "org/sub/name"])
@pytest.mark.parametrize("dead", [None, "speculative", "baseline"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_h18_model_with_a_slash_in_its_name_is_asked_for_in_its_own_spelling(
    name: str, dead: str | None, version: str
) -> None:
    async with staged(lists(1), lists(2), health=UNWATCHED) as stage:
        if dead is not None:
            await (stage.a if dead == "speculative" else stage.b).close()
        said = await models(stage, target=f"/v1/models/{name}", version=version)
        living = stage.a if dead == "baseline" else stage.b
        assert (said.status, [each.target for each in living.requests]) == (200, [f"/v1/models/{name}"])


async def test_h18_model_that_the_living_engine_has_not_is_its_own_404() -> None:
    async def missing(exchange: Exchange) -> None:
        await exchange.answer(b'{"error":{"code":404}}\n', "404 Not Found")

    async with staged(missing, missing, health=UNWATCHED) as stage:
        await stage.b.close()
        said = await models(stage, target="/v1/models/org/none")
        assert (said.status, said.body) == (404, b'{"error":{"code":404}}\n')
