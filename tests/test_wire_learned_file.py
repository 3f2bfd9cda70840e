"""The file of what was learned: whole or as before, and never in the way of a start."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.until import until, until_told
from test_dispatch_learning import LearningRig

from proxy.model import SPECULATIVE
from proxy.wire import learned_file
from proxy.wire.learned_file import MAX_FILE_BYTES, LearnedFile, unwritable


class Kept:
    """A desk with its file, and what was warned of."""

    def __init__(self, path: Path | None) -> None:
        self.rig = LearningRig()
        self.warned: list[str] = []
        self.file = LearnedFile(self.rig.desk, lambda: path, self.warned.append)

    @property
    def known(self) -> int:
        learning = self.rig.desk.learning
        assert learning is not None
        return len(learning.learner.sides[SPECULATIVE].belief.bins)


async def test_what_was_learned_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    before, after = Kept(path), Kept(path)
    before.rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    await before.file.write()
    await after.file.recall()
    after.rig.now_s += 3.0
    after.rig.poll(SPECULATIVE, 1, slower=2.0)
    assert after.rig.desk.rules.learned
    assert not before.warned and not after.warned
    assert not path.with_name("learned.json.new").exists()


async def test_a_first_start_has_no_file_and_no_warning(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "learned.json")
    await kept.file.recall()
    assert kept.known == 0 and not kept.warned


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b"\xff\xfe", b" " * (MAX_FILE_BYTES + 1), b"1e999"]
)
async def test_a_broken_file_is_ignored_with_a_warning(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content)
    kept = Kept(path)
    await kept.file.recall()
    assert kept.known == 0
    assert len(kept.warned) == 1 and "learned anew" in kept.warned[0]


async def test_a_file_of_other_engines_is_ignored_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    before, after = Kept(path), Kept(path)
    before.rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    await before.file.write()
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "curves": "others"}))
    await after.file.recall()
    assert after.known == 0
    assert "other curves" in after.warned[0]


async def test_a_file_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing" / "learned.json")
    kept.rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    await kept.file.write()
    await kept.file.write()
    assert len(kept.warned) == 1
    assert kept.file.fault == kept.warned[0]


async def test_a_file_that_can_be_written_again_is_no_fault_any_more(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing" / "learned.json")
    await kept.file.write()
    assert kept.file.fault is not None
    (tmp_path / "missing").mkdir()
    await kept.file.write()
    assert kept.file.fault is None
    assert len(kept.warned) == 1


async def test_a_start_says_that_there_is_no_folder_to_write_to(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "missing" / "learned.json")
    await kept.file.start()
    await until(lambda: kept.file.fault is not None)
    assert kept.warned == [kept.file.fault]
    assert f"there is no folder {tmp_path / 'missing'}; mend: make it" in kept.warned[0]
    await kept.file.stop()
    assert len(kept.warned) == 1, "told once"


def test_what_can_be_written_is_found_so_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert unwritable(tmp_path / "learned.json") is None
    assert "it is no file" in (unwritable(tmp_path) or "")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert f"{tmp_path} is not writable" in (unwritable(tmp_path / "learned.json") or "")


class Disk:
    """It hangs until `answers` is set; who waited for it, and for what."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: list[Path] = []

    def read(self, path: Path) -> bytes | None:
        self.asked.append(path)
        self.answers.wait()
        return None


@contextlib.contextmanager
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(learned_file, "_read", disk.read)
    monkeypatch.setattr(learned_file, "WITHIN_S", 0.05)
    try:
        yield disk
    finally:
        disk.answers.set()  # the loop's end waits for its threads


async def test_a_disk_that_hangs_keeps_no_start_waiting_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "learned.json")
    with hung(monkeypatch):
        async with asyncio.timeout(10):
            await kept.file.recall()
    [warning] = kept.warned
    assert warning.startswith(f"{tmp_path / 'learned.json'}: what was learned before cannot be read (its disk did not")


async def test_a_disk_that_hangs_takes_one_thread_and_is_written_once_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "learned.json"
    kept = Kept(path)

    async def written() -> bool:
        await kept.file.write()
        return path.exists()

    with hung(monkeypatch) as disk:
        async with asyncio.timeout(10):
            for _ in range(3):
                await kept.file.recall()
            assert not await written()
        assert (disk.asked, "cannot be written" in kept.warned[-1]) == ([path], True)
    await until_told(written)


async def test_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.file.recall()
    assert "cannot be read" in kept.warned[0]


async def test_without_a_file_nothing_is_kept() -> None:
    kept = Kept(None)
    await kept.file.recall()
    await kept.file.write()
    assert not kept.warned


async def test_a_clock_that_went_back_makes_nothing_younger(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    before, after = Kept(path), Kept(path)
    before.rig.poll(SPECULATIVE, 1, slower=2.0, seconds=6)
    await before.file.write()
    state = json.loads(path.read_text())
    path.write_text(json.dumps({**state, "at_s": state["at_s"] + 1e6}))
    await after.file.recall()
    assert after.known > 0
    learning = after.rig.desk.learning
    assert learning is not None
    assert all(each.at_s <= after.rig.now_s for each in learning.learner.sides[SPECULATIVE].belief.bins.values())
