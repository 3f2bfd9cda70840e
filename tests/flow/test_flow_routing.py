"""Where requests go, seen from outside: by policy, wish and rule, counted on every route that generates."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from fakes.engine import Exchange, plain, stream
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role

SPECULATIVE, BASELINE = Role.SPECULATIVE.value, Role.BASELINE.value
# Decisions on the bare count, at once: how smoothing and dwell behave is tested where time is a number.
PROMPT = {"smoothing_s": 0.0, "min_dwell_s": 0.0, "leave_at": 4, "enter_at": 2}


class Gate:
    """An engine that says one word of each stream and goes on when the gate opens."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if b'"stream":true' in exchange.request.body:
            await stream(exchange, gate=self.opened)
        else:
            await self.opened.wait()
            await plain(exchange)


class Crowd:
    """Clients whose streams are under way."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.clients: list[RawClient] = []

    async def join(self, *lines: str, target: str = "/v1/chat/completions", body: bytes | None = None) -> str | None:
        """One more stream; the role that its answer's head names."""
        client = RawClient(self.stage.app.port)
        await client.__aenter__()
        self.clients.append(client)
        await client.send(request(target, body or chat(stream=True), *lines))
        return (await client.head()).header("x-crossover-backend")

    async def leave(self, count: int) -> None:
        """The newest clients leave, and are no longer counted."""
        wanted = self.stage.in_flight - count
        for _ in range(count):
            self.clients.pop().leave()
        await until(lambda: self.stage.in_flight == wanted)


@contextlib.asynccontextmanager
async def crowded(**routing: Any) -> AsyncIterator[tuple[Stage, Crowd]]:
    gate = Gate()
    async with staged(a=gate, b=gate, routing={**PROMPT, **routing}) as stage:
        crowd = Crowd(stage)
        yield stage, crowd
        gate.opened.set()
        for client in crowd.clients:
            client.leave()


async def decisions(stage: Stage) -> list[dict[str, Any]]:
    """The newest decisions, as the operators' port tells them."""
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{stage.app.admin_port}/decisions")
        recent: list[dict[str, Any]] = (await answer.json())["decisions"]
        return recent


# ---------------------------------------------------------------- policies


async def test_threshold_serves_low_load_on_speculative_and_high_load_on_baseline() -> None:
    async with crowded(policy="threshold") as (stage, crowd):
        went = [await crowd.join() for _ in range(8)]
        # The fourth brings the count to leave_at, and the regime changes with it.
        assert went == [SPECULATIVE] * 4 + [BASELINE] * 4
        await crowd.leave(5)
        assert await crowd.join() == BASELINE  # three in flight: between the thresholds nothing changes
        await crowd.leave(2)
        assert await crowd.join() == SPECULATIVE
        assert stage.app.desk.regime.role is Role.SPECULATIVE


async def test_overflow_fills_speculative_and_sends_the_rest_to_baseline() -> None:
    async with crowded(policy="overflow") as (_, crowd):
        went = [await crowd.join() for _ in range(7)]
        assert went == [SPECULATIVE] * 4 + [BASELINE] * 3
        await crowd.leave(7)
        assert await crowd.join() == SPECULATIVE


@pytest.mark.parametrize("pin", [SPECULATIVE, BASELINE])
async def test_pinned_sends_everything_to_one_role(pin: str) -> None:
    async with crowded(policy="pinned", pin=pin) as (_, crowd):
        assert {await crowd.join() for _ in range(6)} == {pin}


async def test_a_pinned_backend_that_is_gone_fails_over() -> None:
    async with staged(routing={"policy": "pinned", "pin": BASELINE}) as stage:
        await stage.b.close()
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend")) == (200, SPECULATIVE)
        assert said.header("x-crossover-reason") in ("failover", "only_eligible")


async def test_the_operators_pin_overrules_policy_and_header() -> None:
    async with staged(routing={"policy": "pinned", "pin": SPECULATIVE, "allow_header": True}) as stage:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.app.admin_port}") as admin:
            await admin.post("/pin", json={"role": BASELINE})
            said = await stage.ask(f"x-crossover-backend: {SPECULATIVE}")
            assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == (BASELINE, "operator_pin")
            await admin.post("/pin", json={"role": None})
        assert (await stage.ask()).header("x-crossover-backend") == SPECULATIVE


