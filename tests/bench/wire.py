"""The load client's connections: a loop around epoll, and what takes a chunked body apart. Nothing of what is asked."""

import select
import socket
import time
from collections.abc import Callable
from typing import Protocol

# One read takes the events of a burst together, as a client's would.
READ_BYTES = 262144


class Broken(Exception):
    """A contender did not deliver: the measurement is worth nothing."""


class Reader(Protocol):
    """Who is told when a connection is there, and when bytes have come."""

    def connected(self) -> None:
        """Say the first word. OSError when the connection was not taken."""

    def readable(self) -> None:
        """Read once."""


class Wire:
    """Sockets that are waited for together."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, Reader] = {}

    def connect(self, port: int, *, receive_bytes: int | None = None) -> socket.socket:
        """A connection to a contender, which is asked for and need not be there yet: one that is slow to take it
        must not keep the others waiting."""
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", port))
        return sock

    def watch(self, sock: socket.socket, reader: Reader) -> None:
        """Tell the reader from now on, first when it is connected."""
        self._readers[sock.fileno()] = reader
        self._poll.register(sock.fileno(), select.EPOLLOUT)

    def leave(self, sock: socket.socket) -> None:
        """Close a connection."""
        if sock.fileno() >= 0:
            self._readers.pop(sock.fileno(), None)
            sock.close()

    def run(self, until_s: float, done: Callable[[], bool] | None = None) -> bool:
        """Serve until an instant of the monotonic clock, or until it is done; whether it is."""
        poll, readers = self._poll, self._readers
        while True:
            if done is not None and done():
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            # epoll counts in milliseconds, rounded up: an instant that is nearer is waited for without it.
            for fd, mask in poll.poll(left_s) if left_s > 0.002 else poll.poll(0):
                reader = readers.get(fd)
                if reader is None:
                    continue
                if mask & select.EPOLLOUT:
                    poll.modify(fd, select.EPOLLIN)
                    reader.connected()
                else:
                    reader.readable()

    def close(self) -> None:
        """Close what is open."""
        self._poll.close()


class Chunks:
    """A chunked body as it comes: how long its payload is, and whether it has ended. Framing other than the engine's
    counts the same: proxies may gather and cut."""

    __slots__ = ("_left", "_line", "ended", "payload_bytes")

    def __init__(self) -> None:
        self.payload_bytes = 0
        self.ended = False
        self._left = 0  # of a chunk, its line end included
        self._line = b""  # a size line that has not come whole

    def feed(self, data: bytes, start: int = 0) -> None:
        """More of it. Raises Broken where it is no chunked body."""
        at, end = start, len(data)
        while at < end and not self.ended:
            if self._left:
                taken = min(self._left, end - at)
                # The last two bytes of what is left are the line end and no payload.
                self.payload_bytes += max(0, min(taken, self._left - 2))
                self._left -= taken
                at += taken
                continue
            line_end = data.find(b"\n", at)
            if line_end < 0:
                self._line += data[at:]
                return
            line, self._line = self._line + data[at : line_end + 1], b""
            at = line_end + 1
            self._open(line)

    @property
    def between(self) -> bool:
        """Whether the next byte begins a chunk."""
        return not self._left and not self._line

    def _open(self, line: bytes) -> None:
        try:
            size_bytes = int(line.partition(b";")[0], 16)
        except ValueError:
            raise Broken(f"no chunk size: {line[:40]!r}") from None
        if size_bytes:
            self._left = size_bytes + 2
        else:
            self.ended = True
