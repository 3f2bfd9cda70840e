"""What people and machines do to a running proxy in a storm: reloads, pins, drains, engines that die and come back.

Each kind of act goes on by itself, with chance of its own, until it is cancelled; `calm` undoes all of them.
"""

import asyncio
import os
import random
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from fakes.storm.books import Books
from fakes.storm.engine import StormEngine

from proxy import config
from proxy.app import App
from proxy.model import ROLES, Role

BAD_FILES = (
    "",
    "backends: [",
    "backends: {speculative: {url: 'http://127.0.0.1:1'}}",
    "routing: {leave_at: -1}",
    "\tno yaml",
    "nonsense: true\n",
)
CONTRARY = {"routing": {"leave_at": 4, "enter_at": 9, "policy": "threshold"}}


class Operator:
    """One who never rests."""

    def __init__(
        self, app: App, engines: tuple[StormEngine, StormEngine, StormEngine], path: Path, values: dict[str, Any]
    ) -> None:
        self.app, self.path, self.values = app, path, values
        self.engines = engines
        self.books: Books = engines[0].books
        self._swapped: Role | None = None
        # The last good ones: what SIGHUP asked for may come late, or never where a bad file came first.
        self._good = deque([app.settings], maxlen=3)

    def acts(self, chance: random.Random) -> list[Awaitable[None]]:
        """One endless act of each kind."""
        kinds: tuple[Callable[[random.Random], Awaitable[None]], ...] = (
            self._kills,
            self._moods,
            self._loads,
            self._drains,
            self._pins,
            self._reloads,
        )
        return [kind(random.Random(chance.getrandbits(64))) for kind in kinds]

    async def calm(self) -> None:
        """Everything as at the start."""
        for engine in self.engines:
            engine.mood = engine.loads = "honest"
            if not engine.alive:
                await engine.start()
        for role in ROLES:
            self.app.drain_backend(role, draining=False)
        self.app.pin(None)
        self._swapped = None
        await self._reload(self.values, taken=True)

    # ------------------------------------------------------------ engines

    def _in_use(self) -> list[StormEngine]:
        urls = {backend.url for backend in self.app.desk.backends}
        return [engine for engine in self.engines if engine.url in urls]

    async def _kills(self, chance: random.Random) -> None:
        while True:
            await _rest(chance, 0.5, 2.0)
            engine = chance.choice(self._in_use())
            await engine.kill(drop=chance.random() < 0.7)
            self.books.figures.kills += 1
            await _rest(chance, 0.1, 1.2)
            await engine.start()

    async def _moods(self, chance: random.Random) -> None:
        while True:
            await _rest(chance, 0.5, 3.0)
            engine, mood = chance.choice(self.engines), chance.choice(("denies", "hangs", "boasts"))
            engine.mood = mood
            self.books.note(engine.name, f"its health page {mood}")
            await _rest(chance, 0.2, 1.2)
            engine.mood = "honest"
            self.books.note(engine.name, "is honest again")

    async def _loads(self, chance: random.Random) -> None:
        while True:
            await _rest(chance, 0.2, 1.0)
            engine = chance.choice(self.engines)
            engine.loads = chance.choice(("nonsense", "nonsense", "hangs", "fails"))
            await _rest(chance, 0.2, 1.0)
            engine.loads = "honest"

    # ------------------------------------------------------------ wishes

    async def _drains(self, chance: random.Random) -> None:
        while True:
            await _rest(chance, 0.5, 3.0)
            role = chance.choice(ROLES)
            await self._post("/drain", {"role": role.value})
            await _rest(chance, 0.1, 1.0)
            await self._post("/drain", {"role": role.value, "draining": False})

    async def _pins(self, chance: random.Random) -> None:
        while True:
            await _rest(chance, 0.5, 3.0)
            await self._post("/pin", {"role": chance.choice(ROLES).value})
            await _rest(chance, 0.1, 1.0)
            await self._post("/pin", {"role": None})

    async def _post(self, path: str, value: object) -> dict[str, Any]:
        self.books.note("operator", f"{path} {value}")
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self.app.admin_port}") as admin,
            admin.post(path, json=value) as answer,
        ):
            told: dict[str, Any] = await answer.json()
            self.books.holds(answer.status in (200, 422), "the operators' port obeys", f"{path} {answer.status} {told}")
            return told

    # ------------------------------------------------------------ the file

    async def _reloads(self, chance: random.Random) -> None:
        kinds = (self._change_rules, self._change_rules, self._change_limits, self._swap, self._swap, self._break_file)
        while True:
            await _rest(chance, 0.2, 1.0)
            await chance.choice(kinds)(chance)

    async def _change_rules(self, chance: random.Random) -> None:
        policy = chance.choice(("threshold", "threshold", "overflow", "overflow", "pinned"))
        routing = {**self.values["routing"], "policy": policy, "leave_at": chance.randint(2, 14)}
        await self._reload({**self._present(), "routing": routing}, taken=True)

    async def _change_limits(self, chance: random.Random) -> None:
        values = self._present()
        role = chance.choice(ROLES).value
        limit = chance.choice(("auto", 4, 12, 24))
        values["backends"] = {**values["backends"], role: {**values["backends"][role], "max_in_flight": limit}}
        await self._reload(values, taken=True)

    async def _swap(self, chance: random.Random) -> None:
        """One backend goes to the third engine, or comes back."""
        self._swapped = chance.choice(ROLES) if self._swapped is None else None
        await self._reload(self._present(), taken=True)

    async def _break_file(self, chance: random.Random) -> None:
        """A file that is wrong changes nothing; then it is mended by hand."""
        bad = chance.choice((*BAD_FILES, yaml.safe_dump({**self.values, **CONTRARY})))
        await self._write(bad)
        told = await self._post("/reload", {})
        same = not told["reloaded"] and self.app.settings in self._good
        self.books.holds(same, "a bad file changes nothing", f"{bad[:40]!r}: {told}")
        self.books.figures.reloads_refused += 1
        await _rest(chance, 0.0, 0.3)
        await self._reload(self._present(), taken=True)

    def _present(self) -> dict[str, Any]:
        backends = dict(self.values["backends"])
        if self._swapped is not None:
            role = self._swapped.value
            backends[role] = {**backends[role], "url": self.engines[2].url}
        return {**self.values, "backends": backends}

    async def _write(self, text: str) -> None:
        """Whole at once, as editors do: the file is watched."""
        beside = self.path.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self.path)

    async def _reload(self, values: dict[str, Any], *, taken: bool) -> None:
        await self._write(yaml.safe_dump(values))
        self._good.append(config.from_mapping(values))
        self.books.figures.reloads += 1
        if self.books.figures.reloads % 3 == 0:
            self.books.note("operator", "SIGHUP")
            os.kill(os.getpid(), signal.SIGHUP)
            return
        told = await self._post("/reload", {})
        self.books.holds(told["reloaded"] is taken, "a good file is taken over", f"{told}")


async def _rest(chance: random.Random, least_s: float, most_s: float) -> None:
    await asyncio.sleep(chance.uniform(least_s, most_s))  # sleeps: an act at a random moment
