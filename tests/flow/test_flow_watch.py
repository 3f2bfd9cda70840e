"""What operators see of a running proxy: history, journal, single requests, and the stream of it all."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from fakes.events import events
from fakes.leaping import LeapingSocketLoop, leaping
from fakes.raw import ask, chat, request
from fakes.stage import Stage, staged
from fakes.until import until, until_told

from proxy import watch
from proxy.config import InvalidConfig
from proxy.config.problems import Problem
from proxy.model import CircuitState, Role
from proxy.routing.breaker import Circuit
from proxy.watch import stream
from proxy.watch.history import COLUMNS
from proxy.watch.routes import MAX_OF_ONE
from proxy.watch.stream import KERNEL_BYTES, MAX_READERS, MAX_UNSENT_BYTES, event

QUICKLY_S = 0.02


class Window:
    """An operator's window on one proxy."""

    def __init__(self, stage: Stage, session: aiohttp.ClientSession) -> None:
        self.stage, self.app, self.session = stage, stage.app, session

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.app.admin_port}{path}"

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.url(path), headers=headers) as answer:
            return answer.status, await answer.json()

    async def chat(self, request_id: str, **how: Any) -> None:
        await ask(self.app.port, request("/v1/chat/completions", chat(**how), f"x-request-id: {request_id}"))

    async def journal(self, kind: str) -> list[dict[str, Any]]:
        _, told = await self.get("/journal")
        return [entry for entry in told["events"] if entry["kind"] == kind]

    def events(self, response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
        return events(response)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns come fifty times a second."""
    start = watch.Watch.start
    monkeypatch.setattr(watch.Watch, "start", lambda self: start(self, every_s=QUICKLY_S))
    return iter(())


@contextlib.asynccontextmanager
async def windowed(**sections: Any) -> AsyncIterator[Window]:
    # Polls as fast as turns would be noise here; answers of more than the usual 64 KiB a line are read.
    async with staged(**sections) as stage, aiohttp.ClientSession(read_bufsize=1 << 22) as session:
        yield Window(stage, session)


# ---------------------------------------------------------------- history


async def test_history_has_the_columns_and_rows_of_their_length_oldest_first() -> None:
    async with windowed() as window:
        await window.chat("one")
        await until(lambda: any(sample.speculative_requests for sample in window.app.watch.history.samples))
        status, told = await window.get("/history?seconds=60")
    assert (status, told["columns"]) == (200, list(COLUMNS))
    assert all(len(sample) == len(COLUMNS) for sample in told["samples"])
    instants = [sample[0] for sample in told["samples"]]
    assert instants == sorted(instants)
    assert instants[0] > 1.6e9, "unix seconds"
    decided = told["columns"].index("speculative_requests")
    assert sum(sample[decided] for sample in told["samples"]) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "many", "", "nan", "1_0"])
async def test_a_span_that_is_none_is_refused_with_what_it_is(seconds: str) -> None:
    async with windowed() as window:
        status, told = await window.get(f"/history?seconds={seconds}")
    assert status == 400
    assert "seconds is a number above 0" in told["error"]


async def test_a_shorter_span_brings_the_newest_samples() -> None:
    async with windowed() as window:
        await until(lambda: len(window.app.watch.history.samples) > 10)
        _, told = await window.get("/history?seconds=0.05")
        _, whole = await window.get("/history?seconds=inf")
    assert 0 < len(told["samples"]) < len(whole["samples"])


@leaping
async def test_a_turn_that_comes_late_is_followed_by_none_at_once() -> None:
    async with windowed() as window:
        loop, history = asyncio.get_running_loop(), window.app.watch.history
        assert isinstance(loop, LeapingSocketLoop)
        for part in range(1, 8):
            taken = len(history.samples)
            await until(lambda taken=taken: len(history.samples) > taken + 2)  # type: ignore[misc]
            loop.leapt_s += QUICKLY_S * (1.0 + part / 8)  # the loop is held up beyond the next turn
        instants = [sample.at_s for sample in history.samples]
    assert min(later - one for one, later in pairwise(instants)) >= QUICKLY_S / 2 - 1e-6


# ---------------------------------------------------------------- journal


async def test_the_journal_tells_start_and_engines_and_what_operators_do() -> None:
    async with windowed() as window:
        assert len(await window.journal("started")) == 1
        await until_told(lambda: _count(window, "engine_seen", 2))
        window.app.pin(Role.BASELINE)
        window.app.drain_backend(Role.SPECULATIVE, draining=True)
        [pin] = await window.journal("pin")
        assert (pin["role"], pin["sentence"][:11]) == ("baseline", "An operator")
        [drain] = await window.journal("drain")
        assert drain["role"] == "speculative"
        await until_told(lambda: _count(window, "eligible", 1))
        [taken] = await window.journal("eligible")
        assert taken["sentence"] == "Speculative takes no requests: it is draining."


async def test_a_backend_on_trial_is_not_told_to_take_requests_again() -> None:
    async with windowed() as window:
        desk, history = window.app.desk, window.app.watch.history
        backend, clock = desk.backend(Role.SPECULATIVE), desk.clock
        backend.circuit = Circuit(CircuitState.OPEN, clock())
        await until_told(lambda: _count(window, "eligible", 1))
        backend.circuit = Circuit(CircuitState.OPEN, clock() - 3600.0)  # it has cooled down: single requests may try it
        taken = len(history.samples)
        await until(lambda: len(history.samples) > taken + 3)
        assert await _count(window, "eligible", 1)
        sentence = window.app.status()["sentence"]
        assert sentence.startswith(
            "All but trial requests go to baseline, since speculative takes single trial requests"
        )
        backend.circuit = Circuit()
        await until_told(lambda: _count(window, "eligible", 2))
        assert (await window.journal("eligible"))[0]["sentence"] == "Speculative takes requests again."


async def test_the_journal_is_newest_first_and_as_long_as_asked() -> None:
    async with windowed() as window:
        for role in (Role.BASELINE, Role.SPECULATIVE, None):
            window.app.pin(role)
        _, told = await window.get("/journal?limit=2")
        assert [entry.get("role") for entry in told["events"]] == [None, "speculative"]
        for limit in ("some", "0", "501"):
            assert (await window.get(f"/journal?limit={limit}"))[0] == 400


async def test_the_journal_tells_reloads_and_refused_ones() -> None:
    async with windowed() as window:
        await window.app.reload()
        window.app._reject(["crossover.yaml:3: it is wrong; mend it"])
        [taken] = await window.journal("reload")
        [refused] = await window.journal("reload_failed")
    assert "nothing has changed" in taken["sentence"]
    assert "it is wrong; mend it" in refused["sentence"]


async def test_an_engine_that_says_the_same_again_is_told_once() -> None:
    async with windowed() as window:
        await until_told(lambda: _count(window, "engine_seen", 2))
        for backend in window.app.desk.backends:
            window.app.acquaintance.met(backend)
        assert len(await window.journal("engine_seen")) == 2
        assert await window.journal("engine_changed") == []


async def _count(window: Window, kind: str, count: int) -> bool:
    return len(await window.journal(kind)) == count


# ---------------------------------------------------------------- single requests


async def test_a_request_is_told_with_its_decision_and_how_it_ended() -> None:
    async with windowed() as window:
        await window.chat("other")
        await window.chat("mine", stream=True)
        await until(lambda: len(window.stage.ended) == 2)
        status, told = await window.get("/decisions?request_id=mine")
        _, explained = await window.get("/explain/mine")
    assert status == 200
    [decision] = told["decisions"]
    assert (decision["request_id"], decision["role"]) == ("mine", "speculative")
    settled = told["settled"]
    assert (settled["status"], settled["outcome"], settled["failure"]) == (200, "finished", None)
    assert settled["stream"] is True
    assert settled["duration_s"] > 0
    assert (explained["request_id"], explained["settled"]) == ("mine", settled)


@pytest.mark.parametrize("request_id", [".", "..", "a/../b"])
async def test_a_request_whose_id_no_path_can_end_in_is_told_in_words(request_id: str) -> None:
    async with windowed() as window:
        await window.chat(request_id)
        await until(lambda: window.stage.ended)
        _, told = await window.get(f"/decisions?request_id={request_id}")
    assert (told["request_id"], len(told["decisions"]), told["settled"]["status"]) == (request_id, 1, 200)
    assert told["sentences"][0].startswith("The request asked /v1/chat/completions")


async def test_of_many_requests_with_one_id_the_latest_decisions_are_told() -> None:
    async with windowed() as window:
        for number in range(MAX_OF_ONE + 5):
            await window.chat("same", n=2 if number < 5 else 1)
        _, told = await window.get("/decisions?request_id=same")
        _, explained = await window.get("/explain/same")
    assert len(told["decisions"]) == len(explained["decisions"]) == MAX_OF_ONE
    assert {each["weight"] for each in told["decisions"]} == {1}


async def test_the_beginning_of_an_id_is_enough_where_one_request_has_it() -> None:
    async with windowed() as window:
        for request_id in ("0123456789abcdef", "0123456789fedcba", "fedcba9876543210"):
            await window.chat(request_id)
        await until(lambda: len(window.stage.ended) == 3)
        _, explained = await window.get("/explain/fedcba98")
        assert explained["request_id"] == "fedcba9876543210"
        assert explained["settled"]["status"] == 200
        assert (await window.get("/decisions?request_id=fedcba98"))[0] == 200
        for asked in ("01234567", "0123456789", "fedcba9"):
            status, told = await window.get(f"/explain/{asked}")
            assert (status, "give more of the id" in told["error"]) == (404, True)


async def test_the_ids_of_requests_that_failed_are_told_newest_first() -> None:
    async with windowed() as window:
        await window.chat("well")
        for fake in (window.stage.a, window.stage.b):
            await fake.close()
        for request_id in ("one", "two"):
            await window.chat(request_id)
        await until(lambda: len(window.stage.ended) == 3)
        status, told = await window.get("/failures?limit=2")
        assert status == 200
        assert [each["request_id"] for each in told["failures"]] == ["two", "one"]
        first = told["failures"][0]
        _, explained = await window.get("/explain/two")
        assert first["settled"] == explained["settled"] and first["settled"]["failure"] is not None
        assert (await window.get("/failures?limit=0"))[0] == 400


async def test_a_request_that_nobody_knows_is_answered_with_the_mend() -> None:
    async with windowed() as window:
        for path in ("/decisions?request_id=nobody", "/explain/nobody", "/explain/a%2Fb%00"):
            status, told = await window.get(path)
            assert status == 404
            assert "into the log" in told["error"]


async def test_what_is_kept_of_a_long_prompt_is_not_its_hashes() -> None:
    async with windowed() as window:
        await window.chat("long", messages=[{"role": "user", "content": "a long prompt " * 1000}])
        await until(lambda: window.stage.ended)
        assert window.stage.ended[0].traits.prefix
        kept = window.app.watch.settled("long")
        assert kept is not None
        assert kept.traits.prefix == ()


# ---------------------------------------------------------------- the stream


async def test_the_stream_tells_state_samples_decisions_and_journal() -> None:
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = window.events(answer)
        name, state = await anext(events)
        assert (name, state["phase"]) == ("state", "serving")
        assert "requests go to speculative" in state["sentence"]
        await window.chat("seen")
        window.app.pin(Role.BASELINE)
        seen: dict[str, Any] = {}
        async for name, told in events:
            seen.setdefault(name, told)
            if {"sample", "journal", "decisions"} <= seen.keys() and name == "state" and told["pinned"] == "baseline":
                break
    assert len(seen["sample"]) == len(COLUMNS)
    assert seen["decisions"]["count"] == 1
    assert [each["request_id"] for each in seen["decisions"]["shown"]] == ["seen"]
    assert seen["journal"]["sentence"]


async def test_many_decisions_are_counted_and_the_newest_twenty_shown() -> None:
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        events = window.events(answer)
        await anext(events)
        for number in range(30):
            await window.chat(f"r{number}")
        window.app.watch._told_at_s = 0.0
        shown = window.app.watch._shown(0.0)
    assert [each["request_id"] for each in shown] == [f"r{29 - number}" for number in range(20)]


async def test_nothing_is_made_while_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    async with windowed() as window:
        asked: list[int] = []
        monkeypatch.setattr(window.app.watch, "_status", lambda: asked.append(1) or {})
        turned = len(window.app.watch.history.samples)
        await until(lambda: len(window.app.watch.history.samples) > turned + 10)
        assert asked == []


async def test_one_reader_too_many_is_refused_and_one_that_leaves_makes_room() -> None:
    async with windowed() as window, contextlib.AsyncExitStack() as stack:
        answers = [await window.session.get(window.url("/stream")) for _ in range(MAX_READERS)]
        for answer in answers:
            stack.callback(answer.close)
        status, told = await window.get("/stream")
        assert status == 503
        assert "close one" in told["error"]
        answers[0].close()
        await until(lambda: window.app.watch.stream.readers < MAX_READERS)
        async with window.session.get(window.url("/stream")) as answer:
            assert answer.status == 200


async def test_a_reader_that_does_not_read_is_dropped() -> None:
    async with windowed() as window:
        reader, writer = await asyncio.open_connection("127.0.0.1", window.app.admin_port, limit=1024)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: window.app.watch.stream.readers == 1)
        # As a busy proxy goes on telling. What both kernels take is known: ours asks for little, and this one stops.
        told_bytes = 0
        while window.app.watch.stream.readers:
            window.app.watch.stream.publish(b": %s\n\n" % (b"x" * 4096))
            told_bytes += 4096
            await asyncio.sleep(0)
        theirs = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        assert told_bytes < 2 * (2 * KERNEL_BYTES + MAX_UNSENT_BYTES + theirs)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(-1), 10)
        writer.close()


async def test_a_reader_that_does_not_read_is_dropped_on_a_quiet_proxy_long_before_its_bytes_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "UNREAD_S", 1.0)
    told_bytes = 0

    def publish(self: stream.Stream, events: bytes) -> None:
        nonlocal told_bytes
        told_bytes += len(events)
        original(self, events)

    original = stream.Stream.publish
    monkeypatch.setattr(stream.Stream, "publish", publish)
    async with windowed() as window:
        silent = socket.socket()
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", window.app.admin_port))
        silent.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with window.session.get(window.url("/stream")) as answer:
            reading = asyncio.ensure_future(collect(window.events(answer)))
            await until(lambda: window.app.watch.stream.readers == 2)
            await until(lambda: window.app.watch.stream.readers == 1)
            assert told_bytes < MAX_UNSENT_BYTES
            assert not reading.done(), "who reads is kept"
            reading.cancel()
        silent.close()


async def collect(told: AsyncIterator[tuple[str, Any]]) -> None:
    async for _ in told:
        pass


async def test_a_reader_that_takes_what_comes_is_kept_through_more_than_may_wait() -> None:
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        events = window.events(answer)
        await anext(events)
        for _ in range(64):
            window.app.watch.stream.publish(event("mine", "x" * (MAX_UNSENT_BYTES // 8)))
            while (await anext(events))[0] != "mine":
                pass
        assert window.app.watch.stream.readers == 1


async def test_a_reader_that_is_gone_frees_its_place_before_anything_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with windowed() as window:
        stream = window.app.watch.stream
        monkeypatch.setattr(stream, "publish", lambda _: None)
        writers = [(await asyncio.open_connection("127.0.0.1", window.app.admin_port))[1] for _ in range(MAX_READERS)]
        for writer in writers:
            writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: stream.full)
        writers[0].transport.abort()
        await until(lambda: not stream.full)
        monkeypatch.undo()
        await until(lambda: stream.readers == MAX_READERS - 1)
        for writer in writers:
            writer.close()


async def test_the_stream_ends_with_the_proxy() -> None:
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        events = window.events(answer)
        await anext(events)
        await window.app.watch.stop()
        await asyncio.wait_for(_drained(events), 10)
        assert (await window.get("/stream"))[0] == 503


async def _drained(events: AsyncIterator[tuple[str, Any]]) -> None:
    async for _ in events:
        pass


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
async def test_another_site_cannot_take_the_places_of_readers(headers: dict[str, str]) -> None:
    async with windowed() as window:
        async with window.session.get(window.url("/stream"), headers=headers) as answer:
            assert answer.status == 403
        async with window.session.get(window.url("/stream"), headers={"Sec-Fetch-Site": "same-origin"}) as answer:
            assert answer.status == 200


# ---------------------------------------------------------------- what cannot be told


async def test_a_turn_that_fails_is_told_once_and_the_next_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        events = window.events(answer)
        await anext(events)
        monkeypatch.setattr(window.app.watch, "_news", lambda _: 1 / 0)
        turned = len(window.app.watch.history.samples)
        await until(lambda: len(window.app.watch.history.samples) > turned + 5)
        window.app.pin(Role.BASELINE)
        turned = len(window.app.watch.history.samples)
        await until(lambda: len(window.app.watch.history.samples) > turned + 1)
        monkeypatch.undo()
        names = [name async for name, _ in _first(events, 3)]
    assert told == ["a turn of what operators see failed"]
    assert "sample" in names
    assert "journal" not in names, "what could not be told is not tried again"


async def _first(events: AsyncIterator[tuple[str, Any]], count: int) -> AsyncIterator[tuple[str, Any]]:
    for _ in range(count):
        yield await anext(events)


async def test_what_json_cannot_carry_takes_no_answer_and_no_stream_with_it() -> None:
    async with windowed() as window, window.session.get(window.url("/stream")) as answer:
        events = window.events(answer)
        await anext(events)
        window.app._source = _refused_in_a_folder_without_utf8
        async with window.session.post(window.url("/reload")) as refused:
            assert (refused.status, b"caf\\\\udce9" in await refused.read()) == (422, True)
        async for name, told in events:
            if name == "journal" and told["kind"] == "reload_failed":
                assert "caf\\udce9" in told["sentence"]
                break
        [entry] = await window.journal("reload_failed")
        assert "caf\\udce9" in entry["sentence"]
        assert (await window.get("/config/differences"))[0] == 200


def _refused_in_a_folder_without_utf8() -> Any:
    raise InvalidConfig([Problem("/srv/caf\udce9/crossover.yaml", 1, 1, "nonsense", "is not a key here")])


# ---------------------------------------------------------------- the configuration beside its file


async def test_keys_that_were_set_are_told_with_their_defaults_and_a_changed_file_is_pending() -> None:
    async with windowed(routing={"leave_at": 12}, admin={"port": 0, "token": "sesame"}) as window:
        changed = window.app.settings.model_copy(
            update={"routing": window.app.settings.routing.model_copy(update={"leave_at": 20})}
        )
        window.app._source = lambda: changed
        _, told = await window.get("/config/differences", Authorization="Bearer sesame")
    assert {"key": "routing.leave_at", "value": 12, "default": 9} in told["set"]
    assert {"key": "routing.leave_at", "in_force": 12, "in_file": 20, "needs_restart": False} in told["pending"]
    assert "sesame" not in str(told)
