"""H29: whatever clients and engines invent, the number of series stays, and nothing of theirs becomes a label."""

import asyncio
import gc
import os
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, content
from fakes.raw import RawClient, ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

REQUESTS = 10_000
# Of each kind in turn; one connection carries a batch of them.
BATCH = 20
# Of the whole process, after enough requests that every pool and ring is as large as it becomes.
MAX_GROWTH_BYTES = 5 << 20
# Every request is answered somehow, and no verdict on an engine moves what is counted.
CALM = {
    "circuit": {"max_failures": 1000},
    "retries": {"max_ratio": 1.0, "reserve": 10_000},
}
# In every word that a client or an engine invents here.
MARK = "zq"


class Words:
    """Words that nobody has used before, the same in each run."""

    def __init__(self) -> None:
        self._chance = random.Random(29)

    def __call__(self, letters: str = string.ascii_letters + string.digits) -> str:
        return MARK + "".join(self._chance.choices(letters, k=12))


def scanned(word: Callable[..., str]) -> bytes:
    return request(f"/{word()}/{word()}.php?{word()}={word()}", method="GET")


def posted(word: Callable[..., str]) -> bytes:
    return request(f"/v1/{word()}", b"{}", f"user-agent: {word()}", f"x-{word()}: {word()}")


def climbing(word: Callable[..., str]) -> bytes:
    return request(f"/v1/models/%2e%2e/{word()}", method="GET")


def modelled(word: Callable[..., str]) -> bytes:
    body = chat(model=word(), user=word(), metadata={word(): word()})
    return request("/v1/chat/completions", body, f"authorization: Bearer {word()}", f"x-request-id: {word()}")


def in_any_dialect(word: Callable[..., str]) -> bytes:
    sample = SAMPLES[sum(word().encode()) % len(SAMPLES)]
    body = orjson.dumps({**orjson.loads(sample.body), "model": word(), "user": word(), "stream": False})
    return request(sample.target, body, f"x-crossover-backend: {word()}", f"x-user: {word()}")


def asked(word: Callable[..., str]) -> bytes:
    return request(f"/v1/models/{word()}?{word()}", method="GET")


def deleted(word: Callable[..., str]) -> bytes:
    return request(f"/v1/models/{word()}", method="DELETE")


def strangely(word: Callable[..., str]) -> bytes:
    """A method of the client's own making: it is no HTTP to us, and ends its connection."""
    return request(f"/{word()}", method=word(string.ascii_uppercase).upper())


# Scanners knock more often than clients ask.
KINDS = (*[scanned] * 7, *[posted] * 4, *[climbing] * 2, *[deleted] * 3, modelled, in_any_dialect, asked, strangely)


def requests(count: int, word: Callable[..., str]) -> Iterator[tuple[bytes, bool]]:
    """Requests of each kind in turn, and whether their connection ends with them."""
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        yield kind(word), kind is strangely


async def sent(stage: Stage, count: int, word: Callable[..., str]) -> None:
    """All of them over some connections at a time."""
    places = asyncio.Semaphore(8)

    async def one_connection(batch: list[tuple[bytes, bool]]) -> None:
        async with places, RawClient(stage.app.port) as client:
            await client.send(b"".join(data for data, _ in batch))
            for _ in batch:
                await client.answer()

    async with asyncio.TaskGroup() as group:
        batch: list[tuple[bytes, bool]] = []
        for one in requests(count, word):
            if one[1]:
                group.create_task(one_connection([one]))
                continue
            batch.append(one)
            if len(batch) == BATCH:
                group.create_task(one_connection(batch))
                batch = []
        if batch:
            group.create_task(one_connection(batch))


def series(stage: Stage) -> list[str]:
    """The names and labels of what a scrape shows, values apart; of the proxy's own, not its process's. What is polled
    of engines is absent while it is too old, on a busy machine for a moment."""
    lines = stage.app.metrics.exposition().decode().splitlines()
    ours = (line.rpartition(" ")[0] for line in lines if line.startswith("crossover_"))
    return sorted(name for name in ours if not name.startswith(("crossover_engine_", "crossover_drift_")))


def total(stage: Stage, name: str) -> float:
    lines = stage.app.metrics.exposition().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


