"""Conversations over real sockets: they stay where they are cached while that pays, and else go on elsewhere."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson
from fakes.engine import Exchange, either, stream
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.speeds import of_both
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Policy, Role

# So many that one turn is long, and one sequence fills the speculative backend.
ROUTING = {"policy": "overflow", "leave_at": 2, "affinity": {"min_cached_tokens": 1024}}
WORDS = "a word and another one, "


def turn(number: int, name: str = "first") -> bytes:
    """The body of a conversation's turn: some two thousand tokens more each time."""
    said = [{"role": "user", "content": f"{name} {at} {WORDS * 350}"} for at in range(number)]
    return orjson.dumps({"model": "m", "messages": said})


async def says(stage: Stage, body: bytes, *lines: str) -> Said:
    said = await ask(stage.app.port, request("/v1/chat/completions", body, *lines))
    assert said.status == 200
    return said


def went(said: Said) -> tuple[str | None, str | None]:
    return said.header("x-crossover-backend"), said.header("x-crossover-reason")


async def begun_on_baseline(stage: Stage, gate: asyncio.Event, body: bytes, *lines: str) -> None:
    """A conversation's first turn while others fill the speculative backend, which is free again afterwards."""
    async with RawClient(stage.app.port) as one, RawClient(stage.app.port) as two:
        for client in (one, two):
            await client.send(request(body=chat(stream=True)))
            await client.head()
        assert went(await says(stage, body, *lines)) == ("baseline", "overflow")
        gate.set()
        for client in (one, two):
            while await client.chunk():
                pass
    await until(lambda: not stage.in_flight)


def gated(gate: asyncio.Event) -> Any:
    async def script(exchange: Exchange) -> None:
        await (stream(exchange, gate=gate) if b'"stream":true' in exchange.request.body else either(exchange))

    return script


async def test_the_turns_of_a_conversation_go_to_one_backend_and_others_elsewhere() -> None:
    gate = asyncio.Event()
    async with staged(gated(gate), routing=ROUTING) as stage:
        await begun_on_baseline(stage, gate, turn(1))
        for number in range(2, 5):
            said = await says(stage, turn(number))
            assert went(said) == ("baseline", "affinity")
            assert stage.app.desk.ring[-1].decision.because.baseline_cached > 0
            assert "cached" not in (said.header("x-crossover-because") or ""), (
                "told to a client, prompts can be guessed"
            )
        assert went(await says(stage, turn(4, "second"))) == ("speculative", "room")
        assert stage.b.requests[-1].body == turn(4)


async def test_a_conversation_without_affinity_goes_where_the_policy_says_each_time() -> None:
    gate = asyncio.Event()
    async with staged(gated(gate), routing={**ROUTING, "affinity": {"enabled": False}}) as stage:
        await begun_on_baseline(stage, gate, turn(1))
        assert went(await says(stage, turn(2))) == ("speculative", "room")


async def test_the_other_backend_serves_when_home_dies_and_is_home_from_then_on() -> None:
    gate = asyncio.Event()
    async with staged(gated(gate), routing=ROUTING) as stage:
        await begun_on_baseline(stage, gate, turn(1))
        await stage.b.close()
        assert went(await says(stage, turn(2)))[0] == "speculative"
        await until(lambda: not stage.app.desk.snapshot().of(Role.BASELINE).eligible)
        await stage.b.listen()
        await until(lambda: stage.app.desk.snapshot().of(Role.BASELINE).eligible)
        said = await says(stage, turn(3))
        assert went(said) == ("speculative", "affinity")
        # It has begun anew, so that nothing is cached there.
        assert stage.app.desk.ring[-1].decision.because.baseline_cached == 0


async def test_an_engine_that_tells_another_start_has_forgotten_its_conversations() -> None:
    gate = asyncio.Event()
    async with staged(gated(gate), routing=ROUTING) as stage:
        await begun_on_baseline(stage, gate, turn(1))
        desk, baseline = stage.app.desk, stage.app.desk.backend(Role.BASELINE)
        assert baseline.facts is not None
        assert baseline.shelf.held_tokens > 0
        desk.learn_facts(baseline, baseline.facts)
        assert baseline.shelf.held_tokens > 0
        desk.learn_facts(baseline, type(baseline.facts)(version="0.5.24"))
        assert baseline.shelf.held_tokens == 0
        assert went(await says(stage, turn(2))) == ("speculative", "room")


async def test_a_prompt_that_cannot_be_read_stays_by_the_name_of_its_conversation() -> None:
    gate = asyncio.Event()
    body = turn(1).replace(b"first", b"x" * (3 << 20))
    async with staged(gated(gate), routing=ROUTING) as stage:
        await begun_on_baseline(stage, gate, body, "x-smg-routing-key: k")
        assert went(await says(stage, body, "x-smg-routing-key: k")) == ("baseline", "affinity")
        assert went(await says(stage, body, "x-smg-routing-key: other")) == ("speculative", "room")


async def test_what_an_engine_reports_as_cached_corrects_what_is_believed() -> None:
    async def forgetful(exchange: Exchange) -> None:
        cached = 1500 if len(exchange.request.body) < len(turn(2)) else 0
        usage = {"prompt_tokens": 2000, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        await exchange.answer(orjson.dumps({"id": "x", "choices": [choice], "usage": usage}))

    async with staged(forgetful, routing=ROUTING) as stage:
        shelf = stage.app.desk.backend(Role.SPECULATIVE).shelf
        before = shelf.room_tokens
        for number in (1, 1, 2, 3):
            await says(stage, turn(number))
        await until(lambda: shelf.room_tokens < before)


async def test_prompts_that_an_engine_refuses_leave_what_it_holds_alone() -> None:
    async def script(exchange: Exchange) -> None:
        bad = b"refuse" in exchange.request.body
        await (exchange.answer(b"{}", "400 Bad Request") if bad else either(exchange))

    cache = {"min_cached_tokens": 1024, "cache_tokens": 8192}
    async with staged(script, script, routing={**ROUTING, "affinity": cache}) as stage:
        await says(stage, turn(2))
        shelf = stage.app.desk.backend(Role.SPECULATIVE).shelf
        held = shelf.held_tokens
        assert held > 0
        for number in range(9):
            said = await ask(stage.app.port, request("/v1/chat/completions", turn(2, f"refuse {number}")))
            assert said.status == 400
        assert (shelf.held_tokens, shelf.taken_in) == (held, held)
        assert went(await says(stage, turn(3))) == ("speculative", "affinity")


async def test_requests_that_an_engine_refuses_are_no_demand() -> None:
    async def script(exchange: Exchange) -> None:
        bad = b"refuse" in exchange.request.body
        await (exchange.answer(b"{}", "400 Bad Request") if bad else either(exchange))

    async with staged(script, script) as stage:
        desk = stage.app.desk
        desk.rules = replace(desk.rules, policy=Policy.MARGINAL, curves=of_both({1: 100.0}, {1: 60.0}))
        for _ in range(9):
            assert (await ask(stage.app.port, request("/v1/chat/completions", turn(1, "refuse")))).status == 400
        assert desk.regime.demand.tok_s == 0.0
        await says(stage, turn(1))
        assert desk.regime.demand.tok_s > 0.0
