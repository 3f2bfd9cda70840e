"""The fake engine of the measurement: a process of its own that costs little, so that the proxy is what is measured.

It writes ready-made bytes (messages.py) in a loop of its own around epoll, each event by itself as a decode step does;
it understands just enough HTTP for that. When events are due is in pace.py. Usage: python -m bench.engine PORTS; it
prints as many ports as were asked for, all of the same engine.
"""

import contextlib
import json
import re
import select
import socket
import sys
import time

from bench import messages
from bench.files import raise_file_limit
from bench.pace import Pace

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_ORDER = re.compile(messages.ORDER)
BACKLOG = 4096
# More than the largest request here: one read takes it whole.
READ_BYTES = 65536
_GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Exchange:
    """One connection, and the answer that is under way on it: `left` events of `shape` to come."""

    __slots__ = ("busy", "interval_ns", "left", "received", "shape", "sock", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""
        self.unsent = b""
        self.busy = False
        self.left = 0
        self.shape = ""
        self.interval_ns = 0


class Engine:
    """All connections of this process."""

    def __init__(self, ports: int) -> None:
        self._poll = select.epoll()
        self._listeners: dict[int, socket.socket] = {}
        self._exchanges: dict[int, Exchange] = {}
        self._pace: Pace[Exchange] = Pace()
        self._gone_ns: list[int] = []
        self._sent = 0
        self._under_way = 0
        self._changes = 0  # of what is under way and who has gone
        self._askers: list[Exchange] = []  # who wait for the next change
        for _ in range(ports):
            listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
            listener.setblocking(False)
            self._listeners[listener.fileno()] = listener
            self._poll.register(listener.fileno(), select.EPOLLIN)

    @property
    def ports(self) -> list[int]:
        """Where it listens."""
        return [listener.getsockname()[1] for listener in self._listeners.values()]

    def serve(self) -> None:
        """Serve until terminated."""
        poll, pace = self._poll, self._pace
        while True:
            wait_s = pace.wait_s(time.monotonic_ns())
            # epoll rounds its timeout up to milliseconds, which would bunch events up; select takes microseconds.
            if wait_s is None or wait_s <= 0 or select.select([poll], [], [], wait_s)[0]:
                for fd, mask in poll.poll(wait_s if wait_s is None else 0):
                    self._turn(fd, mask)
            pace.run(time.monotonic_ns(), self._tick)

    def _turn(self, fd: int, mask: int) -> None:
        if fd in self._listeners:
            self._accept(self._listeners[fd])
            return
        exchange = self._exchanges[fd]
        if mask & select.EPOLLOUT:
            self._flush(exchange)
        if mask & (select.EPOLLIN | _GONE) and exchange.sock.fileno() >= 0:
            self._read(exchange)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._exchanges[sock.fileno()] = Exchange(sock)
                self._poll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, exchange: Exchange) -> None:
        try:
            data = exchange.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(exchange)
            return
        exchange.received += data
        while exchange.received and not exchange.busy and self._take(exchange):
            pass

    def _take(self, exchange: Exchange) -> bool:
        """Answer the first request that has come; false where none is whole."""
        received = exchange.received
        end = _end(received)
        if end is None:
            return False
        asked, exchange.received = received[:end], received[end:]
        if asked.startswith(b"POST "):
            self._answer(exchange, asked)
        elif asked.startswith(b"GET "):
            self._control(exchange, asked)
        else:  # a router that tries whether this engine speaks HTTP/2
            self._close(exchange)
            return False
        return True

    def _answer(self, exchange: Exchange, asked: bytes) -> None:
        order = _ORDER.search(asked)
        if order is None or order[1] == b"whole":
            self._write(exchange, messages.PLAIN_ANSWER)
            return
        exchange.shape = order[1].decode()
        self._note(exchange, busy=True)
        if exchange.shape == "silent":
            return
        exchange.interval_ns, exchange.left = int(order[2]), int(order[3]) - messages.FRAME_EVENTS
        self._sent += 2
        self._write(exchange, messages.STREAM_BEGIN)
        if exchange.shape != "idle":
            spread = exchange.shape != "tick"
            self._pace.begin(exchange, exchange.interval_ns, time.monotonic_ns(), spread=spread)

    def _tick(self, exchange: Exchange) -> bool:
        """An event is due; false when it was the last."""
        if not exchange.busy:
            return False
        if exchange.left <= 0:
            self._note(exchange, busy=False)
            self._sent += 2
            self._write(exchange, messages.STREAM_TAIL)
            return False
        if exchange.shape != "flood":
            exchange.left -= 1
            self._sent += 1
            self._write(exchange, messages.stamped(time.monotonic_ns()))
        elif not exchange.unsent:  # held up: the block is offered again at the next tick
            exchange.left -= 1
            self._sent += 1
            self._write(exchange, messages.FLOOD_BLOCK)
        return True

    def _end(self, exchange: Exchange) -> None:
        """Have a stream end at its next turn, or at once where it has none."""
        exchange.left = 0
        if exchange.busy and exchange.shape == "idle":
            self._tick(exchange)

    def _write(self, exchange: Exchange, data: bytes) -> None:
        if exchange.unsent:
            exchange.unsent += data
            return
        try:
            sent = exchange.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(exchange)
            return
        if sent < len(data):
            exchange.unsent = data[sent:]
            self._poll.modify(exchange.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def _flush(self, exchange: Exchange) -> None:
        data, exchange.unsent = exchange.unsent, b""
        self._poll.modify(exchange.sock.fileno(), select.EPOLLIN)
        self._write(exchange, data)

    def _close(self, exchange: Exchange) -> None:
        if exchange in self._askers:
            self._askers.remove(exchange)
        if exchange.busy:
            self._gone_ns.append(time.monotonic_ns())
            self._note(exchange, busy=False)
        self._exchanges.pop(exchange.sock.fileno(), None)
        exchange.sock.close()

    def _note(self, exchange: Exchange, *, busy: bool) -> None:
        """An answer begins or is over: whoever waits for a change is told how things stand now."""
        self._under_way += busy - exchange.busy
        self._changes += 1
        exchange.busy = busy
        askers, self._askers = self._askers, []
        for asker in askers:
            self._write(asker, self._state())

    def _state(self) -> bytes:
        state = {
            "changes": self._changes,
            "under_way": self._under_way,
            "sent": self._sent,
            "gone_ns": self._gone_ns,
        }
        return messages.json_answer(json.dumps(state).encode())

    def _control(self, exchange: Exchange, asked: bytes) -> None:
        """What a healthy engine answers to a proxy's own questions, and how things stand to ours."""
        path, _, query = asked.split(b" ", 2)[1].decode().partition("?")
        if path == messages.CHANGED_PATH and int(query) == self._changes:
            self._askers.append(exchange)
        elif path in (messages.STATE_PATH, messages.CHANGED_PATH):
            self._write(exchange, self._state())
        elif path == messages.END_PATH:
            for each in list(self._exchanges.values()):
                self._end(each)
            self._write(exchange, self._state())
        else:
            self._write(exchange, messages.CONTROL.get(path, messages.NOT_FOUND))


def _end(received: bytes) -> int | None:
    """Where the first request ends; None while it is not whole."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    if _CHUNKED.search(received, 0, head_end):
        end = received.find(b"\r\n0\r\n\r\n", head_end)
        return end + 7 if end >= 0 else None
    length = _LENGTH.search(received, 0, head_end)
    end = head_end + 4 + (int(length[1]) if length else 0)
    return end if len(received) >= end else None


def main(ports: int) -> None:
    """Print the ports and serve until terminated."""
    raise_file_limit()
    engine = Engine(ports)
    print(*engine.ports, flush=True)
    engine.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
