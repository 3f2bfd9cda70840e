"""Clients that note what comes in which turn of the loop: how late something is, counted and not timed."""

import asyncio
from dataclasses import dataclass, field

from fakes.dialects import Sample
from fakes.engine import Exchange
from fakes.raw import request
from fakes.stage import staged
from fakes.until import turns, until

# A turn takes microseconds; what has not come by then waits for a timer, or for more data.
MOST_TURNS = 2000


@dataclass
class Ear(asyncio.Protocol):
    """One connection; each piece is what one read of the socket gave. `closed` it is by either side; `reset` by RST."""

    pieces: list[bytes] = field(default_factory=list)
    heard: int = 0
    closed: bool = False
    reset: bool = False

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        self.heard += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed, self.reset = True, exc is not None

    @property
    def whole(self) -> bytes:
        """Everything that has come."""
        return b"".join(self.pieces)


async def listen(
    port: int, target: str, body: bytes, version: str = "1.1", *lines: str
) -> tuple[Ear, asyncio.Transport]:
    """Send one request and listen; whoever calls closes the transport."""
    transport, ear = await asyncio.get_running_loop().create_connection(Ear, "127.0.0.1", port)
    transport.write(request(target, body, *lines, version=version))
    return ear, transport


async def turns_until_heard(ears: list[Ear], before: list[int]) -> list[int]:
    """For each ear, in which turn from now on it has heard more than `before`."""
    late: dict[int, int] = {}
    for turn in range(MOST_TURNS):
        for number, ear in enumerate(ears):
            if number not in late and ear.heard > before[number]:
                late[number] = turn
        if len(late) == len(ears):
            break
        await asyncio.sleep(0)
    return [late.get(number, MOST_TURNS) for number in range(len(ears))]


@dataclass
class Pace:
    """In which turn of the loop each event was heard, through the proxy and straight from the engine."""

    proxied: list[int] = field(default_factory=list)
    direct: list[int] = field(default_factory=list)
    ears: list[Ear] = field(default_factory=list)


async def paced(sample: Sample, events: list[bytes], clients: int = 1, version: str = "1.1", kind: str = "") -> Pace:
    """Each event is sent to all clients in one turn, and the next when all have heard it."""
    over, exchanges, pace = asyncio.Event(), list[Exchange](), Pace()

    async def held(exchange: Exchange) -> None:
        await exchange.head("200 OK", f"content-type: {sample.content_type}", "transfer-encoding: chunked", *coded)
        exchanges.append(exchange)
        await over.wait()
        await exchange.chunk(sample.end)
        await exchange.end()

    coded = [f"content-encoding: {kind}"] if kind else []
    async with staged(a=held, b=held) as stage:
        through = [await listen(stage.app.port, sample.target, sample.body, version) for _ in range(clients)]
        straight = [await listen(stage.a.port, sample.target, sample.body) for _ in range(clients)]
        pace.ears = [ear for ear, _ in through + straight]
        await until(lambda: len(exchanges) == 2 * clients, what="every stream open")
        await until(lambda: all(ear.heard for ear, _ in straight), what="the heads")
        await turns(20)
        for event in events:
            before = [ear.heard for ear in pace.ears]
            for exchange in exchanges:
                exchange.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            late = await turns_until_heard(pace.ears, before)
            pace.proxied += late[:clients]
            pace.direct += late[clients:]
        over.set()
        await until(lambda: len(stage.ended) == clients, what="the end of every stream")
        await until(lambda: all(ear.whole.endswith((b"0\r\n\r\n", sample.end)) for ear in pace.ears))
        for _, transport in through + straight:
            transport.close()
    return pace


def p99(counts: list[int]) -> int:
    """The count that one in a hundred exceeds."""
    return sorted(counts)[len(counts) * 99 // 100 - 1]
