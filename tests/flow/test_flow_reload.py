"""The configuration changes under running streams: whole or not at all, and no stream notices."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from fakes.engine import Exchange
from fakes.reloading import BASELINE, SPECULATIVE, Crowd, Engine, crowded, staged
from fakes.until import until

from proxy import config
from proxy.config import Settings
from proxy.model import Role

# ---------------------------------------------------------------- what is taken over


async def test_a_changed_threshold_holds_at_once_and_no_stream_notices(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd, _, _):
        assert (crowd.went.count(SPECULATIVE), crowd.went.count(BASELINE)) == (60, 40)
        stage.change(routing={"leave_at": 62})
        assert await stage.reload() == (200, {"reloaded": True, "changes": ["routing.leave_at: 60 -> 62"]})
        assert (stage.in_flight(Role.SPECULATIVE), stage.in_flight(Role.BASELINE)) == (60, 40)
        await crowd.join(4)
        assert crowd.went[-4:].count(SPECULATIVE) == 2
        assert await stage.metric('crossover_threshold_sequences{bound="leave_at"}') == 62


async def test_a_backend_of_another_address_gets_what_is_new_and_the_old_one_finishes_what_it_has(
    tmp_path: Path,
) -> None:
    async with Engine() as c, crowded(tmp_path) as (stage, crowd, a, b):
        stage.change(backends={BASELINE: {"url": c.url}})
        status, said = await stage.reload()
        assert (status, said["changes"]) == (200, [f"backends.baseline.url: {b.url} -> {c.url}"])
        old = next(book for book in stage.app.desk.ledger.books if book.name == b.url)
        assert (old.in_flight, stage.in_flight(Role.BASELINE), stage.in_flight(Role.SPECULATIVE)) == (40, 0, 60)
        assert (await (await stage.admin.get("/status")).json())["dropped_in_flight"] == {b.url: 40}
        await crowd.join(5)
        assert (c.open, stage.in_flight(Role.BASELINE), b.open, a.open) == (5, 5, 40, 60)
        c.gate.set()
        b.gate.set()
        await until(lambda: old.in_flight == 0)
        assert (await (await stage.admin.get("/status")).json())["dropped_in_flight"] == {}


async def test_a_dropped_backend_is_asked_nothing_more_even_while_its_streams_run(
    tmp_path: Path,
) -> None:
    async with Engine() as c, crowded(tmp_path, 2) as (stage, _, a, _b):
        stage.change(backends={SPECULATIVE: {"url": c.url}})
        assert (await stage.reload())[0] == 200
        line = stage.app.pair._retired[0]
        await until(lambda: all(task.done() for task in line._tasks), what="the end of its being watched")
        asked, met = a.questions, c.questions
        await until(lambda: c.questions > met + 8)
        assert (a.questions, a.open) == (asked, 2)


async def test_the_connections_of_a_dropped_backend_are_closed_after_its_last_stream(tmp_path: Path) -> None:
    async with Engine() as c, crowded(tmp_path, 2) as (stage, crowd, a, _):
        stage.change(backends={SPECULATIVE: {"url": c.url}})
        assert (await stage.reload())[0] == 200
        a.gate.set()
        await crowd.all_end_well()
        crowd.clients.clear()
        await until(lambda: a.connections == 0)
        await until(lambda: stage.app.pair._retired == [], what="the line of the dropped backend gone")


async def test_backends_that_change_places_keep_their_counts(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd, a, b):
        stage.change(backends={SPECULATIVE: {"url": b.url}, BASELINE: {"url": a.url}})
        assert (await stage.reload())[0] == 200
        assert (stage.in_flight(Role.SPECULATIVE), stage.in_flight(Role.BASELINE)) == (40, 60)
        await crowd.join(1)
        assert (crowd.went[-1], b.open) == (SPECULATIVE, 41)


async def test_a_new_key_is_sent_from_the_next_request_on(tmp_path: Path) -> None:
    async with crowded(tmp_path, 1) as (stage, _, a, _b):
        stage.change(backends={SPECULATIVE: {"url": a.url, "api_key": "k2"}})
        status, said = await stage.reload()
        assert (status, said["changes"]) == (200, ["backends.speculative.api_key: None -> ***"])
        assert (await stage.ask()).status == 200
        assert [each.header("authorization") for each in a.requests] == [None, "Bearer k2"]
        assert stage.in_flight(Role.SPECULATIVE) == 1


async def test_a_raised_limit_lets_waiting_requests_in(tmp_path: Path) -> None:
    async with (
        Engine(limit=1) as a,
        Engine(BASELINE, limit=1) as b,
        contextlib.AsyncExitStack() as stack,
        staged(tmp_path / "crossover.yaml", a, b) as stage,
    ):
        crowd = Crowd(stage, stack)
        await crowd.join(2)
        more = asyncio.gather(*(crowd.join(1) for _ in range(3)))
        await until(lambda: stage.app.admission.waiting == 3)
        stage.change(backends={SPECULATIVE: {"url": a.url, "max_in_flight": 4}})
        assert (await stage.reload())[0] == 200
        await more
        assert (a.open, b.open) == (4, 1)
        a.gate.set()
        b.gate.set()
        await crowd.all_end_well()


async def test_a_request_that_is_on_its_way_to_a_backend_as_that_is_dropped_is_served_there(tmp_path: Path) -> None:
    """It has its place on the baseline and waits only for the rest of the first attempt's answer."""
    rest = asyncio.Event()

    async def fail_slowly(exchange: Exchange) -> None:
        await exchange.head("500 Internal Server Error", "content-length: 2")
        await rest.wait()
        await exchange.send(b"no")

    async with Engine() as a, Engine(BASELINE) as b, Engine() as c, staged(tmp_path / "c.yaml", a, b) as stage:
        a.script = fail_slowly
        answer = asyncio.ensure_future(stage.ask())
        await until(lambda: len(stage.app.desk.ring) == 2)
        stage.change(backends={BASELINE: {"url": c.url}})
        assert (await stage.reload())[0] == 200
        await until(lambda: c.questions > 2)
        rest.set()
        assert ((await answer).status, len(b.requests), len(c.requests)) == (200, 1, 0)


