"""Questions that occupy no engine are answered by whichever lives, and never counted."""

import asyncio
import gzip

import pytest
from fakes.engine import Exchange
from fakes.leaping import leaping
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

SLOW_PROBES = {"interval_s": 300}
LIST = b'{"object":"list","data":[{"id":"m","object":"model","created":%d,"owned_by":"sglang","max_model_len":4096}]}'


def listing(created: int) -> "Lister":
    return Lister(LIST % created)


class Lister:
    """Answers each question with one body, and HEAD with its length alone."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.request.method == "HEAD":
            await exchange.head("200 OK", "content-type: application/json", f"content-length: {len(self.body)}")
        else:
            await exchange.answer(self.body)


async def get(stage: Stage, target: str = "/v1/models", *lines: str) -> Said:
    return await ask(stage.app.port, request(target, b"", *lines, method="GET"))


async def test_model_list_passes_byte_for_byte() -> None:
    async with staged(a=listing(1), b=listing(2), health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 2


async def test_packed_model_list_is_not_remembered() -> None:
    """The client that asks when both are down may not be able to unpack it."""

    async def packed(exchange: Exchange) -> None:
        await exchange.answer(gzip.compress(b"{}"), "200 OK", "content-encoding: gzip")

    async with staged(a=packed, b=packed, health=SLOW_PROBES) as stage:
        await get(stage, "/v1/models", "accept-encoding: gzip")
        await stage.a.close()
        await stage.b.close()
        assert (await get(stage)).status == 502


async def test_failed_model_list_is_not_remembered() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "500 Internal Server Error")

    async with staged(a=fail, b=fail, health=SLOW_PROBES) as stage:
        await get(stage)
        await stage.a.close()
        await stage.b.close()
        assert (await get(stage)).status == 502


@pytest.mark.parametrize("code", ["500 Internal Server Error", "503 Service Unavailable"])
async def test_model_list_comes_from_the_other_engine_when_one_fails_it(code: str) -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"{}", code)

    async with staged(a=listing(1), b=fail, health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 1


async def test_engines_own_error_passes_when_both_fail_a_question() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"oh", "500 Internal Server Error")

    async with staged(a=fail, b=fail, health=SLOW_PROBES) as stage:
        said = await get(stage)
        assert (said.status, said.body) == (500, b"oh")


async def test_unknown_model_is_the_engines_404() -> None:
    async def missing(exchange: Exchange) -> None:
        await exchange.answer(b'{"error":{"code":404}}', "404 Not Found")

    async with staged(a=missing, b=missing, health=SLOW_PROBES) as stage:
        said = await get(stage, "/v1/models/none")
        assert (said.status, said.body) == (404, b'{"error":{"code":404}}')


async def test_head_has_the_length_and_no_body() -> None:
    async with staged(a=listing(1), b=listing(2)) as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/models", method="HEAD") + request("/v1/unheard-of", method="GET"))
        said = await client.answer(bodiless=True)
        assert said.header("content-length") == str(len(LIST % 2)) and (await client.head()).status == 404


async def test_question_goes_where_the_client_says() -> None:
    async with staged(a=listing(1), b=listing(2), routing={"allow_header": True}) as stage:
        assert (await get(stage, "/v1/models", "x-crossover-backend: speculative")).body == LIST % 1


async def test_questions_are_never_counted() -> None:
    gate, asked = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        asked.set()
        await gate.wait()
        await exchange.answer(b"{}")

    async with staged(a=slow, b=slow, health=SLOW_PROBES) as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/models", method="GET"))
        await asked.wait()
        assert stage.in_flight == 0
        gate.set()
        await client.answer()


async def test_engine_socket_closes_when_the_client_leaves_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.inform.ANSWER_WITHIN_S", 600.0)  # which would close it too
    asked, closed = asyncio.Event(), asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()
        closed.set()

    async with staged(a=slow, b=slow, health=SLOW_PROBES) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request("/v1/models", method="GET"))
            await asked.wait()
        await until(closed.is_set, what="the end of the engine's connection")


@leaping
async def test_hung_engine_is_given_up_for_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.inform.ANSWER_WITHIN_S", 0.05)

    async def hang(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(a=listing(1), b=hang, health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 1


@leaping
async def test_engine_that_hangs_in_its_answer_is_given_up_for_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.inform.ANSWER_WITHIN_S", 0.05)

    async def half(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 100")
        await exchange.send(b"{")
        await exchange.gone()

    async with staged(a=listing(1), b=half, health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 1


async def test_engine_that_breaks_off_its_answer_is_given_up_for_the_other_one() -> None:
    async def half(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-length: 100")
        await exchange.send(b"{")
        exchange.writer.close()

    async with staged(a=listing(1), b=half, health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 1


async def test_answer_to_a_question_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.inform.ANSWER_MAX_BYTES", 1 << 20)

    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head("application/json")
        while True:
            await exchange.chunk(b"x" * 65536)

    async with staged(a=listing(1), b=endless, health=SLOW_PROBES) as stage:
        assert (await get(stage)).body == LIST % 1


async def test_question_with_a_body_reaches_the_engine_unchanged() -> None:
    async with staged(a=listing(1), b=listing(2), health=SLOW_PROBES) as stage:
        await ask(stage.app.port, request("/v1/tokenize", b'{ "prompt": "hi" }'))
        assert stage.b.requests[0].body == b'{ "prompt": "hi" }'


async def test_engines_key_goes_with_a_question() -> None:
    async with staged(a=listing(1), b=listing(2), health=SLOW_PROBES) as stage:
        await get(stage, "/v1/models", "authorization: Bearer mine")
        assert stage.b.requests[0].header("authorization") == "Bearer mine"


async def test_answer_to_a_question_tells_who_gave_it() -> None:
    async with staged(a=listing(1), b=listing(2)) as stage:
        said = await get(stage, "/v1/models", "x-request-id: q-1")
        assert (said.header("x-crossover-backend"), said.header("x-request-id")) == ("baseline", "q-1")


@pytest.mark.parametrize("target", ["/v1/completions", "/v1/responses", "/v1/messages", "/generate", "/v1/embeddings"])
async def test_every_route_that_generates_is_counted(target: str) -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        began.set()
        await gate.wait()
        await exchange.answer(b"{}")

    async with staged(a=held) as stage, RawClient(stage.app.port) as client:
        await client.send(request(target, chat()))
        await began.wait()
        assert stage.in_flight == 1
        gate.set()
        await client.answer()
        await until(lambda: stage.in_flight == 0, what="in flight back to zero")
