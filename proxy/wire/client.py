"""One connection of a client: requests in the order in which they came, one task for each, and their answers.

Finding requests in bytes is in reader.py, how an answer looks in downstream.py, limits that need a clock in front.py.
"""

import asyncio
import socket
import struct
from typing import cast

from proxy import tasks
from proxy.closing import CloseReason
from proxy.errors import CrossoverError, HeadTimeout
from proxy.model import Dialect
from proxy.wire.downstream import PIECE_BYTES, Downstream, error_reply
from proxy.wire.host import Host
from proxy.wire.reader import Reader
from proxy.wire.request import Incoming, Request
from proxy.wire.untaken import untaken_bytes

# Of further requests before an answer. Some small ones sent in a row fit; what lies here is in nobody's books.
MAX_AHEAD_BYTES = 65536
# No client has so many requests under way on one connection; browsers have one, the busiest libraries a few.
MAX_AHEAD = 32
# For so long a client that still sends may go on, unheard, to come to its answer: closed outright, the kernel would
# take the answer back.
LINGER_S = 10.0
# SO_LINGER on, for no time: closing the socket then sends a reset instead of an orderly end.
AT_ONCE = struct.pack("ii", 1, 0)


class Client(asyncio.Protocol):
    """One connection. `peer` is the client's address, `transport` None before and after its life."""

    __slots__ = (
        *("_aborts", "_answering", "_down", "_dropped", "_full", "_keeps", "_linger", "_loop", "_paused", "_queue"),
        "_refused_head",
        *("_reader", "_room", "task", "_unread", "host", "peer", "transport"),
    )

    def __init__(self, host: Host) -> None:
        self.host = host
        self.peer = ""
        self.transport: asyncio.Transport | None = None
        self._reader = Reader(self)
        self._queue: list[Request | CrossoverError] = []  # behind the one that is answered
        self._refused_head = False  # the refusal among them, always the last, is of a HEAD
        self._answering: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self._down: Downstream | None = None  # its answer, once it has begun
        self._keeps = True  # the answer lets the client use the connection again
        self._full = False
        self._paused = False  # reading
        self._dropped = False  # and counted
        self._aborts = False  # once everything written has left
        self._room: asyncio.Future[None] | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._unread: tuple[int, float] | None = None  # how much waited to be taken, and since when so much

    # ------------------------------------------------------------ the connection's life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, or turn away where there are too many. The clock of the first head runs."""
        host = self.host
        # What the loop makes is a transport, whatever its class: uvloop's is none of asyncio's.
        wire = cast(asyncio.Transport, transport)
        if host.room() <= 0:
            host.surplus.turn_away(wire, host.rules.max_told)
            return
        self.transport = wire
        self._loop = asyncio.get_running_loop()
        peer = wire.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        opened = wire.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        host.connections.add(self)
        host.heads[self] = self._loop.time()
        host.watch()

    def connection_lost(self, _: BaseException | None) -> None:
        """The client is gone: what is done for it is given up, unless its answer is written."""
        if self.transport is None:
            return
        self.transport = None
        self.host.forget(self)
        self._reader.close()
        self._queue.clear()
        if self._linger is not None:
            self._linger.cancel()
        if self._room is not None and not self._room.done():
            self._room.set_exception(ConnectionResetError("the client is gone"))
        if self.task is not None and not (self._down is not None and self._down.over):
            self.task.cancel()
        self._answering = self.task = self._down = None

    def data_received(self, data: bytes) -> None:
        """Take bytes, whatever else goes on: a connection that is not read does not tell when its client leaves."""
        reader, host = self._reader, self.host
        if reader.closed:
            return
        reader.feed(data)
        if self._answering is not None or reader.unfinished_bytes:
            host.idle.pop(self, None)
        if reader.unfinished_bytes and not reader.closed and not reader.in_body:
            host.heads.setdefault(self, self._loop.time())
        if self._queue:
            self._note_crowd(len(data))

    def pause_writing(self) -> None:
        """The client takes less than is written."""
        self._full = True
        down = self._down
        if down is not None:
            down.full = True
            if down.on_full is not None:
                down.on_full()

    def resume_writing(self) -> None:
        """There is room again."""
        self._full = False
        self._unread = None  # the client takes, though the same may wait for it when that is looked at
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        if self._aborts:
            self.abort()
        down = self._down
        if down is not None:
            down.full = False
            if down.on_room is not None:
                down.on_room()

    # ------------------------------------------------------------ what the reader finds

    def asked(self, request: Request) -> None:
        """A request has come; it is answered at once where no other is."""
        self.host.heads.pop(self, None)
        if self._answering is None:
            self._answering = request
            self.task = tasks.start(self._loop, self._answer(request), name="request")
            return
        self._queue.append(request)
        if len(self._queue) >= MAX_AHEAD:
            self._reader.closed = True
            self.drop(CloseReason.FLOODED)

    def refuse(self, error: CrossoverError, *, bodiless: bool = False) -> None:
        """Answer what has come by an error, behind the requests before it, and read no more. To a HEAD it is
        `bodiless`."""
        self._reader.closed = True
        self.host.heads.pop(self, None)
        self._queue.append(error)
        self._refused_head = bodiless
        if self._answering is None:
            self._next()

    def pause(self) -> None:
        """Read no more until what has come is taken."""
        if self.transport is not None and not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused:
            self._paused = False
            if self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    # ------------------------------------------------------------ one answer after the other

    async def _answer(self, request: Request) -> None:
        try:
            reply = await self.host.door(request)
            if reply is not None:
                down = Downstream(request)
                if len(reply.body) <= PIECE_BYTES:
                    down.tell(reply)
                else:
                    await down.tell_piecemeal(reply)
                if self._full and self._keeps:
                    # Else the answers to whoever asks on and takes none of them would pile up.
                    await down.drain()
        except asyncio.CancelledError:
            self.abort()
            raise
        except ConnectionError:
            self._keeps = False  # the client is gone, and nothing of ours has failed
        except Exception as error:  # noqa: BLE001 - whatever nobody caught is told, and ends the connection
            told = self.host.failed(error, request.peer)
            if self._down is None:
                Downstream(request).tell(error_reply(told, Dialect.PLAIN, close=True))
        self._answered()

    def _answered(self) -> None:
        down, self._down = self._down, None
        self._answering = self.task = None
        if self.transport is None:
            return
        if down is None:
            self._keeps = False  # nothing was said, and nothing else may be said in its place
        elif not down.over:
            down.cut(told=False)
        if self._paused:
            self.resume()
        if self._keeps and not self._queue:
            self.host.idle[self] = self._loop.time()  # as nearly always
        else:
            self._next()

    def _next(self) -> None:
        """Turn to what has come behind, or wait for it."""
        if not self._keeps:
            self._finish()
        elif not self._queue:
            self.host.idle[self] = self._loop.time()
        else:
            come = self._queue.pop(0)
            if isinstance(come, Request):
                self.asked(come)
                self._note_crowd(0)
            else:
                self._tell_refusal(come)

    def _tell_refusal(self, error: CrossoverError) -> None:
        self.host.refused(error, self.peer)
        none = Incoming(None, expected=False)
        method = "HEAD" if self._refused_head else ""
        nothing = Request(method, "", [], {}, incoming=none, client=self, http10=False, keeps=False, peer=self.peer)
        Downstream(nothing).tell(error_reply(error, Dialect.PLAIN, close=True))
        self._finish()

    def _finish(self) -> None:
        """Close the connection behind what was written. A client that may still be sending is let, unheard."""
        transport, reader = self.transport, self._reader
        if transport is None or transport.is_closing() or self._linger is not None:
            return
        sending, refused = reader.in_body, reader.closed
        reader.closed = True
        self._queue.clear()
        if transport.can_write_eof() and (sending or refused):
            transport.write_eof()
        elif not sending:
            transport.close()
            return
        self._linger = self._loop.call_later(LINGER_S, transport.abort)

    # ------------------------------------------------------------ what an answer does with it

    def begin(self, down: Downstream, request: Request, *, keeps: bool) -> bool:
        """The head of an answer is about to be written; whether it leaves the connection open, where it `keeps` it
        itself. While the proxy takes its leave none does: clients then come again on a new connection, to whoever
        serves by then. Nor does one to a request whose body has not come: it might never, or come as if it were a
        request."""
        self._down = down
        down.full = self._full
        self._keeps = keeps and self._keeps and request.keeps and request.incoming.ended and not self.host.leaving
        return self._keeps

    def write(self, data: bytes) -> None:
        """Send, unless the client is gone."""
        if self.transport is not None:
            self.transport.write(data)

    async def room(self) -> None:
        """Wait until the client takes more. Raises ConnectionError if it is gone."""
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        if self._full:
            self._room = self._loop.create_future()
            try:
                await self._room
            finally:
                self._room = None

    def cut(self, *, reset: bool) -> None:
        """Close the connection once everything written has left, by a reset where an orderly end would be taken for
        the end of the answer."""
        self._keeps = False
        self._reader.closed = True
        transport = self.transport
        if transport is None:
            return
        if reset and transport.get_extra_info("sslcontext") is not None:
            # TLS says goodbye at an orderly close, and a client that has heard that takes the answer for whole.
            transport.set_write_buffer_limits(high=1, low=0)  # at 0 uvloop calls an empty buffer full
            self._aborts = self._full
            if not self._aborts:
                transport.abort()
            return
        wire = transport.get_extra_info("socket") if reset else None
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        transport.close()

    # ------------------------------------------------------------ what its server asks

    def is_busy(self) -> bool:
        """Whether a request has come and its answer is not written yet."""
        return self._answering is not None or bool(self._queue)

    def is_silent(self) -> bool:
        """Whether its first request has not begun to come."""
        return self in self.host.heads and self._reader.unfinished_bytes == 0

    def leave(self) -> None:
        """Close the connection as soon as no request is on it. One whose head or body is coming is let come, and
        `Connection: close` on its answer ends the connection then."""
        if self.is_busy():
            self._keeps = self._keeps and self._reader.in_body
        elif not self._reader.unfinished_bytes:
            self._finish()

    def give_up_head(self) -> None:
        """End a connection whose head takes too long; one that has sent nothing has asked nothing."""
        if self._reader.unfinished_bytes == 0:
            self.dismiss(CloseReason.SILENT)
        else:
            limit_s = self.host.rules.head_timeout_s
            self.refuse(HeadTimeout(f"the head of the request took longer than listen.head_timeout_s ({limit_s:g} s)"))

    def crowds(self) -> Request | None:
        """The request that is being answered, where too much waits behind it."""
        if self._answering is None or not self._queue or (self._down is not None and self._down.over):
            return None
        ahead_bytes = sum(each.incoming.raw_bytes for each in self._queue if isinstance(each, Request))
        return self._answering if ahead_bytes > MAX_AHEAD_BYTES else None

    def _note_crowd(self, size_bytes: int) -> None:
        newest = self._queue[-1] if self._queue else None
        if isinstance(newest, Request):
            newest.incoming.raw_bytes += size_bytes
            if self.crowds() is not None:
                self.host.crowded.setdefault(self, None)

    def unread_s(self, now_s: float) -> float:
        """For how long the client has taken nothing of what waits for it; looked at now and then."""
        waiting = 0 if self.transport is None else untaken_bytes(self.transport)
        if waiting == 0:
            self._unread = None
        elif self._unread is None or self._unread[0] != waiting:
            self._unread = (waiting, now_s)
        return 0.0 if self._unread is None else now_s - self._unread[1]

    def dismiss(self, reason: CloseReason) -> None:
        """Close a connection on which nothing is under way, and count it."""
        if self.transport is not None:
            self.host.closed(reason)
            self.transport.close()

    def drop(self, reason: CloseReason) -> None:
        """Close the connection now and count it: the client is then gone like any other that leaves."""
        if self.transport is not None and not self._dropped:
            self._dropped = True
            self.host.closed(reason)
            self.transport.abort()

    def abort(self) -> None:
        """Close the connection now, unsent bytes and all."""
        if self.transport is not None:
            self.transport.abort()
