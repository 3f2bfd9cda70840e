"""A disk that hangs has one thread, which is nobody else's and keeps no process from ending."""

import asyncio
import errno
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from fakes.interpreter import ran
from fakes.until import until

from proxy import disk
from proxy.disk import Disk

# More than the loop has threads of its own for all who need one.
MANY = 100


class Hung:
    """What does not answer until `answers` is set; how often it was asked."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def __call__(self, answer: int = 0) -> int:
        self.asked += 1
        self.answers.wait()
        return answer


@pytest.fixture
def hung() -> Iterator[Hung]:
    hung = Hung()
    yield hung
    hung.answers.set()


async def test_what_was_asked_is_given() -> None:
    assert await Disk().ask("a sum", sum, [1, 2]) == 3


async def test_its_own_error_is_raised_also_one_of_lateness() -> None:
    def late() -> None:
        raise TimeoutError(errno.ETIMEDOUT, "so says the disk")

    with pytest.raises(TimeoutError, match="so says the disk"):
        await Disk().ask("a file", late, within_s=60.0)


async def test_one_that_hangs_is_given_up_in_time_and_asked_once(hung: Hung) -> None:
    asked = Disk()
    for _ in range(3):
        with pytest.raises(OSError, match=r"did not answer within 0\.01 s"):
            await asked.ask("a file", hung, within_s=0.01)
        await until(lambda: hung.asked)  # its thread may begin late
    assert hung.asked == 1


async def test_what_waits_behind_another_is_asked_in_its_turn(hung: Hung) -> None:
    asked = Disk()
    answers = [asyncio.ensure_future(asked.ask("a file", hung, number)) for number in range(5)]
    await until(lambda: hung.asked)
    assert hung.asked == 1
    hung.answers.set()
    assert (await asyncio.gather(*answers), hung.asked) == ([0, 1, 2, 3, 4], 5)


async def test_one_that_hangs_takes_no_thread_of_others(hung: Hung) -> None:
    """Of those that look names up in asyncio's own loop, and of other disks."""
    asked = Disk()
    asking = [asyncio.ensure_future(asked.ask("a file", hung)) for _ in range(MANY)]
    await until(lambda: hung.asked)
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(socket.getaddrinfo, "127.0.0.1", 1)
        assert await Disk().ask("another disk's", os.getpid) == os.getpid()
    for each in asking:
        each.cancel()


async def test_who_waits_is_told_for_what(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SLOW_S", 0.01)
    told: list[str] = []
    asking = asyncio.ensure_future(Disk(told.append).ask("/etc/crossover.yaml", hung))
    await until(lambda: told)
    hung.answers.set()
    await asking
    assert told == ["/etc/crossover.yaml: its disk has not answered for 0.01 s, and is waited for"]


async def test_a_machine_without_a_thread_to_spare_is_an_error_of_the_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(OSError, match="no thread"):
        await Disk().ask("a file", os.getpid)


ENDS = """
import asyncio, threading
from proxy.disk import Disk
async def main():
    asking = asyncio.ensure_future(Disk().ask("a file", threading.Event().wait))
    await asyncio.sleep(0.01)
asyncio.run(main())
print("over")
"""


def test_one_that_hangs_keeps_no_process_from_ending() -> None:
    ended = ran("-c", ENDS)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")
