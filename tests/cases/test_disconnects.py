"""H1: a client that leaves stops its engine within a second, whatever it had asked for, and nobody else is asked."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.engine import Exchange
from fakes.failing import (
    CHAT,
    EITHER_ROLE,
    EVERY_FORM,
    EVERY_STREAM,
    FORMS,
    PLAIN_CHAT,
    STREAMING,
    UNPROBED,
    VERSION,
    Form,
    metric,
    pinned,
    scripts,
)
from fakes.leaping import leaping, passed_s
from fakes.raw import RawClient, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import tasks
from proxy.model import Dialect, Outcome, Role

ANSWER_AFTER_S = 20.0
TOKEN_EVERY_S = 0.2
# What the case allows between the client's leaving and the engine's noticing.
NOTICED_S = 1.0

Leave = Callable[[RawClient], None]


def closes(client: RawClient) -> None:
    client.leave()


def resets(client: RawClient) -> None:
    client.leave(reset=True)


LEAVE = pytest.mark.parametrize("leave", [closes, resets])


class Working:
    """An engine at work: a token each 200 ms, or the whole answer after 20 s; it notes when its connection closes."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.tokens = 0
        self.began = asyncio.Event()
        self.closed_at_s: float | None = None
        self.finished = False

    async def __call__(self, exchange: Exchange) -> None:
        closing = tasks.spawn(self._note_close(exchange), name="close of an engine's connection")
        self.began.set()
        try:
            await self._work(exchange)
        finally:
            await closing

    async def _work(self, exchange: Exchange) -> None:
        began_s = passed_s()
        if self.form.stream:
            await exchange.stream_head(self.form.sample.content_type)
        while self.closed_at_s is None and passed_s() - began_s < ANSWER_AFTER_S:
            await asyncio.sleep(TOKEN_EVERY_S)
            self.tokens += 1
            if self.form.stream and self.closed_at_s is None:
                await exchange.chunk(self.form.sample.events[0])
        if self.closed_at_s is None:
            self.finished = True
            exchange.writer.close()

    async def _note_close(self, exchange: Exchange) -> None:
        try:
            await exchange.gone()
        except ConnectionError:
            pass
        finally:
            self.closed_at_s = passed_s()


async def leave_under_way(
    stage: Stage, engine: Working, leave: Leave = closes, *, version: str = "1.1", host: str = "127.0.0.1"
) -> float:
    """Send the request, leave after a second or after the third token; how long the engine worked on after that."""
    async with RawClient(stage.app.port, host) as client:
        await client.send(engine.form.request(version=version))
        if engine.form.stream:
            for _ in range(3):
                await client.reader.readuntil(engine.form.sample.events[0].strip())
        else:
            await engine.began.wait()
            await asyncio.sleep(1.0)
        left_at_s = passed_s()
        leave(client)
        await until(lambda: engine.closed_at_s is not None, within_s=60, what="the engine's connection closing")
    assert engine.closed_at_s is not None
    return engine.closed_at_s - left_at_s


def outcome_of(form: Form) -> Outcome:
    return Outcome.CLIENT_GONE_IN_STREAM if form.stream else Outcome.CLIENT_GONE_WAITING


# ---------------------------------------------------------------- the case, in every dialect


@EVERY_FORM
@LEAVE
@leaping
async def test_h1_engines_connection_closes_within_a_second_of_the_client_leaving(form: Form, leave: Leave) -> None:
    engine = Working(form)
    async with staged(a=engine, health=UNPROBED) as stage:
        assert await leave_under_way(stage, engine, leave) <= NOTICED_S
        assert not engine.finished and not stage.b.requests
        await stage.ended_one()
        assert stage.in_flight == 0


@EVERY_STREAM
@LEAVE
@pytest.mark.parametrize("comment", [b"", b": prefilling\n\n"], ids=["head", "comment"])
@leaping
async def test_h1_engine_stops_for_a_client_that_leaves_before_the_first_token(
    form: Form, leave: Leave, comment: bytes
) -> None:
    """Its head has come, or a sign of life: engines send these before the prefill."""
    began = asyncio.Event()

    async def prefill(exchange: Exchange) -> None:
        await exchange.stream_head(form.sample.content_type)
        if comment and form.sample.dialect is not Dialect.OLLAMA:  # lines of JSON know no comment
            await exchange.chunk(comment)
        began.set()
        await exchange.gone()

    async with staged(a=prefill, health=UNPROBED) as stage, RawClient(stage.app.port) as client:
        await client.send(form.request())
        await began.wait()
        await asyncio.sleep(1.0)
        left_at_s = passed_s()
        leave(client)
        await until(lambda: not stage.a.open, what="the engine's connection closing")
        assert passed_s() - left_at_s <= NOTICED_S
        assert not stage.b.requests
        assert (await stage.ended_one()).outcome in (Outcome.CLIENT_GONE_WAITING, Outcome.CLIENT_GONE_IN_STREAM)
        assert metric(stage, "failures_total") == 0


