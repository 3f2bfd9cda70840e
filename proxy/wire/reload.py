"""Notices that the configuration file has changed. Reading it is in config/, taking it over in app.py.

Polling, not inotify: a mounted ConfigMap changes by a renamed link, a network disk tells nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

# An edit is taken over within a second or two; one stat a second costs nothing.
LOOK_EVERY_S = 1.0
Mark = tuple[int, int, int] | None


async def watch(
    path: Path, seen: Mark, changed: Callable[[], Awaitable[object]], *, every_s: float = LOOK_EVERY_S
) -> None:
    """Call `changed` after each change of the file at `path` since `seen`, until cancelled. A file that vanishes
    changes nothing: editors replace files in two steps."""
    while True:
        await asyncio.sleep(every_s)
        now = await asyncio.to_thread(mark, path)
        if now is not None and now != seen:
            seen = now
            await changed()


def mark(path: Path) -> Mark:
    """What tells one state of a file from the next; None where there is no file. Take it before reading the file, or
    an edit right behind the reading goes unnoticed."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
