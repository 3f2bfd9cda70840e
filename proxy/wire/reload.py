"""Notices that the configuration file, or a file that it names, has changed. Taking it over is in app.py.

Polling, not inotify: a mounted ConfigMap changes by a renamed link, a network disk tells nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

# An edit is taken over within a second or two; one stat a second costs nothing.
LOOK_EVERY_S = 1.0
Mark = tuple[int, int, int] | None


async def watch(
    path: Path,
    seen: Mark,
    changed: Callable[[], Awaitable[object]],
    *,
    beside: "Beside | None" = None,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Call `changed` after each change of the file at `path` since `seen`, or of a file `beside` it, until cancelled. A
    file that vanishes changes nothing: editors replace files in two steps."""
    while True:
        await asyncio.sleep(every_s)
        now = await asyncio.to_thread(mark, path)
        news = beside is not None and await asyncio.to_thread(beside.changed)
        if news or (now is not None and now != seen):
            seen = now or seen
            await changed()


class Beside:
    """The files that the configuration in force names (`paths` is asked at each look), and how they were last seen.
    One that was not named before has changed: the reload that named it may have read it before its last edit."""

    def __init__(self, paths: Callable[[], Iterable[Path]]) -> None:
        self._paths = paths
        self._seen = self._marks()

    def changed(self) -> bool:
        """Whether there is news since the last call. Blocks on the disk."""
        before, self._seen = self._seen, {**self._seen, **(now := self._marks())}
        return any(before.get(path) != each for path, each in now.items())

    def _marks(self) -> dict[Path, Mark]:
        marks = {path: mark(path) for path in self._paths()}
        return {path: each for path, each in marks.items() if each is not None}


def mark(path: Path) -> Mark:
    """What tells one state of a file from the next; None where there is no file. Take it before reading the file, or
    an edit right behind the reading goes unnoticed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