@VERSION
@EITHER_ROLE
@STREAMING
@leaping
async def test_h1_either_engine_stops_for_clients_of_either_http_version(
    version: str, role: Role, stream: bool
) -> None:
    engine, beside = Working(CHAT if stream else PLAIN_CHAT), Working(CHAT)
    async with staged(**scripts(role, engine, beside), routing=pinned(role), health=UNPROBED) as stage:
        assert await leave_under_way(stage, engine, version=version) <= NOTICED_S
        assert beside.tokens == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["ipv4", "ipv6"])
@STREAMING
@leaping
async def test_h1_engine_stops_on_either_address_family(host: str, stream: bool) -> None:
    engine = Working(CHAT if stream else PLAIN_CHAT)
    async with staged(a=engine, host=host, listen={"host": host}, health=UNPROBED) as stage:
        assert await leave_under_way(stage, engine, host=host) <= NOTICED_S


# ---------------------------------------------------------------- what it is counted as


@pytest.mark.parametrize("form", [CHAT, PLAIN_CHAT], ids=["stream", "plain"])
@leaping
async def test_h1_leaving_is_counted_as_the_clients_and_as_nothing_else(form: Form) -> None:
    engine = Working(form)
    async with staged(a=engine, health=UNPROBED) as stage:
        await leave_under_way(stage, engine)
        assert (await stage.ended_one()).outcome is outcome_of(form)
        assert metric(stage, "requests_total", role="speculative", outcome=outcome_of(form)) == 1
        assert metric(stage, "requests_total") == 1 and metric(stage, "failures_total") == 0
        assert metric(stage, "retries_total") == 0 and metric(stage, "attempts_total") == 1


@pytest.mark.parametrize("form", [CHAT, PLAIN_CHAT], ids=["stream", "plain"])
@leaping
async def test_h1_leaving_speaks_neither_for_nor_against_the_engine(form: Form) -> None:
    engine = Working(form)
    async with staged(a=engine, health=UNPROBED) as stage:
        before = stage.circuit()
        await leave_under_way(stage, engine)
        await stage.ended_one()
        assert stage.circuit() == before
        assert stage.app.desk.snapshot().speculative.recent_failures == 0


@leaping
async def test_h1_failures_in_a_row_are_not_forgotten_for_a_client_that_left() -> None:
    """Counted as success, a leaving would hide that everything else fails."""

    async def fail_or_work(exchange: Exchange) -> None:
        if exchange.request.header("x-works"):
            await working(exchange)
        else:
            await exchange.answer(b"{}", "500 Internal Server Error")

    working = Working(PLAIN_CHAT)
    async with staged(a=fail_or_work, health=UNPROBED) as stage:
        for _ in range(3):
            await stage.ask()
        async with RawClient(stage.app.port) as client:
            await client.send(PLAIN_CHAT.request("x-works: yes"))
            await working.began.wait()
        await until(lambda: len(stage.ended) == 4, what="the end of all four")
        assert stage.circuit().failures == 3


# ---------------------------------------------------------------- its kind


@pytest.mark.parametrize("form", [CHAT, PLAIN_CHAT], ids=["stream", "plain"])
@leaping
async def test_h1_impatient_user_does_not_pile_requests_up_on_the_engine(form: Form) -> None:
    engines = [Working(form) for _ in range(10)]
    left = iter(engines)

    async def next_one(exchange: Exchange) -> None:
        await next(left)(exchange)

    async with staged(a=next_one, health=UNPROBED) as stage:
        for engine in engines:
            assert await leave_under_way(stage, engine) <= NOTICED_S
        await until(lambda: stage.a.open == 0, what="the engine being idle")
        assert stage.a.most_open <= 2, "more than the one that is asked and the one that is being stopped"


@pytest.mark.parametrize("form", FORMS[1:2], ids=["plain"])
@leaping
async def test_h1_second_attempt_stops_as_well_when_the_client_leaves_in_it(form: Form) -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "500 Internal Server Error")

    engine = Working(form)
    async with staged(a=fail, b=engine, health=UNPROBED) as stage:
        assert await leave_under_way(stage, engine) <= NOTICED_S
        assert (len(stage.a.requests), len(stage.b.requests)) == (1, 1)


@leaping
async def test_h1_all_of_many_clients_that_leave_at_once_free_the_engine() -> None:
    count = 50
    engines: list[Working] = []

    async def one_more(exchange: Exchange) -> None:
        engines.append(Working(PLAIN_CHAT))
        await engines[-1](exchange)

    async with staged(a=one_more, b=one_more, health=UNPROBED) as stage:
        clients = [RawClient(stage.app.port) for _ in range(count)]
        for client in clients:
            await client.__aenter__()
            await client.send(request(PLAIN_CHAT.sample.target, PLAIN_CHAT.body))
        await until(lambda: len(engines) == count, what="every request being at work")
        left_at_s = passed_s()
        for client in clients:
            client.leave()
        await until(lambda: all(each.closed_at_s is not None for each in engines), what="every connection closing")
        assert max(each.closed_at_s or 0 for each in engines) - left_at_s <= NOTICED_S
        await until(lambda: len(stage.ended) == count, what="the end of every request")
        assert stage.in_flight == 0
