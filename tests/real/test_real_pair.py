"""A proxy in front of two real engines: real text, real counts, real disconnects, a real switch under load.

Nothing here is about time: engines run on the processor, on machines that do other things as well.
"""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest
from fakes.until import until, until_told
from real.conftest import PATIENCE_S, SLOTS, events, in_front, said, words

from proxy.model import Role
from scripts.real_pair import Pair

SPECULATIVE, BASELINE = "speculative", "baseline"
ROLES = pytest.mark.parametrize("role", [SPECULATIVE, BASELINE])
STORY = said("Write a long story about a lighthouse keeper.")
# Longer than any test lets it run, and within a slot.
LONG = 1500


async def test_both_engines_say_the_same_whole_and_streamed(pair: Pair) -> None:
    async with in_front(pair) as front:
        for asked in ("What is the capital of France?", "Explain how rain forms.", "Count from one to twenty."):
            texts = []
            for role in (SPECULATIVE, BASELINE):
                whole = await front.answer(to=role, messages=said(asked), max_tokens=24)
                texts.append(whole["choices"][0]["message"]["content"])
                async with front.post(to=role, messages=said(asked), max_tokens=24, stream=True) as answer:
                    assert answer.headers["x-crossover-backend"] == role
                    texts.append("".join([words(event) async for event in events(answer)]))
            assert texts == [texts[0]] * 4
            assert len(texts[0].split()) > 5