class Forgetful(list[Any]):
    """Books of the test's own that keep nothing, so that what grows is the proxy's."""

    def append(self, _: Any) -> None:
        """Forget it."""


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_h29_ten_thousand_odd_requests_leave_the_series_as_they_were() -> None:
    word = Words()
    async with staged(**CALM) as stage:
        stage.a.requests, stage.b.requests, stage.ended = Forgetful(), Forgetful(), Forgetful()
        await sent(stage, 150 * len(KINDS), word)
        await until(lambda: not stage.app.relay.trips)
        before, before_bytes = series(stage), resident_bytes()
        counted = total(stage, "crossover_requests_total{") + total(stage, "crossover_refusals_total{")
        await sent(stage, REQUESTS, word)
        await until(lambda: not stage.app.relay.trips)
        assert resident_bytes() - before_bytes < MAX_GROWTH_BYTES
        assert series(stage) == before
        assert MARK not in str(before).lower()
        told = total(stage, "crossover_requests_total{") + total(stage, "crossover_refusals_total{") - counted
        # Questions that an engine answers are nobody's failure and no generation: they alone are not counted.
        assert told == REQUESTS - REQUESTS / len(KINDS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_h29_megabyte_of_a_models_name_makes_no_series(sample: Sample) -> None:
    async with staged(**CALM) as stage:
        seen = []
        for name in ("m", MARK * (1 << 19)):
            body = orjson.dumps({**orjson.loads(sample.body), "model": name, "user": name, "stream": False})
            assert (await ask(stage.app.port, request(sample.target, body))).status == 200
            await until(lambda: not stage.app.relay.trips)
            seen.append(series(stage))
        assert seen[0] == seen[1]
        assert MARK not in str(stage.app.watch.decisions())


async def test_h29_target_or_header_as_long_as_they_may_be_makes_no_series() -> None:
    async with staged(**CALM) as stage:
        for size in (10, 30_000):
            long = MARK * (size // 2)
            for data in (
                request(f"/{long}", method="GET"),
                request(f"/v1/models?{long}", method="GET"),
                request("/v1/chat/completions", chat(), f"x-request-id: {long}", f"x-model: {long}"),
            ):
                await ask(stage.app.port, data)
            if size == 10:
                await until(lambda: not stage.app.relay.trips)
                before = series(stage)
        await until(lambda: not stage.app.relay.trips)
        assert series(stage) == before


# ---------------------------------------------------------------- what engines invent


async def invents(exchange: Exchange) -> None:
    """An answer with words of the engine's own wherever it may put them, in the way that the request names."""
    word = exchange.request.header("x-word") or ""
    way = exchange.request.header("x-way")
    if way == "status":
        await exchange.answer(b"{}", f"{400 + len(exchange.request.body) % 200} {word}", f"x-{word}: {word}")
    elif way == "body":
        error = {"message": word, "type": word, "code": word, "param": word}
        await exchange.answer(orjson.dumps({"error": error, "model": word}), "500 Oh")
    elif way == "event":
        await exchange.stream_head()
        await exchange.event({"error": {"message": word, "type": word, "code": word}})
        await exchange.end()
    elif way == "later":
        await exchange.stream_head()
        await exchange.event({**content("x"), "model": word})
        await exchange.event({"error": {"message": word, "type": word, "code": word}})
        await exchange.end()
    else:
        await exchange.stream_head()
        usage = {"prompt_tokens": 1, "completion_tokens": 2, word: 3}
        await exchange.event({**content("x", finish_reason=word), "usage": usage})
        await exchange.chunk(f"event: {word}\ndata: [DONE]\n\n".encode())
        await exchange.end()


WAYS = ("status", "body", "event", "later", "finish")


async def test_h29_words_of_the_engines_make_no_series_either() -> None:
    word = Words()

    async def all_ways(times: int) -> None:
        for _ in range(times):
            for way in WAYS:
                body = chat(stream=True, pad="x" * random.Random(way).randrange(300))
                lines = (f"x-word: {word()}", f"x-way: {way}")
                await ask(stage.app.port, request("/v1/chat/completions", body, *lines))
        await until(lambda: not stage.app.relay.trips)

    async with staged(invents, invents, **CALM) as stage:
        await all_ways(1)
        before = series(stage)
        await all_ways(60)
        assert series(stage) == before
        assert MARK not in str(before).lower()
        assert total(stage, "crossover_requests_total{") == 61 * len(WAYS)


@pytest.mark.parametrize("status", [100, 199, 200, 299, 399, 499, 599, 600, 799, 999])
async def test_h29_status_of_an_engine_is_counted_by_its_class_whatever_it_is(status: int) -> None:
    async def odd(exchange: Exchange) -> None:
        await exchange.answer(b"{}", f"{status} Odd")
        exchange.writer.close()

    async with staged(odd, odd, **CALM) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request("/v1/chat/completions", chat(), "connection: close"))
            await client.rest()
        await until(lambda: total(stage, "crossover_requests_total{") == 1, what="the request counted")
        classes = [line for line in series(stage) if line.startswith("crossover_requests_total")]
        assert all(any(f'status_class="{name}"' in line for name in CLASSES) for line in classes)


CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx", "none")
