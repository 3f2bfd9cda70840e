"""The file in which what was learned is kept over a restart: read once at the start, written now and then.

It is a help and never a need: one that cannot be read, or is of other curves or engines, is ignored with a warning.
What stands in it is in routing/learned.py.
"""

import asyncio
import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from proxy import tasks
from proxy.disk import Disk
from proxy.dispatch import Desk
from proxy.model import Role
from proxy.routing import learned

# Time between two writings: what a crash loses is learned again in as long.
KEEP_EVERY_S = 60.0
# For one reading or writing, which takes milliseconds. A disk that hangs is to keep no start from serving, and no end
# from what comes behind it.
WITHIN_S = 5.0
# Two backends of some hundred bins each take 50 KiB; larger is another file.
MAX_FILE_BYTES = 1 << 20


class LearnedFile:
    """Keeps what the desk learns in the file that `path` names now; None: in none. `warn` is told what goes wrong."""

    def __init__(self, desk: Desk, path: Callable[[], Path | None], warn: Callable[[str], None]) -> None:
        self._desk = desk
        self._path = path
        self._warn = warn
        self._fault: tuple[Path, str] | None = None  # of the latest writing
        self._disk = Disk()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def fault(self) -> str | None:
        """Why the file that is named now could not be written the last time, with the mend; None where it could."""
        return None if self._fault is None or self._fault[0] != self._path() else self._fault[1]

    async def start(self) -> None:
        """Take up what was learned before, and keep what is from now on."""
        await self.recall()
        self._keeper = tasks.spawn(self.run(), name="learned file")

    async def stop(self) -> None:
        """Keep it for the last time, where it was started."""
        if self._keeper is not None:
            await tasks.end(self._keeper)
            await self.write()

    async def recall(self) -> None:
        """Take up what was learned before, if there is any."""
        path, learning = self._path(), self._desk.learning
        if path is None or learning is None:
            return
        try:
            content = await self._disk.ask(str(path), _read, path, within_s=WITHIN_S)
        except OSError as error:
            self._warn(f"{path}: what was learned before cannot be read ({error.strerror}); it is learned anew")
            return
        if content is None:
            return
        state = _parsed(content)
        elapsed_s = max(0.0, _unix_s() - _number(state, "at_s"))
        now_s = self._desk.clock()
        fault = learned.taken_back(learning.learner, state, self._versions(), now_s=now_s, elapsed_s=elapsed_s)
        if fault is not None:
            self._warn(f"{path}: what was learned before is ignored, {fault}; it is learned anew")

    async def look(self) -> None:
        """See whether it can be written, without writing: what stands there may still be of use."""
        path = self._path()
        if path is None or self._desk.learning is None:
            return
        with contextlib.suppress(OSError):  # a disk that hangs is told by whoever reads or writes
            self._tell(path, await self._disk.ask(str(path), unwritable, path, within_s=WITHIN_S))

    async def run(self) -> None:
        """Write it again and again until cancelled. What will keep it from being written is told at once, not with the
        first writing."""
        await self.look()
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            await self.write()

    async def write(self) -> None:
        """Write what is known now; a file is either the one before or whole."""
        path, learning = self._path(), self._desk.learning
        if path is None or learning is None:
            return
        state = learned.written(learning.learner, self._versions(), self._desk.clock())
        try:
            content = orjson.dumps({**state, "at_s": _unix_s()})
            await self._disk.ask(str(path), _replace, path, content, within_s=WITHIN_S)
        except OSError as error:
            self._tell(path, f"{error.strerror}; mend: make it writable")
        else:
            self._tell(path, None)

    def _tell(self, path: Path, why: str | None) -> None:
        fault = None if why is None else (path, f"{path}: what was learned cannot be written: {why}")
        if fault is not None and (self._fault is None or self._fault[0] != path):  # a full disk stays full: told once
            self._warn(fault[1])
        self._fault = fault

    def _versions(self) -> dict[Role, str | None]:
        return {each.role: None if each.facts is None else each.facts.version for each in self._desk.backends}


def unwritable(path: Path) -> str | None:
    """Why a state file cannot be written by whom this process runs as, with the mend; None where nothing speaks against
    it. Nothing is written. Raises OSError."""
    path = path.resolve()
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}; mend: make it, writable for the user that Crossover runs as"
    if path.exists() and not path.is_file():
        return "it is no file; mend: name a file"
    # Beside it, since it is written anew and put in its place.
    if not os.access(folder, os.W_OK | os.X_OK):
        return (
            f"{folder} is not writable; mend: let the user that Crossover runs as write there, or name another folder"
        )
    return None


def _read(path: Path) -> bytes | None:
    try:
        # A pipe would keep the start waiting for whoever writes into it.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None  # the first start
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        return file.read(MAX_FILE_BYTES + 1)


def _replace(path: Path, content: bytes) -> None:
    path = path.resolve()  # a link stays one
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    # Not through a link that somebody left there, to a file that is not ours to write.
    opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content) if len(content) <= MAX_FILE_BYTES else None
    except ValueError:
        return None


def _number(state: object, name: str) -> float:
    value = state.get(name) if isinstance(state, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _unix_s() -> float:
    return time.time()  # noqa: TID251 - a file outlives the monotonic clock
