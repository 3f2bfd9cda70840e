"""Tasks have a name, are kept until they end, and their errors reach somebody."""

import asyncio
import gc
from typing import Any

import pytest
from fakes.until import turns

from proxy import tasks


async def test_a_task_has_its_name_and_gives_its_result() -> None:
    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    assert await tasks.spawn(work(), name="health probe") == "health probe"


async def test_a_task_that_nobody_holds_runs_to_its_end() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        await turns(3)
        ended.set()

    before = tasks.running()
    tasks.spawn(work(), name="unheld")
    assert tasks.running() == before + 1
    gc.collect()
    await asyncio.wait_for(ended.wait(), 5)
    await turns()
    assert tasks.running() == before


async def test_an_error_that_nobody_awaits_is_handed_over_with_the_tasks_name() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def fail() -> None:
        raise ValueError("broken")

    tasks.spawn(fail(), name="engine poll")
    await turns()
    assert [(context["message"], str(context["exception"])) for context in told] == [
        ("task engine poll failed", "broken")
    ]


async def test_a_cancelled_task_is_no_error() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    task = tasks.spawn(asyncio.Event().wait(), name="waits")
    await tasks.end(task)
    assert (task.cancelled(), told) == (True, [])


async def test_end_waits_until_a_task_has_cleaned_up() -> None:
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        try:
            await asyncio.Event().wait()
        finally:
            await turns(3)
            cleaned = True

    task = tasks.spawn(work(), name="cleans up")
    await turns()
    await tasks.end(task)
    assert cleaned


async def test_end_takes_what_is_missing_or_over() -> None:
    done = tasks.spawn(turns(), name="over")
    await done
    await tasks.end(None, done)


async def test_end_survives_a_task_that_fails_as_it_ends() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cannot close")

    task = tasks.spawn(work(), name="fails late")
    await turns()
    await tasks.end(task)
    with pytest.raises(OSError, match="cannot close"):
        task.result()
