"""H13: an engine that says it is busy is not broken: the other serves, or its word passes, and nothing is shut off."""

import asyncio
from dataclasses import dataclass, field

import pytest
from fakes.engine import Exchange, Script, either
from fakes.failing import EITHER_ROLE, EVERY_FORM, EVERY_STREAM, PLAIN_CHAT, UNPROBED, Form, hang, pinned, refusing
from fakes.leaping import leaping, passed_s
from fakes.raw import RawClient, Said, ask, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import CircuitState, Role

MAX_FAILURES = 5
BUSY_BODY = b'{"error":{"message":"The request queue is full.","type":"overloaded_error","param":null,"code":503}}'
LIMITED_BODY = b'{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":429}}'
BUSY_HEADERS = {"retry-after": "2"}
LIMITED_HEADERS = {"retry-after-ms": "1500", "x-ratelimit-limit-requests": "60", "x-ratelimit-reset-requests": "2s"}


@dataclass
class Busy:
    """Says busy for five seconds after its first request, then serves."""

    limited: bool
    good: Script = either
    until_s: float = field(default=float("inf"))

    @property
    def said(self) -> tuple[int, bytes, dict[str, str]]:
        return (429, LIMITED_BODY, LIMITED_HEADERS) if self.limited else (503, BUSY_BODY, BUSY_HEADERS)

    async def __call__(self, exchange: Exchange) -> None:
        self.until_s = min(self.until_s, passed_s() + 5.0)
        if passed_s() >= self.until_s:
            return await self.good(exchange)
        code, body, headers = self.said
        return await exchange.answer(body, f"{code} Busy", *(f"{name}: {value}" for name, value in headers.items()))


LIMITED = pytest.mark.parametrize("limited", [False, True], ids=["503", "429"])


@LIMITED
@EVERY_FORM
@leaping
async def test_h13_other_engine_serves_while_the_first_is_busy(limited: bool, form: Form) -> None:
    async with staged(a=Busy(limited, form.serve), b=form.serve, health=UNPROBED) as stage:
        before = stage.circuit()
        for _ in range(12):
            assert form.is_good(await form.ask(stage))
            await asyncio.sleep(0.4)
        assert stage.circuit() == before


@LIMITED
@EVERY_FORM
@leaping
async def test_h13_engines_own_word_passes_unchanged_when_both_are_busy(limited: bool, form: Form) -> None:
    busy = Busy(limited, form.serve)
    async with staged(a=busy, b=busy, health=UNPROBED) as stage:
        said = await form.ask(stage)
        code, body, headers = busy.said
        assert (said.status, said.body) == (code, body)
        assert {name: said.header(name) for name in headers} == headers


@LIMITED
@EITHER_ROLE
@EVERY_FORM
@leaping
async def test_h13_busy_engines_word_passes_unchanged_when_the_others_port_is_closed(
    limited: bool, role: Role, form: Form
) -> None:
    """Whichever is asked first: what the busy one said is kept while the other is tried in vain."""
    busy = Busy(limited)
    async with staged(a=busy, b=busy, routing=pinned(role), health=UNPROBED) as stage:
        gone = stage.b if role is Role.SPECULATIVE else stage.a
        await gone.close()
        said = await form.ask(stage)
        code, body, headers = busy.said
        assert (said.status, said.body, said.header("content-type")) == (code, body, "application/json")
        assert {name: said.header(name) for name in headers} == headers
        await gone.listen()


@LIMITED
@EITHER_ROLE
@leaping
async def test_h13_requests_succeed_a_second_after_the_engines_have_recovered(limited: bool, role: Role) -> None:
    busy = Busy(limited)
    async with staged(a=busy, b=busy, routing=pinned(role), health=UNPROBED) as stage:
        for _ in range(20):
            assert (await stage.ask()).status == busy.said[0]
            await asyncio.sleep(0.2)
        await asyncio.sleep(busy.until_s + 1.0 - passed_s())
        said = await stage.ask()
        assert (said.status, said.header("x-crossover-backend")) == (200, role.value)
        assert stage.circuit(role).state is CircuitState.CLOSED


@pytest.mark.parametrize("code", [429, 503])
@EVERY_STREAM
@leaping
async def test_h13_busy_inside_a_200_is_served_by_the_other_and_opens_nothing(code: int, form: Form) -> None:
    async with staged(a=refusing(form, code), b=form.serve, health=UNPROBED) as stage:
        before = stage.circuit()
        for _ in range(MAX_FAILURES + 1):
            assert form.is_good(await form.ask(stage))
        assert (len(stage.a.requests), stage.circuit()) == (MAX_FAILURES + 1, before)


async def refused_by_us(stage: Stage, target: str) -> Said:
    async with RawClient(stage.app.port) as first, RawClient(stage.app.port) as second:
        for client in (first, second):
            await client.send(PLAIN_CHAT.request())
        await until(lambda: stage.in_flight == 2, what="both engines being taken")
        return await ask(stage.app.port, request(target, PLAIN_CHAT.body))


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize(("queue", "code"), [({"max_waiting": 0}, 429), ({"max_wait_s": 1.0}, 503)])
@leaping
async def test_h13_our_own_refusal_says_when_to_come_again_in_the_dialects_shape(
    target: str, queue: dict[str, float], code: int
) -> None:
    async with staged(a=hang, b=hang, max_in_flight=1, queue=queue, health=UNPROBED) as stage:
        said = await refused_by_us(stage, target)
        error = said.json["error"]
        assert isinstance(error, dict)
        assert (said.status, said.header("retry-after")) == (code, "1")
        assert {"message", "type"} <= set(error)
        assert ("param" in error and "code" in error) or said.json["type"] == "error"