# ---------------------------------------------------------------- what is refused

BAD = {
    "a typo in a key": ("routing: {leave_att: 3}\n", "leave_att"),
    "a wrong type": ("routing: {leave_at: many}\n", "routing.leave_at"),
    "an impossible pair": ("routing: {leave_at: 3, enter_at: 7}\n", "enter_at"),
    "cut off in the middle": ("routing: {leave_at: 3, ent", "crossover.yaml:"),
    "a key twice": ("placement: shared\nplacement: shared\n", "placement"),
    "empty": ("", "backends"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_file_changes_nothing_and_is_told(tmp_path: Path, name: str) -> None:
    text, told = BAD[name]
    async with crowded(tmp_path, 10) as (stage, crowd, _, _b):
        before = await (await stage.admin.get("/config")).text()
        good = yaml.safe_dump({key: stage.values[key] for key in ("listen", "admin", "backends")})
        stage.write((good if text else "") + text)
        status, said = await stage.reload()
        assert (status, said["reloaded"]) == (422, False)
        assert any(told in problem and "crossover.yaml" in problem for problem in said["problems"])
        assert await (await stage.admin.get("/config")).text() == before
        assert await stage.metric("crossover_config_reload_failed") == 1
        assert await stage.metric('crossover_config_reloads_total{result="rejected"}') == 1
        await crowd.join(1)
        assert crowd.went == [SPECULATIVE] * 11
        stage.change(routing={"leave_at": 61})
        assert (await stage.reload())[0] == 200
        assert await stage.metric("crossover_config_reload_failed") == 0


def vanish(path: Path) -> None:
    path.unlink()


def turn_to_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def turn_to_bytes(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00listen")


def turn_to_a_bomb(path: Path) -> None:
    path.write_text("a: " + "[" * 20_000)


@pytest.mark.parametrize("spoil", [vanish, turn_to_a_folder, turn_to_bytes, turn_to_a_bomb])
async def test_a_file_that_cannot_be_read_changes_nothing_and_is_told(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    async with crowded(tmp_path, 3) as (stage, crowd, _, _b):
        spoil(stage.path)
        status, said = await stage.reload()
        assert (status, said["reloaded"], bool(said["problems"])) == (422, False, True)
        await crowd.join(1)


@pytest.mark.parametrize("section", ["listen", "admin"])
async def test_a_port_cannot_change_while_running(tmp_path: Path, section: str) -> None:
    async with crowded(tmp_path, 3) as (stage, crowd, _, _b):
        stage.change(**{section: {"port": 1234}, "routing": {"leave_at": 99}})
        status, said = await stage.reload()
        assert (status, said["problems"]) == (
            422,
            [f"{section}.port cannot change while running; restart for it"],
        )
        assert stage.app.desk.rules.leave_at == 60
        await crowd.join(1)


# ---------------------------------------------------------------- many at once


async def test_of_two_reloads_at_once_the_one_that_read_the_newer_file_wins(tmp_path: Path) -> None:
    async with Engine() as a, Engine(BASELINE) as b:
        path = tmp_path / "crossover.yaml"
        slow, begun = threading.Event(), threading.Event()

        def source() -> Settings:
            settings = config.load(path, {})
            if not begun.is_set():
                begun.set()
                assert slow.wait(5)
            return settings

        async with staged(path, a, b, source) as stage:
            stage.change(routing={"leave_at": 71})
            first = asyncio.ensure_future(stage.reload())
            await until(begun.is_set)
            stage.change(routing={"leave_at": 72})
            second = asyncio.ensure_future(stage.reload())
            asyncio.get_running_loop().call_later(0.1, slow.set)
            assert ((await first)[0], (await second)[0]) == (200, 200)
            assert stage.app.desk.rules.leave_at == 72


async def test_a_disk_that_hangs_is_told_to_all_who_ask_and_nobody_else_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.source.READ_WITHIN_S", 0.05)
    async with Engine() as a, Engine(BASELINE) as b:
        path = tmp_path / "crossover.yaml"
        answers, asked = threading.Event(), 0

        def source() -> Settings:
            nonlocal asked
            asked += 1
            answers.wait()
            return config.load(path, {})

        async with staged(path, a, b, source) as stage:
            many = [asyncio.ensure_future(stage.app.differences()) for _ in range(50)]
            status, said = await stage.reload()
            assert (status, "its disk did not answer" in said["problems"][0]) == (422, True)
            told = await asyncio.gather(*many)
            assert all("did not answer" in each["problems"][0] for each in told)
            assert asked == 1
            crowd = await asyncio.gather(*(stage.reload() for _ in range(20)))
            assert {status for status, _ in crowd} == {422}
            rejected = [entry for entry in stage.app.watch.journal.newest(100) if entry.kind == "reload_failed"]
            assert len(rejected) <= 3, "they share what one of them waits for"
            async with asyncio.timeout(10):
                await asyncio.to_thread(int)  # of the loop's own threads none is taken
            answers.set()
            monkeypatch.undo()
            assert (await stage.reload())[0] == 200


async def test_a_reload_that_ends_after_the_proxy_starts_nothing(tmp_path: Path) -> None:
    async with Engine() as a, Engine(BASELINE) as b, Engine() as c:
        path = tmp_path / "crossover.yaml"
        slow, begun = threading.Event(), threading.Event()

        def source() -> Settings:
            begun.set()
            assert slow.wait(5)
            return config.load(path, {})

        async with staged(path, a, b, source) as stage:
            stage.change(backends={SPECULATIVE: {"url": c.url}})
            reload = asyncio.ensure_future(stage.app.reload())
            await until(begun.is_set)
        slow.set()
        assert await reload == (False, ["the proxy has stopped; start it again"])
        assert c.questions == 0
