"""The client leaves at every moment of a request (H1): the engine's socket closes at once and nothing stays counted."""

import asyncio

import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, content
from fakes.leaping import leaping
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Outcome

V = pytest.mark.parametrize("version", ["1.1", "1.0"])
RESET = pytest.mark.parametrize("reset", [False, True], ids=["closes", "resets"])
FAMILY = pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["ipv4", "ipv6"])


class Watched:
    """An engine that sends some events, then nothing, and tells when its connection was closed."""

    def __init__(self, *, events: int | None) -> None:
        self.events = events
        self.began = asyncio.Event()
        self.closed = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        if self.events is not None:
            await exchange.stream_head()
            for number in range(self.events):
                await exchange.event(content(f"w{number}"))
        self.began.set()
        await exchange.gone()
        self.closed.set()


async def close_of(engine: Watched) -> None:
    await until(engine.closed.is_set, what="the end of the engine's connection")


async def leave_before_head(stage: Stage, engine: Watched, *, stream: bool, version: str = "1.1", reset: bool) -> None:
    async with RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=stream), version=version))
        await engine.began.wait()
        client.leave(reset=reset)
        await close_of(engine)


async def leave_in_stream(stage: Stage, engine: Watched, *, version: str = "1.1", host: str = "127.0.0.1") -> None:
    async with RawClient(stage.app.port, host) as client:
        await client.send(request(body=chat(stream=True), version=version))
        await client.reader.readuntil(b"w2")
        client.leave()
        await close_of(engine)


@V
@RESET
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_engine_socket_closes_when_client_leaves_before_the_head(version: str, reset: bool, stream: bool) -> None:
    engine = Watched(events=None)
    async with staged(a=engine) as stage:
        await leave_before_head(stage, engine, stream=stream, version=version, reset=reset)


@V
async def test_engine_socket_closes_when_client_leaves_in_the_stream(version: str) -> None:
    engine = Watched(events=3)
    async with staged(a=engine) as stage:
        await leave_in_stream(stage, engine, version=version)


@FAMILY
async def test_engine_socket_closes_on_both_address_families(host: str) -> None:
    engine = Watched(events=3)
    async with staged(a=engine, host=host, listen={"host": host}) as stage:
        await leave_in_stream(stage, engine, host=host)


async def test_engine_socket_closes_when_client_leaves_a_plain_answer_under_way() -> None:
    closed = asyncio.Event()

    async def half(exchange: Exchange) -> None:
        await exchange.head("200 OK", "content-type: application/json", "content-length: 100")
        await exchange.send(b'{"half":')
        await exchange.gone()
        closed.set()

    async with staged(a=half) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()))
        await client.reader.readuntil(b"half")
        client.leave()
        await until(closed.is_set, what="the end of the engine's connection")


async def test_engine_socket_closes_when_client_leaves_after_a_first_half_event() -> None:
    """Bytes have come and no whole event: the answer is being judged, and nothing is committed."""
    closed, began = asyncio.Event(), asyncio.Event()

    async def half(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.chunk(b'data: {"choi')
        began.set()
        await exchange.gone()
        closed.set()

    async with staged(a=half) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        await began.wait()
        client.leave()
        await until(closed.is_set, what="the end of the engine's connection")


async def test_nothing_is_sent_elsewhere_when_client_leaves_before_the_head() -> None:
    engine = Watched(events=None)
    async with staged(a=engine) as stage:
        await leave_before_head(stage, engine, stream=True, reset=True)
        await stage.ended_one()
        assert not stage.b.requests, "a request whose client had left was sent to the other engine"


async def test_outcome_is_gone_waiting_when_client_leaves_before_the_head() -> None:
    engine = Watched(events=None)
    async with staged(a=engine) as stage:
        await leave_before_head(stage, engine, stream=False, reset=False)
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_WAITING


async def test_outcome_is_gone_in_stream_when_client_leaves_in_the_stream() -> None:
    engine = Watched(events=3)
    async with staged(a=engine) as stage:
        await leave_in_stream(stage, engine)
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_IN_STREAM


async def test_circuit_is_untouched_when_client_leaves() -> None:
    engine = Watched(events=None)
    async with staged(a=engine) as stage:
        before = stage.circuit()
        await leave_before_head(stage, engine, stream=True, reset=False)
        await stage.ended_one()
        assert stage.circuit() == before


@leaping
async def test_sequence_lingers_when_client_left_unheard() -> None:
    engine = Watched(events=None)
    async with staged(a=engine, timeouts={"linger_s": 0.3}) as stage:
        await leave_before_head(stage, engine, stream=True, reset=False)
        await stage.ended_one()
        assert stage.in_flight == 1, "the engine may still decode, yet the proxy counts it as idle"


async def test_sequence_does_not_linger_when_tokens_had_flowed() -> None:
    engine = Watched(events=3)
    async with staged(a=engine, timeouts={"linger_s": 60}) as stage:
        await leave_in_stream(stage, engine)
        await stage.ended_one()
        assert stage.in_flight == 0, "an engine that streams notices at once; its sequence must not linger"


async def test_no_engine_hears_of_a_request_whose_client_left_while_uploading() -> None:
    async with staged() as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat())[:-5])
            await until(lambda: stage.app.relay.trips, what="the request being read")
        await stage.ended_one()
        assert not stage.a.requests and not stage.b.requests


