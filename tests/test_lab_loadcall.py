import asyncio
import contextlib
import itertools

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.sse_server import DONE, ROLE, Reply, SseServer, by, delta, event, usage, whole
from fakes.until import until
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamError
from proxy.lab.loadcall import Answer, Shape, Target, call, first_model, open_session
from proxy.lab.loadreport import Sample
from proxy.model import Role
from proxy.tasks import end, spawn

MESSAGES = [{"role": "user", "content": "hello"}]
STREAM = b": comment\n\n" + b"".join(whole(tokens=9, chunks=3)).replace(b"\n", b"\r\n")


async def ask(reply: Reply, shape: Shape | None = None, asked: Role | None = None) -> tuple[Sample, SseServer]:
    async with SseServer(lambda *_: reply) as server, open_session() as session:
        target = Target(server.url, "fake-model", "secret-key")
        return await call(session, target, shape or Shape(), MESSAGES, asked=asked), server


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_an_answer_reads_the_same_wherever_its_bytes_are_cut(cuts: set[int]) -> None:
    answer = Answer(stream=True)
    for low, high in itertools.pairwise([0, *sorted(cuts), len(STREAM)]):
        answer.feed(STREAM[low:high], float(low))
    answer.close()
    assert (answer.error, answer.completion_tokens, answer.prompt_tokens) == (None, 9, 7)
    assert answer.first_at_s is not None


@given(st.binary())
def test_an_answer_takes_any_bytes_without_raising(body: bytes) -> None:
    for stream in (True, False):
        answer = Answer(stream=stream)
        answer.feed(body, 0.0)
        answer.close()
        assert answer.completion_tokens is None or b"completion_tokens" in body


def test_a_stream_of_nothing_but_its_end_is_no_answer() -> None:
    answer = Answer(stream=True)
    answer.feed(b"data:[DONE]\n\n", 0.0)
    answer.close()
    assert answer.error == "malformed"


LEAVES = st.none() | st.integers(-9, 9) | st.text(max_size=3)


@given(st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(st.text(max_size=3), x), max_leaves=9))
def test_an_answer_takes_any_json_without_raising(said: object) -> None:
    for field in ("choices", "usage", "error", "object"):
        answer = Answer(stream=True)
        answer.feed(b"data: " + orjson.dumps({field: said}) + b"\n\n", 0.0)
        answer.feed(b"data: " + orjson.dumps({"choices": [{"delta": said}]}) + b"\n\n", 0.0)


