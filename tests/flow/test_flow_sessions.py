"""Requests that name state inside one engine never go to whichever engine happens to be chosen."""

import aiohttp
import pytest
from fakes.engine import FakeEngine
from fakes.proxy import running, settings, url

CHAT = "/v1/chat/completions"
NAMING_STATE = [
    (CHAT, {"model": "m", "messages": [], "session_params": {"id": "s"}}),
    ("/v1/responses", {"model": "m", "input": "x", "previous_response_id": "resp_1"}),
]


@pytest.mark.parametrize(("path", "body"), NAMING_STATE)
async def test_a_request_that_names_state_is_refused_with_the_mend_when_nothing_says_where(
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


async def test_a_rule_sends_every_request_that_names_state_to_one_backend() -> None:
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
