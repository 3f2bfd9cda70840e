"""Changes of the configuration file are noticed, each once, however an editor or an orchestrator makes them."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.until import until

from proxy import tasks
from proxy.wire import reload
from proxy.wire.reload import Beside, Mark, mark


class Watched:
    """A file that is watched; `texts` has what it held whenever a change was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[str] = []
        self.looks = 0

    async def changed(self) -> None:
        self.texts.append(self.path.read_text())

    def look(self, path: Path) -> Mark:
        self.looks += 1
        return mark(path)

    def write(self, text: str) -> None:
        """All at once, as editors do: another file takes the name."""
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.path)

    def write_in_place(self, text: str) -> None:
        self.path.write_text(text)

    def remove(self) -> None:
        self.path.unlink()

    async def looked(self, times: int) -> None:
        """When the file has been looked at so many times more."""
        wanted = self.looks + times
        await until(lambda: self.looks >= wanted)


@contextlib.asynccontextmanager
async def watching(path: Path, seen: Mark | None = None) -> AsyncIterator[Watched]:
    watched = Watched(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reload, "mark", watched.look)
        task = tasks.spawn(reload.watch(path, seen or mark(path), watched.changed, every_s=0.001), name="watch")
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


def test_where_there_is_no_file_there_is_no_mark(tmp_path: Path) -> None:
    assert mark(tmp_path / "missing.yaml") is None


# ---------------------------------------------------------------- files that the configuration names


def test_file_beside_is_news_once_for_each_change(path: Path) -> None:
    beside = Beside(lambda: [path])
    assert [beside.changed() for _ in range(2)] == [False, False]
    path.write_text("another text")
    assert [beside.changed() for _ in range(2)] == [True, False]


def test_file_beside_that_vanishes_is_news_only_when_another_is_there(path: Path) -> None:
    beside = Beside(lambda: [path])
    path.unlink()
    assert not beside.changed()
    path.write_text("another text")
    assert beside.changed()


def test_file_that_was_not_named_before_is_looked_at_once_more(path: Path, tmp_path: Path) -> None:
    named = [path]
    beside = Beside(lambda: named)
    (tmp_path / "late").touch()
    named.append(tmp_path / "late")
    assert [beside.changed() for _ in range(2)] == [True, False]


async def test_change_beside_is_told_like_one_of_the_file_itself(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "tls.crt"
    other.write_text("one")
    told: list[str] = []

    async def changed() -> None:
        told.append(other.read_text())

    watching = reload.watch(path, mark(path), changed, beside=Beside(lambda: [other]), every_s=0.001)
    task = tasks.spawn(watching, name="watch")
    other.write_text("another text")
    await until(lambda: told[-1:] == ["another text"])
    await tasks.end(task)
