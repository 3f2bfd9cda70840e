"""The configuration of a running proxy, read anew from where it came. A disk that hangs holds nothing else up.

What is in the files is read in config/, and taken over in app.py.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from proxy import config, tasks
from proxy.config import InvalidConfig, Problem, Settings
from proxy.disk import Disk

# Reading takes milliseconds, and of the largest files some hundred. Who asks for a reload is then told that there is
# none, instead of waiting with all who ask after.
READ_WITHIN_S = 10.0
# Whether it was taken over, and what has changed or is wrong.
Outcome = tuple[bool, list[str]]
HUNG = "cannot be read ({}); mend: see to its disk, then reload"


class Reloads:
    """Reloads, one at a time: of two that overlap, the one that read the older file might end last. All that ask while
    one is under way get the next one, which begins after they asked: so many as ask wait for two of them at most."""

    def __init__(self, turn: asyncio.Lock, act: Callable[[], Awaitable[Outcome]]) -> None:
        self._turn = turn
        self._act = act
        self._next: asyncio.Task[Outcome] | None = None  # has not begun

    async def ask(self) -> Outcome:
        """The outcome of one that begins from now on. Cancelled, it leaves that to the others who asked."""
        if self._next is None:
            self._next = tasks.spawn(self._begun(), name="reload")
        return await asyncio.shield(self._next)

    async def _begun(self) -> Outcome:
        async with self._turn:
            self._next = None
            return await self._act()


async def anew(read: Callable[[], Settings], disk: Disk) -> tuple[Settings, dict[str, ssl.SSLContext]]:
    """The settings as they are written now, and a context for each section with TLS. `read` raises InvalidConfig, and
    blocks on the disk. Raises InvalidConfig, also where they do not come within READ_WITHIN_S."""

    def whole() -> tuple[Settings, dict[str, ssl.SSLContext]]:
        settings = read()
        return settings, config.contexts(settings)

    try:
        return await disk.ask("the configuration", whole, within_s=READ_WITHIN_S)
    except OSError as error:
        raise InvalidConfig([Problem("the configuration", 0, 0, "", HUNG.format(error.strerror))]) from error
