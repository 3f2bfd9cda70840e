"""Notices that a file of the configuration has changed. Reading it is in config/, taking it over in app.py.

Polling, not inotify: a mounted ConfigMap changes by a renamed link, a network disk tells nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from proxy.config import Marks, mark
from proxy.disk import Disk

# An edit is taken over within a second or two; one stat a second and file costs nothing.
LOOK_EVERY_S = 1.0


async def watch(
    read: Callable[[], Marks], disk: Disk, changed: Callable[[], Awaitable[object]], *, every_s: float = LOOK_EVERY_S
) -> None:
    """Call `changed` after each change of a file, until cancelled. `read` tells which files are in force, each with its
    mark from before it was read: a reload may bring others. A file that vanishes changes nothing: editors replace files
    in two steps."""
    told: Marks = {}
    while True:
        await asyncio.sleep(every_s)
        told = {path: told.get(path, seen) for path, seen in read().items()}
        try:
            now = await disk.ask("the files of the configuration", _marks, tuple(told))
        except OSError:
            continue  # a machine without a thread to spare
        new = {path: seen for path, seen in now.items() if seen is not None and seen != told[path]}
        if new:
            told |= new
            await changed()


def _marks(paths: Iterable[Path]) -> Marks:
    return {path: mark(path) for path in paths}
