"""Requests that name state inside one engine go to that engine, and never to whichever happens to be chosen."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest
from fakes.engine import Exchange, FakeEngine, Script
from fakes.proxy import running, settings, url
from fakes.raw import RawClient, Said, ask, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Role

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SESSION = {"model": "m", "messages": [], "session_params": {"id": "s"}}
NAMING_STATE: list[tuple[str, dict[str, Any]]] = [
    (CHAT, SESSION),
    (RESPONSES, {"model": "m", "input": "x", "previous_response_id": "resp_1"}),
]


@pytest.mark.parametrize(("path", "body"), NAMING_STATE)
async def test_a_request_that_names_state_is_refused_with_the_mend_when_nobody_is_known_to_have_it(
    path: str, body: dict[str, object]
) -> None:
    async with (
        FakeEngine() as speculative,
        FakeEngine(role="baseline") as baseline,
        running(settings(speculative.url, baseline.url)) as app,
        aiohttp.ClientSession() as client,
        client.post(url(app, path), json=body) as answer,
    ):
        error = (await answer.json())["error"]
        assert (answer.status, error["code"]) == (400, "session_unrouted")
        assert "{when: session, role: baseline}" in error["message"]
        assert speculative.requests == baseline.requests == []


async def test_a_rule_sends_every_request_that_names_unknown_state_to_one_backend() -> None:
    rules = {"rules": [{"when": "session", "role": "baseline"}]}
    async with (
        FakeEngine() as speculative,
        FakeEngine(role="baseline") as baseline,
        running(settings(speculative.url, baseline.url, routing=rules)) as app,
        aiohttp.ClientSession() as client,
    ):
        for path, body in NAMING_STATE:
            async with client.post(url(app, path), json=body) as answer:
                assert answer.headers["x-crossover-backend"] == "baseline"
        assert speculative.requests == []


async def test_a_pinned_proxy_needs_no_rule() -> None:
    async with (
        FakeEngine() as speculative,
        FakeEngine(role="baseline") as baseline,
        running(settings(speculative.url, baseline.url, routing={"policy": "pinned"})) as app,
        aiohttp.ClientSession() as client,
        client.post(url(app, CHAT), json=NAMING_STATE[0][1]) as answer,
    ):
        assert answer.status == 200


# ---------------------------------------------------------------- stored responses


def storing(name: str, *, gate: asyncio.Event | None = None) -> Script:
    """An engine that stores what it answers as NAME_1, NAME_2 and so on, and knows nothing else by its id."""
    made: list[str] = []

    async def script(exchange: Exchange) -> None:
        path, body = exchange.request.target, exchange.request.body
        if path.startswith(f"{RESPONSES}/"):
            known = path.removeprefix(f"{RESPONSES}/").partition("?")[0].removesuffix("/cancel") in made
            return await exchange.answer(b'{"of":"%b"}' % name.encode(), "200 OK" if known else "404 Not Found")
        made.append(f"{name}_{len(made) + 1}")
        response = {"id": made[-1], "object": "response", "status": "completed", "usage": {"input_tokens": 3}}
        if not orjson.loads(body).get("stream"):
            return await exchange.answer(orjson.dumps(response))
        await exchange.stream_head()
        await exchange.chunk(event("response.created", response={**response, "status": "in_progress"}))
        await exchange.chunk(event("response.output_text.delta", delta="hi"))
        if gate is not None:
            await gate.wait()
        await exchange.chunk(event("response.completed", response=response))
        return await exchange.end()

    return script


def event(kind: str, **more: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **more}))


async def respond(stage: Stage, *lines: str, **more: object) -> Said:
    body = orjson.dumps({"model": "m", "input": "x", **more})
    return await ask(stage.app.port, request(RESPONSES, body, *lines))


async def look(stage: Stage, path: str, method: str = "GET") -> Said:
    return await ask(stage.app.port, request(f"{RESPONSES}/{path}", b"", method=method))


# By it a client says where a conversation begins.
ASKING = {"policy": "overflow", "leave_at": 1, "allow_header": True}
ON_BASELINE = "x-crossover-backend: baseline"


async def test_a_conversation_by_response_ids_stays_with_the_engine_that_has_them() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        assert (await respond(stage, ON_BASELINE)).json["id"] == "b_1"
        assert (await respond(stage)).json["id"] == "a_1"
        for number in (2, 3):
            said = await respond(stage, previous_response_id=f"b_{number - 1}")
            assert said.json["id"] == f"b_{number}"
            assert said.header("x-crossover-reason") == "state"
        assert (await respond(stage, previous_response_id="a_1")).json["id"] == "a_2"


async def test_a_stored_response_is_read_and_cancelled_where_it_was_made() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        await respond(stage)
        await respond(stage, ON_BASELINE)
        for path, method in (("a_1", "GET"), ("a_1?include=all", "GET"), ("a_1/cancel", "POST")):
            before = len(stage.b.requests)
            said = await look(stage, path, method)
            assert (said.status, said.header("x-crossover-backend")) == (200, "speculative")
            assert len(stage.b.requests) == before
        assert (await look(stage, "b_1")).json == {"of": "b"}


async def test_a_response_is_known_while_its_stream_still_runs() -> None:
    gate = asyncio.Event()
    async with (
        staged(storing("a", gate=gate), storing("b"), routing=ASKING) as stage,
        RawClient(stage.app.port) as client,
    ):
        await client.send(request(RESPONSES, orjson.dumps({"model": "m", "input": "x", "stream": True})))
        await client.head()
        assert (await look(stage, "a_1/cancel", "POST")).status == 200
        assert stage.b.requests == []
        gate.set()
        while await client.chunk():
            pass


async def test_a_stored_response_of_which_the_proxy_knows_nothing_is_asked_of_both() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        # Made before this proxy came, as it were.
        await respond(stage)
        await respond(stage, ON_BASELINE)
        stage.app.desk.holdings._states.clear()
        assert (await look(stage, "a_1")).json == {"of": "a"}
        assert (await look(stage, "b_1")).json == {"of": "b"}
        assert (await look(stage, "nobody's")).status == 404


async def test_a_request_whose_engine_is_gone_is_told_so_and_goes_nowhere_else() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        await respond(stage)
        await stage.a.close()
        await until(lambda: not stage.app.desk.snapshot().of(Role.SPECULATIVE).eligible)
        before = len(stage.b.requests)
        for said in (await respond(stage, previous_response_id="a_1"), await look(stage, "a_1")):
            assert said.status == 503
            assert b"state_unreachable" in said.body
        assert len(stage.b.requests) == before


async def test_a_failed_attempt_is_not_made_again_where_the_state_is_not() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        await respond(stage)
        stage.a.script = failing
        said = await respond(stage, previous_response_id="a_1")
        assert said.status == 500
        assert stage.b.requests == []


async def failing(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"no"}}', "500 Internal Server Error")


async def test_an_engine_that_came_back_is_known_to_have_none_of_it() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING) as stage:
        await respond(stage)
        await stage.a.close()
        await until(lambda: not stage.app.desk.snapshot().of(Role.SPECULATIVE).eligible)
        await stage.a.listen()
        await until(lambda: stage.app.desk.snapshot().of(Role.SPECULATIVE).eligible)
        said = await respond(stage, previous_response_id="a_1")
        assert (said.status, b"session_unrouted" in said.body) == (400, True)


async def test_a_session_stays_where_it_was_first_served() -> None:
    async with staged(routing=ASKING) as stage:
        body = orjson.dumps(SESSION)
        assert (await ask(stage.app.port, request(CHAT, body, ON_BASELINE))).status == 200
        await stage.ended_one()
        said = await ask(stage.app.port, request(CHAT, body))
        assert (said.header("x-crossover-backend"), said.header("x-crossover-reason")) == ("baseline", "state")


async def test_requests_that_name_state_and_fail_take_no_engine_from_the_others() -> None:
    """Nobody else can be asked, so that such a request would never be shown to be its own cause."""
    made = storing("b")

    async def script(exchange: Exchange) -> None:
        poisoned = b"previous_response_id" in exchange.request.body
        await (exchange.answer(b"{}", "500 Internal Server Error") if poisoned else made(exchange))

    async with staged(storing("a"), script, routing=ASKING, health={"interval_s": 300}) as stage:
        assert (await respond(stage, ON_BASELINE)).json["id"] == "b_1"
        for _ in range(6):
            said = await respond(stage, previous_response_id="b_1")
            assert (said.status, said.header("x-crossover-reason")) == (500, "state")
        assert stage.circuit(Role.BASELINE).failures == 0
        assert (await respond(stage, ON_BASELINE)).json["id"] == "b_2"


async def test_an_engine_that_cannot_be_reached_is_out_whatever_the_request_names() -> None:
    async with staged(storing("a"), storing("b"), routing=ASKING, health={"interval_s": 300}) as stage:
        assert (await respond(stage, ON_BASELINE)).json["id"] == "b_1"
        await stage.b.close()
        for _ in range(5):
            await respond(stage, previous_response_id="b_1")
        assert not stage.app.desk.snapshot().of(Role.BASELINE).eligible
