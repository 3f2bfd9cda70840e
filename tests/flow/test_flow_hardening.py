"""Hostile or broken partners, each of which once cost somebody else something."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from fakes.engine import Exchange, content, plain, stream
from fakes.raw import RawClient, chat, request
from fakes.stage import staged
from fakes.until import turns, until

from proxy.config import InvalidConfig, load
from proxy.model import Outcome
from proxy.routing.health import Evidence


async def test_upload_under_way_when_the_drain_begins_is_still_answered() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        whole = request(body=chat())
        await client.send(whole[:-5])
        await until(lambda: stage.app.relay.trips, what="the request at the relay")
        stage.app._front.leave()
        await client.send(whole[-5:])
        said = await client.answer()
        assert (said.status, said.whole, said.header("connection")) == (200, True, "close")


async def test_request_whose_head_is_coming_when_the_drain_begins_is_still_answered() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        whole = request(body=chat())
        await client.send(whole[:20])
        await until(lambda: any(each._reader.unfinished_bytes for each in stage.app._front.heads), what="half a head")
        stage.app._front.leave()
        await client.send(whole[20:])
        said = await client.answer()
        assert (said.status, said.whole, said.header("connection")) == (200, True, "close")


async def test_connection_that_comes_as_the_drain_begins_is_answered() -> None:
    async with staged() as stage:
        front = stage.app._front
        for turn in range(4):
            async with RawClient(stage.app.port) as client:
                await turns(turn)
                front.leave()
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await client.send(request(body=chat()))
                    assert (await client.answer()).status == 200


async def test_client_that_takes_nothing_of_its_answer_is_dropped_after_its_limit() -> None:
    async def much(exchange: Exchange) -> None:
        await exchange.stream_head()
        for _ in range(400):
            await exchange.event(content("x" * 50_000))
        await exchange.end()

    async with staged(much, listen={"unread_timeout_s": 0.2}) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        facts = await stage.ended_one()
        assert facts.outcome is Outcome.CLIENT_GONE_IN_STREAM


async def test_put_is_not_sent_again_behind_our_back() -> None:
    async def die(exchange: Exchange) -> None:
        if len(runs) == 0:
            runs.append("warm")
            return await plain(exchange)
        runs.append("died")
        await asyncio.sleep(0.2)  # sleeps: later than a stale connection shows
        exchange.reset()
        return None

    runs: list[str] = []
    retries = {"max_ratio": 0.0, "reserve": 0}
    async with staged(die, retries=retries) as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(request("/generate", b'{"text": "x"}', method="PUT"))
            said = await client.answer()
        assert (said.status, runs) == (502, ["warm", "died"])


async def test_answer_that_nobody_asked_for_goes_to_nobody() -> None:
    async def twice(exchange: Exchange) -> None:
        await plain(exchange)
        if len(stage.a.requests) == 1:
            await exchange.answer(b'{"of": "somebody else"}')
            sent.set()

    sent = asyncio.Event()
    async with staged(twice) as stage:
        await stage.ask()
        await sent.wait()
        await turns(50)
        said = await stage.ask()
        assert said.status == 200
        assert b"somebody else" not in said.body


async def test_stream_to_an_http_1_0_client_ends_with_the_connection_even_if_it_asked_to_keep_it() -> None:
    async with staged(stream) as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/chat/completions", chat(stream=True), "Connection: keep-alive", version="1.0"))
        assert b"[DONE]" in await client.rest()


async def test_client_that_sends_dozens_of_requests_before_its_answer_is_given_up() -> None:
    async def never(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(never) as stage, RawClient(stage.app.port) as client:
        with contextlib.suppress(ConnectionError):
            await client.send(request(body=chat()) * 40)
        await client.rest()
        await until(lambda: stage.a.open == 0, what="the engine freed")


async def test_refusal_of_a_request_that_waits_to_send_its_body_closes_the_connection() -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        lines = ("POST /v1/nothing HTTP/1.1", "host: x", "content-length: 100", "expect: 100-continue", "", "")
        await client.send("\r\n".join(lines).encode())
        said = await client.answer()
        assert (said.status, said.header("connection")) == (404, "close")


async def test_control_character_in_an_engines_header_costs_the_header_and_not_the_answer() -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "200 OK", "x-odd: a\x7fb", "x-plain: yes")

    async with staged(odd) as stage:
        said = await stage.ask()
        assert (said.status, said.header("x-odd"), said.header("x-plain")) == (200, None, "yes")


@pytest.mark.parametrize(
    "body", [b'{"n": 3, "x": NaN}', b'{"n": 3, "x": "\\ud83d"}', b'{"n": 3, "x": 1' + b"0" * 40 + b"}"]
)
async def test_body_that_only_lenient_parsers_read_is_weighed_all_the_same(body: bytes) -> None:
    async with staged() as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=body))
        await client.answer()
        assert (await stage.ended_one()).traits.weight == 3


def test_configuration_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "crossover.yaml"
    os.mkfifo(pipe)
    with pytest.raises(InvalidConfig, match="no regular file"):
        load(pipe, {})


async def test_stream_that_says_nothing_for_long_is_not_withheld_to_its_end() -> None:
    async def mutter(exchange: Exchange) -> None:
        await exchange.stream_head()
        while not seen.is_set():
            await exchange.event({"choices": [{"index": 0, "delta": {"invented": "x"}}]})
            await asyncio.sleep(0.02)  # sleeps: events come faster than the peek gives up
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    seen = asyncio.Event()
    async with staged(mutter) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        assert (await client.head()).status == 200
        assert await client.chunk()
        seen.set()
        while await client.chunk():
            pass


async def test_tokens_on_a_running_stream_overrule_probes_that_hang() -> None:
    async def talk(exchange: Exchange) -> None:
        await exchange.stream_head()
        while not over.is_set():
            await exchange.event(content("w"))
            await turns()
        await exchange.event(content("", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()

    over = asyncio.Event()
    async with staged(talk) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await client.head()
        await client.chunk()
        backend = stage.app.desk.backends[0]
        for _ in range(5):
            stage.app.desk.observe_health(backend, Evidence.MISS)
        assert backend.health.up is False
        await until(lambda: backend.health.up, what="the backend up again")
        over.set()
        while await client.chunk():
            pass
