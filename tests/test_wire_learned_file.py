"""The file of what was learned: whole or as before, and never in the way of a start."""

import json
from pathlib import Path

import pytest
from test_dispatch_learning import LearningRig

from proxy.model import SPECULATIVE
from proxy.wire.learned_file import MAX_FILE_BYTES, LearnedFile


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
