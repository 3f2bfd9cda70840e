"""Changes of the configuration's files are noticed, each once, however an editor or an orchestrator makes them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.until import until

from proxy import tasks
from proxy.config import Marks, mark
from proxy.config.marks import Mark
from proxy.disk import Disk
from proxy.wire import reload


def replaced(path: Path, text: str) -> None:
    """All at once, as editors do: another file takes the name. One that is written is empty in between."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


class Watched:
    """A file that is watched; `texts` has what it held whenever a change was told."""

    def __init__(self, path: Path, seen: Mark = None) -> None:
        self.path = path
        self.read: Marks = {path: seen or mark(path)}
        self.texts: list[str] = []
        self.looks = 0

    async def changed(self) -> None:
        self.texts.append(self.path.read_text())

    def look(self, path: Path) -> Mark:
        self.looks += 1
        return mark(path)

    def write(self, text: str) -> None:
        replaced(self.path, text)

    def write_in_place(self, text: str) -> None:
        self.path.write_text(text)

    def remove(self) -> None:
        self.path.unlink()

    async def looked(self, times: int) -> None:
        """When the file has been looked at so many times more."""
        wanted = self.looks + times
        await until(lambda: self.looks >= wanted)


@contextlib.asynccontextmanager
async def watching(path: Path, seen: Mark = None) -> AsyncIterator[Watched]:
    watched = Watched(path, seen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reload, "mark", watched.look)
        task = tasks.spawn(reload.watch(lambda: watched.read, Disk(), watched.changed, every_s=0.001), name="watch")
        try:
            yield watched
        finally:
            await tasks.end(task)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "crossover.yaml"
    path.write_text("one")
    return path


async def test_a_file_that_stays_is_not_told(path: Path) -> None:
    async with watching(path) as watched:
        await watched.looked(3)
        assert watched.texts == []


async def test_a_replaced_file_is_told_once(path: Path) -> None:
    async with watching(path) as watched:
        watched.write("two")
        await until(lambda: watched.texts)
        await watched.looked(3)
        assert watched.texts == ["two"]


async def test_a_file_of_the_same_size_is_told(path: Path) -> None:
    async with watching(path) as watched:
        watched.write("eno")
        await until(lambda: watched.texts == ["eno"])


async def test_a_file_that_is_written_in_place_is_told(path: Path) -> None:
    async with watching(path) as watched:
        watched.write_in_place("in place")
        await until(lambda: watched.texts[-1:] == ["in place"])


async def test_a_link_that_turns_to_another_file_is_told(path: Path, tmp_path: Path) -> None:
    """As a mounted ConfigMap changes."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "crossover.yaml").write_text(name)
    data = tmp_path / "data"
    data.symlink_to("first")
    async with watching(data / "crossover.yaml") as watched:
        turned = tmp_path / "turned"
        turned.symlink_to("second")
        turned.replace(data)
        await until(lambda: watched.texts == ["second"])


async def test_a_file_that_vanishes_is_told_only_when_it_is_back(path: Path) -> None:
    async with watching(path) as watched:
        watched.remove()
        await watched.looked(3)
        assert watched.texts == []
        watched.write("back")
        await until(lambda: watched.texts == ["back"])


async def test_a_file_that_changed_before_the_watch_began_is_told(path: Path) -> None:
    seen = mark(path)
    Watched(path).write("edited while the proxy started")
    async with watching(path, seen) as watched:
        await until(lambda: watched.texts == ["edited while the proxy started"])


async def test_a_change_during_a_change_is_not_lost(path: Path) -> None:
    async with watching(path) as watched:
        for number in range(20):
            watched.write(str(number))
            await watched.looked(1)
        await until(lambda: watched.texts[-1:] == ["19"])


# ---------------------------------------------------------------- several files, and others after a reload


async def test_a_file_that_a_reload_brought_in_is_told_only_when_it_changes(path: Path, tmp_path: Path) -> None:
    beside = tmp_path / "keys"
    beside.write_text("a")
    async with watching(path) as watched:
        watched.read = {**watched.read, beside: mark(beside)}
        await watched.looked(6)
        assert watched.texts == []
        replaced(beside, "another")
        await until(lambda: watched.texts == ["one"])
        await watched.looked(6)
        assert watched.texts == ["one"]


async def test_a_file_that_changed_right_behind_its_reading_is_told(path: Path, tmp_path: Path) -> None:
    beside = tmp_path / "keys"
    beside.write_text("a")
    read = mark(beside)
    beside.write_text("edited")
    async with watching(path) as watched:
        watched.read = {**watched.read, beside: read}
        await until(lambda: watched.texts == ["one"])


async def test_a_file_that_a_reload_dropped_is_told_no_more(path: Path, tmp_path: Path) -> None:
    beside = tmp_path / "keys"
    beside.write_text("a")
    async with watching(path) as watched:
        watched.read = {path: mark(path), beside: mark(beside)}
        await watched.looked(4)
        watched.read = {path: mark(path)}
        await watched.looked(4)
        beside.write_text("nobody reads this")
        await watched.looked(4)
        assert watched.texts == []


async def test_two_files_that_change_at_once_are_told_once(path: Path, tmp_path: Path) -> None:
    beside = tmp_path / "keys"
    beside.write_text("a")
    seen = {path: mark(path), beside: mark(beside)}
    for each in seen:
        Watched(each).write("another")
    async with watching(path) as watched:
        watched.read = seen
        await until(lambda: watched.texts)
        await watched.looked(6)
        assert watched.texts == ["another"]