async def test_outcome_is_gone_waiting_when_client_left_while_uploading() -> None:
    async with staged() as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat())[:-5])
            await until(lambda: stage.app.relay.trips, what="the request being read")
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_WAITING


async def test_waiter_is_never_started_when_its_client_left_in_the_queue() -> None:
    engine, other = Watched(events=None), Watched(events=None)
    async with staged(a=engine, b=other, max_in_flight=1) as stage:
        async with RawClient(stage.app.port) as first, RawClient(stage.app.port) as second:
            for client, begun in ((first, engine), (second, other)):
                await client.send(request(body=chat()))
                await begun.began.wait()
            async with RawClient(stage.app.port) as third:
                await third.send(request(body=chat()))
                await until(lambda: stage.app.admission.waiting == 1, what="the third request waiting")
            await until(lambda: stage.app.admission.waiting == 0, what="the queue being empty again")
        await until(lambda: len(stage.ended) == 3, what="the end of all three")
        assert len(stage.a.requests) + len(stage.b.requests) == 2, "a request that nobody waits for was started"


async def test_nothing_is_sent_elsewhere_when_client_leaves_between_the_two_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first engine's error body dawdles, and the client leaves while it is being kept."""
    monkeypatch.setattr("proxy.wire.kept.KEEP_WITHIN_S", 600.0)  # at its end the connection would be closed too
    began, closed = asyncio.Event(), asyncio.Event()

    async def dawdle(exchange: Exchange) -> None:
        await exchange.head("500 Internal Server Error", "content-length: 10")
        began.set()
        await exchange.gone()
        closed.set()

    async with staged(a=dawdle) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(body=chat()))
            await began.wait()
            await until(lambda: stage.in_flight == 0, what="the first attempt being given up")
        await until(closed.is_set, what="the end of the engine's connection")
        assert (await stage.ended_one()).outcome is Outcome.CLIENT_GONE_WAITING
        assert (len(stage.app.desk.ring), stage.b.requests) == (1, [])


async def test_failed_first_attempt_is_blamed_when_client_leaves_in_the_second() -> None:
    engine = Watched(events=None)

    async def fail(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "500 Internal Server Error")

    async with staged(a=fail, b=engine) as stage:
        await leave_before_head(stage, engine, stream=False, reset=False)
        await stage.ended_one()
        assert stage.circuit().failures == 1


async def test_engine_socket_closes_when_client_leaves_while_not_reading() -> None:
    """The pipe to the client is full, so the proxy waits in a write; the reset must still be noticed."""
    closed, writers = asyncio.Event(), list[asyncio.StreamWriter]()

    async def flood(exchange: Exchange) -> None:
        writers.append(exchange.writer)
        await exchange.stream_head()
        try:
            while True:
                await exchange.event(content("x" * 4096))
        except ConnectionError:
            closed.set()
            raise

    async with staged(a=flood) as stage, RawClient(stage.app.port) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request(body=chat(stream=True)))
        await until(lambda: writers and writers[0].transport.get_write_buffer_size(), what="the engine held up")
        client.leave(reset=True)
        await until(closed.is_set, what="the end of the engine's connection")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect)
@pytest.mark.parametrize("words", [True, False], ids=["words", "no word"])
async def test_client_that_leaves_behind_the_end_of_its_stream_has_been_served(sample: Sample, words: bool) -> None:
    """As the official clients do: they close at the last event, before the last chunk."""

    async def whole_but_for_the_last_chunk(exchange: Exchange) -> None:
        await exchange.stream_head(sample.content_type)
        for event in (*(sample.events if words else ()), sample.end):
            await exchange.chunk(event)
        await exchange.gone()

    async with staged(whole_but_for_the_last_chunk) as stage:
        async with RawClient(stage.app.port) as client:
            await client.send(request(sample.target, sample.body))
            await client.head()
            seen = b""
            while not seen.endswith(sample.end):
                seen += await client.chunk() or b""
        facts = await stage.ended_one()
        assert (facts.outcome, facts.failure) == (Outcome.FINISHED, None)
