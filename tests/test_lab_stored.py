"""Stored responses of embedded engines over HTTP: only the engine that made one knows it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import Role

FAST = EngineOptions(role=Role.SPECULATIVE, time_scale=0.02, health_latency_s=0.0, context_length=2048)
ASK = {"model": "m", "input": "hello there", "max_output_tokens": 12}


class Talk:
    """A client of one engine."""

    def __init__(self, engine: EmbeddedEngine, http: aiohttp.ClientSession) -> None:
        self.engine = engine
        self._http = http

    async def asked(self, **more: object) -> tuple[int, Any]:
        """Status and JSON of one more response."""
        async with self._http.post(f"{self.engine.url}/v1/responses", json={**ASK, **more}) as response:
            return response.status, await response.json()

    async def streamed(self) -> dict[str, Any]:
        """The response that a stream ends with."""
        async with self._http.post(f"{self.engine.url}/v1/responses", json={**ASK, "stream": True}) as response:
            last = (await response.read()).strip().rpartition(b"data: ")[2]
        said: dict[str, Any] = orjson.loads(last)["response"]
        return said

    async def stored(self, response_id: str, method: str = "GET", path: str = "") -> tuple[int, Any]:
        """What is said of a stored one."""
        async with self._http.request(method, f"{self.engine.url}/v1/responses/{response_id}{path}") as response:
            return response.status, await response.json()


@asynccontextmanager
async def talks(count: int) -> AsyncIterator[list[Talk]]:
    engines = [EmbeddedEngine(FAST) for _ in range(count)]
    try:
        for engine in engines:
            await engine.start()
        async with aiohttp.ClientSession() as http:
            yield [Talk(engine, http) for engine in engines]
    finally:
        for engine in engines:
            await engine.stop()


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with talks(1) as (one,):
        yield one


async def test_a_response_is_read_again_as_it_was_answered(talk: Talk) -> None:
    _, whole = await talk.asked()
    streamed = await talk.streamed()

    assert await talk.stored(whole["id"]) == (200, whole)
    assert await talk.stored(streamed["id"]) == (200, streamed)


async def test_only_the_engine_that_made_a_response_knows_it() -> None:
    async with talks(2) as (one, other):
        _, made = await one.asked()

        status, said = await other.stored(made["id"])
        assert (status, said["error"]["message"]) == (404, f"Response with id '{made['id']}' not found.")
        assert await other.asked(previous_response_id=made["id"]) == (status, said)
        assert (await one.asked(previous_response_id=made["id"]))[0] == 200


async def test_what_goes_on_with_a_response_has_all_that_was_said_as_its_prompt(talk: Talk) -> None:
    _, first = await talk.asked()
    _, second = await talk.asked(previous_response_id=first["id"])
    _, third = await talk.asked(previous_response_id=second["id"])

    prompts = [one["usage"]["input_tokens"] for one in (first, second, third)]
    turn = prompts[0] + first["usage"]["output_tokens"]
    # A token is so many bytes here, so that parts of one are lost where texts meet.
    assert prompts[1] - prompts[0] == pytest.approx(turn, abs=3)
    assert prompts[2] - prompts[1] == pytest.approx(turn, abs=3)


async def test_a_conversation_that_outgrows_the_context_is_refused(talk: Talk) -> None:
    _, long = await talk.asked(input="word " * 1200)

    status, said = await talk.asked(input="word " * 1200, previous_response_id=long["id"])

    assert (status, "context" in said["error"]["message"]) == (400, True)


async def test_what_was_not_to_be_stored_is_not(talk: Talk) -> None:
    _, made = await talk.asked(store=False)

    assert (await talk.stored(made["id"]))[0] == 404


async def test_an_engine_that_died_has_lost_them(talk: Talk) -> None:
    _, made = await talk.asked()
    talk.engine.kill()
    await talk.engine.open_door()

    assert (await talk.stored(made["id"]))[0] == 404


@pytest.mark.parametrize(("response_id", "status"), [("resp_unknown", 404), ("other", 400)])
async def test_an_unknown_id_and_one_of_no_response_are_refused(talk: Talk, response_id: str, status: int) -> None:
    for found in (
        await talk.stored(response_id),
        await talk.stored(response_id, "POST", "/cancel"),
        await talk.asked(previous_response_id=response_id),
    ):
        assert (found[0], found[1]["error"]["type"], found[1]["error"]["code"]) == (
            status,
            "invalid_request_error",
            status,
        )


async def test_a_response_that_has_ended_cannot_be_cancelled(talk: Talk) -> None:
    _, made = await talk.asked()

    status, said = await talk.stored(made["id"], "POST", "/cancel")

    assert (status, said["error"]["message"]) == (400, "Cannot cancel a synchronous response.")
