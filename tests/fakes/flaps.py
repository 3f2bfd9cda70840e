"""Ways in which a backend goes and comes back under its requests, and an eye on the books meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from fakes.engine import Exchange, either
from fakes.stage import Stage
from fakes.until import until

from proxy import config
from proxy.model import CircuitState, Role

SPECULATIVE = Role.SPECULATIVE
Flap = Callable[[Stage, Role, str], Awaitable[None]]


@contextlib.asynccontextmanager
async def watched(stage: Stage) -> AsyncIterator[None]:
    """At every turn of the loop each engine's book holds at least what the engine itself has open, and none is below
    zero."""
    wrong: list[tuple[str, int, int]] = []

    async def watch() -> None:
        while True:
            for engine in (stage.a, stage.b):
                books = [book.in_flight for book in stage.app.desk.ledger.books if book.name == engine.url]
                if sum(books) < engine.open or min(books, default=0) < 0:
                    wrong.append((engine.role, sum(books), engine.open))
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
    assert not wrong


async def take_over(stage: Stage, speculative: str, baseline: str) -> None:
    """Reload with backends of these addresses."""
    now = stage.app.settings
    stage.app._source = lambda: config.override(
        now, {"backends.speculative.url": speculative, "backends.baseline.url": baseline}
    )
    assert (await stage.app.reload())[0]


async def fail_health(stage: Stage, role: Role, _: str) -> None:
    engine, backend = (stage.a if role is SPECULATIVE else stage.b), stage.app.desk.backend(role)
    engine.ready = False
    await until(lambda: backend.health.up is False, what="down")
    engine.ready = True
    await until(lambda: backend.health.up, what="up again")


async def remove_and_add(stage: Stage, role: Role, spare: str) -> None:
    a, b = stage.a.url, stage.b.url
    await take_over(stage, *((spare, b) if role is SPECULATIVE else (a, spare)))
    await take_over(stage, a, b)


async def change_places_twice(stage: Stage, _: Role, __: str) -> None:
    await take_over(stage, stage.b.url, stage.a.url)
    await take_over(stage, stage.a.url, stage.b.url)


async def drain_and_undrain(stage: Stage, role: Role, _: str) -> None:
    stage.app.drain_backend(role, draining=True)
    stage.app.drain_backend(role, draining=False)


async def open_and_close_the_circuit(stage: Stage, role: Role, _: str) -> None:
    engine = stage.a if role is SPECULATIVE else stage.b
    held, engine.script = engine.script, fail
    while stage.circuit(role).state is CircuitState.CLOSED:
        await stage.ask()
    engine.script = either
    while stage.circuit(role).state is not CircuitState.CLOSED:
        await stage.ask()
    engine.script = held


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b"broken", "500 Internal Server Error")


async def as_reported(stage: Stage, role: Role, spare: str) -> None:
    await fail_health(stage, role, spare)
    await remove_and_add(stage, role, spare)
