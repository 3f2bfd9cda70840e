"""The closed loop: kept connections, each asking again as soon as its answer is whole."""

import re
import time

from bench import messages
from bench.jobs import Job, Load
from bench.sampling import Tally, load_between, read
from bench.streams import PATIENCE_S
from bench.wire import READ_BYTES, Broken, Wire

# Not the engine's own: there are proxies that write the body anew.
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Asker:
    """One connection."""

    __slots__ = ("_asked", "_asked_ns", "_left_bytes", "_stopping", "_tally", "_wire", "failure", "sock")

    def __init__(self, wire: Wire, tally: Tally, port: int, asked: bytes) -> None:
        self._wire = wire
        self._tally = tally
        self._asked = asked
        self._left_bytes = 0
        self._stopping = False
        self.failure: str | None = None
        self.sock = wire.connect(port)
        wire.watch(self.sock, self)

    def connected(self) -> None:
        """Ask for the first time."""
        self._ask()

    def stop(self) -> None:
        """Ask no more after this answer."""
        self._stopping = True

    def readable(self) -> None:
        """Read once."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"the connection broke: {error}")
            return
        if self._left_bytes == 0 and not self._begin(data):
            return
        self._tally.reads += 1
        self._left_bytes -= len(data)
        if self._left_bytes == 0:
            self._whole()

    def _begin(self, data: bytes) -> bool:
        """The first bytes of an answer; false where they are not the engine's answer."""
        head_end = data.find(b"\r\n\r\n") + 4
        length = _LENGTH.search(data, 0, head_end)
        if length is None or not data.startswith(b"HTTP/1.1 200 "):
            self._fail(f"answered {data[:120]!r}" if data else "the connection closed")
            return False
        self._left_bytes = head_end + int(length[1])
        return True

    def _whole(self) -> None:
        tally = self._tally
        tally.units += 1
        if tally.counting:
            tally.delays_ns.append(time.monotonic_ns() - self._asked_ns)
        if self._stopping:
            self._end()
        else:
            self._ask()

    def _ask(self) -> None:
        self._asked_ns = time.monotonic_ns()
        try:
            self.sock.send(self._asked)
        except OSError as error:
            self._fail(f"no connection: {error}")

    def _fail(self, words: str) -> None:
        self.failure = words
        self._end()

    def _end(self) -> None:
        self._tally.over += 1
        self._wire.leave(self.sock)


def plain(job: Job) -> Load:
    """Ask in a closed loop, count in a window, let the last answers come. Raises Broken where one fails."""
    wire, tally = Wire(), Tally()
    asked = messages.request(stream=False, port=job.port)
    askers: list[Asker] = []
    try:
        askers.extend(Asker(wire, tally, job.port, asked) for _ in range(job.streams))
        wire.run(time.monotonic() + PATIENCE_S, lambda: tally.units >= job.streams or tally.over > 0)
        wire.run(time.monotonic() + job.settle_s)
        tally.counting = True
        before = read(job, tally)
        wire.run(time.monotonic() + job.seconds)
        after = read(job, tally)
        tally.counting = False
        for asker in askers:
            asker.stop()
        wire.run(time.monotonic() + PATIENCE_S, lambda: tally.over >= job.streams)
        failures = [asker.failure for asker in askers if asker.failure]
        if failures or tally.over < job.streams:
            raise Broken(failures[0] if failures else "not every request was answered")
        return load_between(job, before, after, tally)
    finally:
        for asker in askers:
            wire.leave(asker.sock)
        wire.close()