async def test_a_drained_backend_finishes_its_streams_and_gets_no_new_ones() -> None:
    async with crowded(policy="overflow") as (stage, crowd):
        assert await crowd.join() == SPECULATIVE
        async with aiohttp.ClientSession(f"http://127.0.0.1:{stage.app.admin_port}") as admin:
            await admin.post("/drain", json={"role": SPECULATIVE})
            assert await crowd.join() == BASELINE
            assert stage.a.open == 1
            await admin.post("/drain", json={"role": SPECULATIVE, "draining": False})
        assert await crowd.join() == SPECULATIVE


# ---------------------------------------------------------------- wishes and rules


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_client_chooses_its_backend_only_where_it_may(allowed: bool) -> None:
    async with staged(routing={"allow_header": allowed}) as stage:
        said = await stage.ask(f"x-crossover-backend: {BASELINE}")
        assert said.header("x-crossover-backend") == (BASELINE if allowed else SPECULATIVE)
        assert stage.a.requests == [] if allowed else stage.b.requests == []


async def test_a_wish_for_no_such_backend_is_no_wish() -> None:
    async with staged(routing={"allow_header": True}) as stage:
        assert (await stage.ask("x-crossover-backend: fastest")).header("x-crossover-backend") == SPECULATIVE


RULES = [{"when": "constrained", "role": BASELINE}, {"when": "long_prompt", "role": BASELINE, "min_prompt_bytes": 9000}]


@pytest.mark.parametrize(
    ("more", "went"),
    [
        ({}, SPECULATIVE),
        ({"response_format": {"type": "json_object"}}, BASELINE),
        ({"response_format": {"type": "text"}}, SPECULATIVE),
        ({"tool_choice": "required", "tools": []}, BASELINE),
        ({"regex": "a+"}, BASELINE),
        ({"padding": "x" * 9000}, BASELINE),
        ({"padding": "x" * 8000}, SPECULATIVE),
    ],
)
async def test_a_rule_sends_its_kind_of_request_to_its_role(more: dict[str, Any], went: str) -> None:
    async with staged(routing={"rules": RULES}) as stage:
        said = await ask(stage.app.port, request(body=chat(**more)))
        assert said.header("x-crossover-backend") == went
        assert said.header("x-crossover-reason") == ("rule" if went == BASELINE else "room")


# ---------------------------------------------------------------- what is said of a decision


def told(said: Said) -> dict[str, str | None]:
    names = ("backend", "reason", "in-flight", "because")
    return {name: said.header(f"x-crossover-{name}") for name in names}


async def test_an_answer_says_where_it_comes_from_and_why() -> None:
    async with crowded(policy="threshold") as (stage, crowd):
        for _ in range(5):
            await crowd.join()
        assert told(await crowd_head(stage)) == {
            "backend": BASELINE,
            "reason": "regime",
            "in-flight": "speculative=4, baseline=1",
            "because": "policy=threshold, regime=baseline, smoothed=5.00, enter_at=2, leave_at=4",
        }


async def crowd_head(stage: Stage) -> Said:
    async with RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        return await client.head()


async def test_the_ring_of_decisions_tells_the_newest_first_with_its_numbers() -> None:
    async with staged(routing={"policy": "overflow"}) as stage:
        await stage.ask("x-request-id: first")
        await ask(stage.app.port, request("/v1/completions", b'{"prompt":["a","b"]}', "x-request-id: second"))
        second, first = await decisions(stage)
        assert (first["request_id"], first["route"], first["weight"]) == ("first", "/v1/chat/completions", 1)
        assert (second["request_id"], second["route"], second["weight"]) == ("second", "/v1/completions", 2)
        assert (first["role"], first["reason"], first["attempt"]) == (SPECULATIVE, "room", 1)
        assert first["because"]["speculative_in_flight"] == 0
        assert 0 < first["at_s"] <= second["at_s"]


async def test_a_failover_is_a_decision_of_its_own() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"no", "500 Internal Server Error")

    async with staged(a=fail) as stage:
        assert (await stage.ask()).header("x-crossover-reason") == "failover"
        second, first = await decisions(stage)
        assert [(each["attempt"], each["role"]) for each in (first, second)] == [(1, SPECULATIVE), (2, BASELINE)]