@pytest.mark.parametrize(
    ("says", "seen"),
    [
        ({"role": "assistant", "content": ""}, False),
        ({"reasoning_content": None}, False),
        ({"content": "x"}, True),
        ({"reasoning_content": "hm"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
    ],
)
def test_first_content_is_what_a_reader_sees_and_not_a_role(says: dict[str, object], seen: bool) -> None:
    answer = Answer(stream=True)
    answer.feed(delta(**says), 5.0)
    assert (answer.first_at_s == 5.0) is seen


def test_first_and_last_content_are_the_instants_they_came_and_usage_is_neither() -> None:
    answer = Answer(stream=True)
    for at_s, piece in enumerate([ROLE, delta(content="a"), delta(content="b"), delta(), usage(2), DONE]):
        answer.feed(piece, float(at_s))
    assert (answer.first_at_s, answer.last_at_s) == (1.0, 2.0)


class Watcher:
    """Keeps what an answer tells as it comes."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool, int, float | None]] = []

    def event(self, *, visible: bool, told: bool, new_tokens: int, gap_s: float | None) -> None:
        self.seen.append((visible, told, new_tokens, gap_s))


def told(tokens: int, **says: object) -> bytes:
    choice = {"index": 0, "delta": says, "finish_reason": None}
    return event(choices=[choice], usage={"prompt_tokens": 7, "completion_tokens": tokens})


def watched(*pieces: bytes) -> list[tuple[bool, bool, int, float | None]]:
    watcher = Watcher()
    answer = Answer(stream=True, watch=watcher)
    for second, piece in enumerate(pieces):
        answer.feed(piece, float(second))
    return watcher.seen


def test_who_watches_an_answer_is_told_the_tokens_of_each_chunk() -> None:
    assert watched(told(1, role="assistant"), told(1, content="a"), told(4, content="b"), usage(5), DONE) == [
        (False, True, 1, None),
        (True, True, 0, None),
        (True, True, 3, 1.0),
        (False, True, 1, None),
    ]


def test_a_count_that_comes_only_at_the_end_is_told_to_nobody_as_new() -> None:
    assert watched(delta(content="a"), delta(content="b"), usage(9), DONE) == [
        (True, False, 0, None),
        (True, False, 0, 1.0),
        (False, False, 0, None),
    ]


async def test_a_request_that_was_given_up_leaves_what_its_answer_told() -> None:
    answer = Answer(stream=True)
    async with SseServer(lambda *_: Reply([told(3, content="a")], ending="hang")) as server, open_session() as session:
        calling = spawn(call(session, Target(server.url, "m"), Shape(), MESSAGES, answer=answer), name="call")
        await until(lambda: answer.first_at_s is not None)
        await end(calling)
    assert answer.completion_tokens == 3


async def test_a_shape_asks_for_counts_in_every_chunk_and_for_more() -> None:
    async with SseServer(lambda *_: Reply(whole())) as server, open_session() as session:
        shape = Shape(continuous_usage=True, more={"ignore_eos": True})
        await call(session, Target(server.url, "m"), shape, MESSAGES)
    assert server.bodies[0]["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert server.bodies[0]["ignore_eos"] is True


def test_cached_prompt_tokens_are_read_where_they_are_told() -> None:
    answer = Answer(stream=True)
    answer.feed(event(choices=[], usage={"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}), 0.0)
    assert answer.cached_tokens == 5
    answer.feed(event(choices=[], usage={"prompt_tokens": 7, "prompt_tokens_details": None}), 0.0)
    assert answer.cached_tokens == 5


async def test_tokens_come_from_usage_when_chunks_carry_several() -> None:
    sample, server = await ask(Reply(whole(tokens=50, chunks=3), headers=by("speculative", "room")))
    assert (sample.completion_tokens, sample.prompt_tokens, sample.error) == (50, 7, None)
    assert (sample.backend, sample.reason) == ("speculative", "room")
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert server.requests[0].headers["authorization"] == "Bearer secret-key"
    assert "x-crossover-backend" not in server.requests[0].headers


async def test_tokens_are_unknown_when_the_server_tells_no_usage() -> None:
    sample, _ = await ask(Reply([ROLE, delta(content="a"), delta(content="b"), DONE]))
    assert (sample.error, sample.completion_tokens, sample.tokens_per_s) == (None, None, None)


async def test_the_backend_is_asked_for_by_header() -> None:
    _, server = await ask(Reply(whole()), asked=Role.BASELINE)
    assert server.requests[0].headers["x-crossover-backend"] == "baseline"


async def test_an_answer_without_stream_has_tokens_and_no_first_content() -> None:
    body = orjson.dumps({"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": 5}})
    sample, server = await ask(Reply([body]), Shape(stream=False, n=2))
    assert (sample.error, sample.completion_tokens, sample.ttft_s, sample.sequences) == (None, 5, None, 2)
    assert "stream" not in server.bodies[0]
    assert server.bodies[0]["n"] == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply([b"{}"], status=503), "status 503"),
        (Reply(status=302, headers={"location": "/elsewhere"}), "status 302"),
        (Reply([event(error={"message": "queue is full"}), DONE]), "error_event"),
        (Reply([ROLE, delta(content="a"), event(object="error", message="no"), DONE]), "error_event"),
        (Reply([event(choices=[{"delta": {}, "finish_reason": "abort"}]), DONE]), "abort"),
        (Reply([ROLE, delta(content="a")]), "cut"),
        (Reply([ROLE, delta(content="a")], ending="cut"), "cut"),
        (Reply([ROLE, b"data: {no json\n\n", DONE]), "malformed"),
    ],
)
async def test_a_failed_answer_is_named(reply: Reply, error: str) -> None:
    sample, _ = await ask(reply)
    assert sample.error == error


@pytest.mark.parametrize(
    ("begins", "status", "stream", "error"),
    [
        (ROLE + b"data: ", 200, True, "oversize"),
        (b"", 200, False, "oversize"),
        (b"", 500, True, "status 500"),
    ],
    ids=["a line", "an answer", "an error"],
)
async def test_an_answer_without_end_is_given_up_and_its_connection_closed(
    begins: bytes, status: int, stream: bool, error: str
) -> None:
    closed = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 %d X\r\ncontent-type: text/plain\r\n\r\n%s" % (status, begins))
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.send(b"x" * 65536)
        closed.set()

    async with FakeEngine(script=endless) as server, open_session() as session:
        sample = await call(session, Target(server.url, "m"), Shape(stream=stream), MESSAGES)
        assert sample.error == error
        await until(closed.is_set)


def test_a_stream_as_long_as_it_likes_is_read_line_by_line() -> None:
    answer = Answer(stream=True)
    line = delta(content="x" * 1000)
    taken = [answer.feed(line * 100, 1.0) for _ in range(100)]
    answer.feed(DONE, 2.0)
    answer.close()
    assert (all(taken), answer.error) == (True, None)


async def test_a_list_of_models_without_end_is_told() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.stream_head("application/json")
        with contextlib.suppress(ConnectionError):
            while True:
                await exchange.chunk(b"x" * 65536)

    async with FakeEngine(script=endless) as server, open_session() as session:
        with pytest.raises(UpstreamError, match=r"/v1/models answers with more than 1,048,576 bytes: is the proxy up"):
            await first_model(session, server.url, None)


async def test_an_answer_that_hangs_is_a_timeout_and_the_connection_is_given_up() -> None:
    async with SseServer(lambda *_: Reply([ROLE], ending="hang")) as server, open_session() as session:
        sample = await call(session, Target(server.url, "m"), Shape(timeout_s=0.1), MESSAGES)
        assert sample.error == "timeout"
        await server.until(lambda: server.in_flight == 0)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with SseServer(lambda *_: Reply()) as server:
        url = server.url
    async with open_session() as session:
        assert (await call(session, Target(url, "m"), Shape(), MESSAGES)).error == "unreachable"
        with pytest.raises(UpstreamError, match="is the proxy up"):
            await first_model(session, url, None)


async def test_a_server_without_a_model_list_is_told_from_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.lab.loadcall._MODELS_TIMEOUT_S", 0.1)

    async def busy(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "503 Service Unavailable")

    async def silent(exchange: Exchange) -> None:
        await exchange.gone()

    for script in (busy, silent):
        async with FakeEngine(script=script) as server, open_session() as session:
            with pytest.raises(UpstreamError, match="do its engines answer") as told:
                await first_model(session, server.url, None)
            assert "is the proxy up" not in str(told.value)


async def test_a_foreign_header_value_is_not_taken_for_a_backend() -> None:
    sample, _ = await ask(Reply(whole(), headers={"x-crossover-backend": "x" * 33}))
    assert sample.backend is None


def test_the_key_is_not_in_the_target_s_text() -> None:
    assert "secret" not in repr(Target("http://a", "m", "secret"))


async def test_a_kept_connection_that_was_closed_meanwhile_is_not_an_answer_that_was_cut() -> None:
    """llama.cpp closes after each stream, and says that it does not."""
    connections = 0

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"}}")
        body = b"".join((ROLE, delta(content="a"), DONE))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nkeep-alive: timeout=5\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        await reader.read(1)  # until the next request is on its way
        writer.close()

    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    target = Target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "m")
    async with open_session() as session:
        samples = [await call(session, target, Shape(), [{"role": "user", "content": "hi"}]) for _ in range(3)]
    server.close()
    assert [sample.error for sample in samples] == [None, None, None]
    assert connections == 3
