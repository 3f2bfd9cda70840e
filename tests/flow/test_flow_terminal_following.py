"""`crossover top` reads the proxy's stream in place of asking for each frame, and asks where there is none."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakes.operators import STATUS, operators
from fakes.stage import Stage, staged
from fakes.until import until, until_told
from fakes.watched import WATCHED

from proxy import watch
from proxy.model import Role
from proxy.terminal import following, top
from proxy.terminal.deadline import Deadline
from proxy.terminal.following import Following
from proxy.terminal.port import Port
from proxy.terminal.view import View, after
from proxy.watch.stream import MAX_UNSENT_BYTES, event

ONE_LOOK = ["/status", "/history?seconds=60", "/decisions?limit=50", "/journal?limit=50"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns come fifty times a second."""
    start = watch.Watch.start
    monkeypatch.setattr(watch.Watch, "start", lambda self: start(self, every_s=0.02))
    return iter(())


class Asking(Port):
    """A port that notes what it is asked for; streams are in `streams`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked: list[str] = []
        self.streams = 0

    def text(self, path: str) -> str:
        self.asked.append(path)
        return super().text(path)

    def lines(self, path: str, deadline: Deadline) -> Iterator[str]:
        self.streams += 1
        return super().lines(path, deadline)


def at(stage: Stage) -> Asking:
    return Asking(f"http://127.0.0.1:{stage.app.admin_port}")


async def seen(looks: Following, holds: Callable[[View], object]) -> View:
    """The first view of which it holds."""
    view: list[View] = []

    async def looked() -> bool:
        view.append(await asyncio.to_thread(looks.look))
        return bool(holds(view[-1]))

    await until_told(looked)
    return view[-1]


async def followed(looks: Following) -> None:
    """The stream is read by now."""
    await seen(looks, lambda _: looks._reader is not None and looks._reader.fresh)


async def following_stream(stage: Stage, *how: Callable[[View], None]) -> tuple[Asking, Following]:
    """Looks that read the stream of a proxy with a few samples, and the port they ask."""
    await until(lambda: len(stage.app.watch.history.samples) > 3)
    port = at(stage)
    looks = Following(port, 1.0, *how)
    await followed(looks)
    return port, looks


async def test_once_the_stream_is_read_nothing_is_asked_for_and_all_that_happens_is_seen() -> None:
    async with staged() as stage:
        port, looks = await following_stream(stage)
        before = len(port.asked)
        await stage.ask("x-request-id: seen-by-top")
        view = await seen(looks, lambda view: any(each["request_id"] == "seen-by-top" for each in view.decisions))
        assert view.total("speculative_requests") == 1
        stage.app.pin(Role.BASELINE)
        view = await seen(looks, lambda view: view.status["pinned"] == "baseline")
        assert view.events[0]["kind"] == "pin"
        with stage.app.desk.ledger.open(stage.app.desk.backend(Role.BASELINE).book, 3):
            view = await seen(looks, lambda view: view.status["backends"][1]["in_flight"] == 3)
        instants = view.column("at_s")
        assert instants == sorted(set(instants))
        assert (len(port.asked), port.streams) == (before, 1)
        looks.close()
        await until(lambda: stage.app.watch.stream.readers == 0)


async def test_a_single_look_and_looks_far_apart_read_no_stream() -> None:
    with operators(**WATCHED) as scene:
        await asyncio.to_thread(Following(Port(scene.url), 1.0).look)
        far = Following(Port(scene.url), 30.0)
        for _ in range(3):
            await asyncio.to_thread(far.look)
        assert scene.asked == ONE_LOOK * 4


async def test_a_stream_that_breaks_is_looked_past_and_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "AGAIN_S", 0.0)
    async with staged() as stage:
        port, looks = await following_stream(stage)
        streams, asked = port.streams, len(port.asked)
        stage.app.watch.stream.end()
        await seen(looks, lambda _: port.streams > streams)
        assert len(port.asked) > asked
        await followed(looks)
        looks.close()


@pytest.mark.parametrize("name", ["SILENT_S", "ANEW_S"])
async def test_a_stream_that_is_silent_or_old_is_asked_past(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with staged() as stage:
        port, looks = await following_stream(stage)
        monkeypatch.setattr(following, name, 0.0)
        asked = len(port.asked)
        await asyncio.to_thread(looks.look)
        assert port.asked[asked:] == ONE_LOOK
        looks.close()


async def test_what_the_stream_tells_and_no_frame_can_show_is_asked_past() -> None:
    async with staged() as stage:
        port, looks = await following_stream(stage, top._require_drawable)
        asked = len(port.asked)
        stage.app.watch.stream.publish(event("decisions", {"count": 1, "shown": [{"because": [1]}]}))
        view = await seen(looks, lambda _: len(port.asked) > asked)
        assert (port.asked[asked:], view.decisions) == (ONE_LOOK, [])
        looks.close()


async def test_a_stream_that_tells_more_than_a_proxy_would_is_asked_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_BYTES_A_SECOND", MAX_UNSENT_BYTES // 2)
    async with staged() as stage:
        port, looks = await following_stream(stage)
        asked = len(port.asked)
        stage.app.watch.stream.publish(b":\n" * (MAX_UNSENT_BYTES // 3))
        await seen(looks, lambda _: len(port.asked) > asked)
        assert port.asked[asked:] == ONE_LOOK
        looks.close()


ODD = [
    (404, {"error": "no such path"}),
    (503, {"error": "32 read the stream already"}),
    b"",
    b"event: sample\ndata: 3\n\n",
    b"event: state\ndata: []\n\n",
    b"event: journal\ndata: {\n\n",
    b"\xff\xfe",
    b'event: decisions\ndata: {"shown": 3}\n\n' * 2,
]


@pytest.mark.parametrize("stream", ODD)
def test_what_is_no_stream_is_asked_past_and_not_asked_for_again_at_once(stream: Any) -> None:
    with operators(**WATCHED, stream=stream) as scene:
        looks = Following(Port(scene.url), 1.0)
        for _ in range(5):
            assert looks.look().status == STATUS
        looks.close()
        asked = [path for path in scene.asked if path != "/stream"]
        assert asked == ONE_LOOK * 5
        assert scene.asked.count("/stream") <= 1


def test_a_row_of_an_earlier_time_is_no_row_of_this_view() -> None:
    view = View("u", STATUS, samples={"at_s": [100.0], "waiting": [0]})
    with pytest.raises(ValueError, match="set back"):
        after(view, "sample", [50.0, 1])
    assert after(view, "sample", [100.0, 1]) is view
    with pytest.raises(ValueError, match="longer"):
        after(view, "sample", [101.0, 1, 2])
