"""Clients that note what comes in which turn of the loop: how late something is, counted and not timed."""

import asyncio
from dataclasses import dataclass, field

from fakes.raw import request

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
