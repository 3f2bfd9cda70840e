"""The load client: a process of its own that opens streams or asks in a closed loop, and reads the CPU clocks.

Light on purpose: protocols on uvloop that count one byte in what they read, nothing parsed but status and length.
Usage: python -m bench.load; a Job a line on stdin, a Load a line on stdout. What is made of them is in figures.py.
"""

import asyncio
import dataclasses
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import cast

import uvloop
from bench import messages
from bench.clocks import cpu_s, machine_s, user_s
from bench.jobs import STREAMS, Job, Load

# Beyond its own length, a measurement that takes longer than this has failed.
PATIENCE_S = 30.0


class Broken(Exception):
    """A contender did not deliver: the measurement is worth nothing."""


@dataclass(slots=True)
class Tally:
    """What all connections have received so far."""

    units: int = 0
    reads: int = 0
    stopping: bool = False


class Caller(asyncio.Protocol):
    """One connection. `first` is set at the first byte of the first answer, `done` at the end of the last."""

    def __init__(self, tally: Tally, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.tally = tally
        self.request = request
        self.first: asyncio.Future[float] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not of that class
        self._sent_s = time.perf_counter()
        self._transport.write(self.request)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break("the connection closed before the answer was whole")

    def begun(self, data: bytes) -> None:
        """Note the first bytes of an answer."""
        if not self.first.done():
            self.first.set_result(time.perf_counter() - self._sent_s)
        if not data.startswith(b"HTTP/1.1 200 "):
            self._break(f"answered {data[:40]!r}")

    def again(self) -> None:
        """Send the request once more."""
        self._transport.write(self.request)

    def end(self) -> None:
        """Everything has come."""
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()

    def _break(self, message: str) -> None:
        for future in (self.first, self.done):
            if not future.done():
                future.set_exception(Broken(message))
                future.exception()  # whoever awaits still gets it; nobody may be awaiting this one
        self._transport.close()


class StreamCaller(Caller):
    """One stream of `events` events."""

    def __init__(self, tally: Tally, request: bytes, events: int) -> None:
        super().__init__(tally, request)
        self.missing = events
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        if not self.first.done():
            self.begun(data)
        events = data.count(messages.MARK)
        if events:
            self.tally.reads += 1
            self.tally.units += events
            self.missing -= events
        if self.missing <= 0:
            self._tail = (self._tail + data)[-len(messages.STREAM_END) :]
            if self._tail == messages.STREAM_END:
                self.end()


class PlainCaller(Caller):
    """Request after request, each when the last one's answer is whole, until told to stop."""

    def __init__(self, tally: Tally, request: bytes) -> None:
        super().__init__(tally, request)
        self._left_bytes = 0

    def data_received(self, data: bytes) -> None:
        self.tally.reads += 1
        if self._left_bytes == 0:
            self._begin(data)
        self._left_bytes -= len(data)
        if self._left_bytes == 0:
            self.tally.units += 1
            if self.tally.stopping:
                self.end()
            else:
                self.again()

    def _begin(self, data: bytes) -> None:
        self.begun(data)
        head_end = data.find(b"\r\n\r\n") + 4
        if messages.PLAIN_LENGTH_LINE not in data[:head_end].lower():
            self._break("the answer's length is not the engine's")
        self._left_bytes = head_end + len(messages.PLAIN_BODY)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters and clocks at one instant."""

    at_s: float
    units: int
    reads: int
    harness_s: float
    machine_s: float
    cpu_s: float
    user_s: float


def read(job: Job, tally: Tally) -> Reading:
    """Look at everything now."""
    return Reading(
        at_s=time.perf_counter(),
        units=tally.units,
        reads=tally.reads,
        harness_s=time.process_time() + cpu_s(job.engine_pid),
        machine_s=machine_s(),
        cpu_s=cpu_s(job.pid) if job.pid else 0.0,
        user_s=user_s(job.pid) if job.pid else 0.0,
    )


async def window(job: Job, tally: Tally) -> Load:
    """Let things come to rest, then count for `job.seconds`."""
    await asyncio.sleep(job.settle_s)
    before = read(job, tally)
    await asyncio.sleep(job.seconds)
    after = read(job, tally)
    measured = job.pid is not None
    harness_cpu_s, cpu_time_s = after.harness_s - before.harness_s, after.cpu_s - before.cpu_s
    return Load(
        units=after.units - before.units,
        reads=after.reads - before.reads,
        window_s=after.at_s - before.at_s,
        lost=0,
        harness_cpu_s=harness_cpu_s,
        others_cpu_s=max(0.0, after.machine_s - before.machine_s - harness_cpu_s - cpu_time_s),
        cpu_s=cpu_time_s if measured else None,
        user_s=after.user_s - before.user_s if measured else None,
    )


async def streams(job: Job) -> Load:
    """Begin all streams one after another, count in a window in which all of them run, read all to their ends."""
    loop = asyncio.get_running_loop()
    tally = Tally()
    request = messages.request(stream=True, port=job.port)
    callers: list[StreamCaller] = []
    for _ in range(job.streams):
        _, caller = await loop.create_connection(
            lambda: StreamCaller(tally, request, job.events), "127.0.0.1", job.port
        )
        callers.append(caller)
        await asyncio.sleep(job.ramp_s / job.streams)
    first_s = [await caller.first for caller in callers]
    load = await window(job, tally)
    for caller in callers:
        await caller.done
    return dataclasses.replace(
        load,
        offered=job.streams * job.rate * load.window_s,
        lost=sum(caller.missing for caller in callers),
        first_byte_s=statistics.median(first_s),
    )


async def plain(job: Job) -> Load:
    """Ask in a closed loop over kept connections, count in a window, let the last answers come."""
    loop = asyncio.get_running_loop()
    tally = Tally()
    request = messages.request(stream=False, port=job.port)
    callers = [
        (await loop.create_connection(lambda: PlainCaller(tally, request), "127.0.0.1", job.port))[1]
        for _ in range(job.streams)
    ]
    for caller in callers:
        await caller.first
    load = await window(job, tally)
    tally.stopping = True
    for caller in callers:
        await caller.done
    return load


async def measure(job: Job) -> Load:
    """Do one job. Raises Broken, OSError or TimeoutError where a contender fails."""
    async with asyncio.timeout(job.ramp_s + job.events / job.rate + job.seconds + PATIENCE_S):
        return await (streams if job.test == STREAMS else plain)(job)


def main() -> None:
    """Do jobs until there are no more; a failed one is answered with its error."""
    for line in sys.stdin:
        try:
            answer = dataclasses.asdict(uvloop.run(measure(Job(**json.loads(line)))))
        except (Broken, OSError, TimeoutError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
