"""A configuration that does not come from its disk is one that cannot be used, and is told as such."""

import asyncio
import threading

import pytest
from fakes.until import until

from proxy import config, source
from proxy.config import InvalidConfig, Settings
from proxy.disk import Disk
from proxy.source import Outcome, Reloads, anew

SETTINGS = config.from_mapping(
    {"backends": {"speculative": {"url": "http://127.0.0.1:1"}, "baseline": {"url": "http://127.0.0.1:2"}}}
)


async def test_the_settings_come_with_the_contexts_of_their_tls() -> None:
    assert await anew(lambda: SETTINGS, Disk()) == (SETTINGS, {})


async def test_what_is_wrong_with_them_is_raised() -> None:
    def wrong() -> Settings:
        return config.override(SETTINGS, {"listen.port": 70000})

    with pytest.raises(InvalidConfig, match=r"listen\.port"):
        await anew(wrong, Disk())


async def test_a_disk_that_hangs_is_told_in_time_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READ_WITHIN_S", 0.01)
    answers = threading.Event()

    def read() -> Settings:
        answers.wait()
        return SETTINGS

    disk = Disk()
    with pytest.raises(InvalidConfig) as told:
        await anew(read, disk)
    assert told.value.message == (
        "the configuration: cannot be read (its disk did not answer within 0.01 s); mend: see to its disk, then reload"
    )
    answers.set()
    monkeypatch.undo()
    assert (await anew(read, disk))[0] == SETTINGS


class Slow:
    """Reloads that end when they are let; `begun` counts them."""

    def __init__(self) -> None:
        self.begun, self.under_way = 0, 0
        self.ends = asyncio.Semaphore(0)

    async def __call__(self) -> Outcome:
        assert self.under_way == 0, "one at a time"
        self.begun += 1
        self.under_way, number = 1, self.begun
        await self.ends.acquire()
        self.under_way = 0
        return True, [str(number)]


async def test_all_that_ask_for_a_reload_while_one_is_under_way_share_the_next() -> None:
    slow = Slow()
    reloads = Reloads(asyncio.Lock(), slow)
    first = asyncio.ensure_future(reloads.ask())
    await until(lambda: slow.begun == 1)
    others = [asyncio.ensure_future(reloads.ask()) for _ in range(20)]
    slow.ends.release()
    assert await first == (True, ["1"])
    await until(lambda: slow.begun == 2)
    last = asyncio.ensure_future(reloads.ask())
    slow.ends.release()
    assert await asyncio.gather(*others) == [(True, ["2"])] * 20
    slow.ends.release()
    assert await last == (True, ["3"]), "one that had begun might have read the file before"
    assert slow.begun == 3


async def test_one_who_no_longer_waits_for_a_reload_takes_it_from_nobody() -> None:
    slow = Slow()
    reloads = Reloads(asyncio.Lock(), slow)
    gone, stays = (asyncio.ensure_future(reloads.ask()) for _ in range(2))
    await until(lambda: slow.begun == 1)
    gone.cancel()
    slow.ends.release()
    assert await stays == (True, ["1"])


async def test_a_reload_that_fails_by_a_defect_leaves_the_next_in_order() -> None:
    fails = iter((True, False))

    async def act() -> Outcome:
        if next(fails):
            raise ValueError("a defect")
        return True, []

    reloads = Reloads(asyncio.Lock(), act)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    with pytest.raises(ValueError, match="a defect"):
        await reloads.ask()
    assert await reloads.ask() == (True, [])