@ROLES
async def test_tokens_come_one_event_each(pair: Pair, role: str) -> None:
    async with in_front(pair) as front, front.post(to=role, messages=STORY, stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        pieces = [words(event) async for event in events(answer)]
    assert sum(map(bool, pieces)) == 16


@ROLES
async def test_usage_is_the_engines_own_count(pair: Pair, role: str) -> None:
    async with in_front(pair) as front:
        counted = await front.answer("/v1/chat/completions/input_tokens", messages=STORY)
        made = await front.count(role, "tokens_predicted_total")
        drafted = await front.count(role, "spec_decode_num_drafts_total")
        whole = (await front.answer(to=role, messages=STORY, max_tokens=9))["usage"]
        async with front.post(
            to=role, messages=STORY, max_tokens=9, stream=True, stream_options={"include_usage": True}
        ) as answer:
            *_, last = [event async for event in events(answer)]
        for usage in (whole, last["usage"]):
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (counted["input_tokens"], 9)
        assert await front.count(role, "tokens_predicted_total") - made == 18
        assert (await front.count(role, "spec_decode_num_drafts_total") > drafted) == (role == SPECULATIVE)


@ROLES
@pytest.mark.parametrize("dialect", ["chat", "completions", "messages", "responses"])
async def test_every_dialect_streams_to_an_end_that_the_proxy_knows(pair: Pair, role: str, dialect: str) -> None:
    path, body, last = {
        "chat": ("/v1/chat/completions", {"messages": STORY}, b"data: [DONE]\n\n"),
        "completions": ("/v1/completions", {"prompt": "Once upon"}, b"data: [DONE]\n\n"),
        "messages": ("/v1/messages", {"messages": STORY}, b'{"type":"message_stop"}\n\n'),
        "responses": ("/v1/responses", {"input": "Hello", "max_output_tokens": 8}, b"}\n\n"),
    }[dialect]
    async with in_front(pair) as front:
        async with front.post(path, to=role, stream=True, **body) as answer:
            assert answer.status == 200
            assert (await answer.read()).endswith(last)
        ended = front.app.desk.backend(Role(role))
        await until(lambda: ended.book.settled == 1)
        assert ended.book.typical_duration_s > 0  # which only whole answers are counted for


@ROLES
async def test_a_client_that_leaves_a_stream_frees_its_slot(pair: Pair, role: str) -> None:
    async with in_front(pair) as front:
        made = await front.count(role, "tokens_predicted_total")
        async with front.post(to=role, messages=STORY, max_tokens=LONG, stream=True) as answer:
            await anext(events(answer))
            assert await front.runs(role, 1)
        await until_told(lambda: front.runs(role, 0), PATIENCE_S)
        assert await front.count(role, "tokens_predicted_total") - made < LONG / 2
        await until(lambda: not front.in_flight)


async def test_a_client_that_leaves_a_whole_answer_still_counts_since_the_engine_goes_on(pair: Pair) -> None:
    async with in_front(pair) as front:
        await front.answer(to=BASELINE, messages=STORY, max_tokens=60)  # so that a usual duration is known
        made = await front.count(BASELINE, "tokens_predicted_total")
        asked = asyncio.ensure_future(front.answer(to=BASELINE, messages=STORY, max_tokens=60))
        await until_told(lambda: front.runs(BASELINE, 1), PATIENCE_S)
        asked.cancel()
        backend = front.app.desk.backend(Role.BASELINE)
        await until(lambda: backend.book.lingering == 1)
        await until_told(lambda: front.runs(BASELINE, 0), PATIENCE_S)
        assert await front.count(BASELINE, "tokens_predicted_total") - made == 60


async def test_the_regime_changes_under_load_and_back(pair: Pair) -> None:
    routing = {"policy": "threshold", "enter_at": 1, "leave_at": 2, "min_dwell_s": 0.0, "smoothing_s": 0.0}
    async with in_front(pair, routing=routing) as front, AsyncExitStack() as crowd:
        went = []
        for _ in range(SLOTS):
            answer = await crowd.enter_async_context(front.post(messages=STORY, max_tokens=LONG, stream=True))
            await anext(events(answer))
            went.append(answer.headers["x-crossover-backend"])
        assert went == [SPECULATIVE, SPECULATIVE, BASELINE]
        assert await front.runs(SPECULATIVE, 2)
        assert await front.runs(BASELINE, 1)
        await crowd.aclose()
        await until(lambda: not front.in_flight)
        async with front.post(messages=STORY, max_tokens=2) as answer:
            assert answer.headers["x-crossover-backend"] == SPECULATIVE


async def test_the_engines_slots_are_the_limit_and_the_rest_waits_here(pair: Pair) -> None:
    async with in_front(pair) as front, AsyncExitStack() as crowd:
        backend = front.app.desk.backend(Role.BASELINE)
        assert backend.max_in_flight == SLOTS
        for _ in range(SLOTS):
            answer = await crowd.enter_async_context(
                front.post(to=BASELINE, messages=STORY, max_tokens=LONG, stream=True)
            )
            await anext(events(answer))
        asked = asyncio.ensure_future(front.answer(to=BASELINE, messages=STORY, max_tokens=2))
        await until(lambda: front.app.admission.waiting == 1 or backend.book.in_flight > SLOTS)
        assert await front.count(BASELINE, "requests_deferred") == 0
        await crowd.aclose()
        assert (await asked)["usage"]["completion_tokens"] == 2


@ROLES
async def test_streams_follow_each_other_though_the_engine_closes_its_connection_after_each(
    pair: Pair, role: str
) -> None:
    async with in_front(pair, retries={"max_ratio": 0.0, "reserve": 0}) as front:
        for _ in range(8):
            async with front.post(to=role, messages=STORY, max_tokens=1, stream=True) as answer:
                assert answer.status == 200
                assert [event async for event in events(answer)]


async def test_the_engines_own_count_agrees_with_ours(pair: Pair) -> None:
    async with in_front(pair) as front:
        backend = front.app.desk.backend(Role.SPECULATIVE)
        async with front.post(to=SPECULATIVE, messages=STORY, max_tokens=LONG, stream=True) as answer:
            await anext(events(answer))
            await until(lambda: backend.load is not None and backend.load.running == 1, PATIENCE_S)
            assert backend.drift() == 0
        await until(lambda: backend.load is not None and backend.load.running == 0, PATIENCE_S)
        assert backend.drift() == 0


async def test_what_the_engine_refuses_comes_as_it_says_it(pair: Pair) -> None:
    async with in_front(pair) as front:
        async with front.post(messages=said("word " * 3000)) as answer:
            told = (await answer.json())["error"]
            assert (answer.status, told["type"]) == (400, "exceed_context_size_error")
        async with front.post(messages="none") as answer:
            assert answer.status == 400
        async with front.post("/slots/0", action="erase") as answer:
            assert answer.status == 403


async def test_an_engine_that_dies_in_a_stream_ends_it_and_the_other_one_serves(installed: None) -> None:
    routing = {"policy": "pinned", "pin": SPECULATIVE}
    with Pair("never", slots=1) as short_lived:
        async with in_front(short_lived, routing=routing, timeouts={"connect_s": 5.0}) as front:
            async with front.post(messages=STORY, max_tokens=LONG, stream=True) as answer:
                stream, seen = events(answer), []
                assert answer.headers["x-crossover-backend"] == SPECULATIVE
                await anext(stream)
                short_lived.kill(SPECULATIVE)
                with pytest.raises(aiohttp.ClientPayloadError):
                    async for event in stream:
                        seen.append(event)
                assert seen[-1]["error"]["code"] == 502
            async with front.post(messages=STORY, max_tokens=4) as answer:
                assert (answer.status, answer.headers["x-crossover-backend"]) == (200, BASELINE)
