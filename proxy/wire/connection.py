"""One connection to a backend: a request is written, and its answer is told to whoever waits for it.

One request at a time. Every byte behind a body, and every byte that nobody asked for, is the end of the connection. Not
here: how it is opened, and how long it is kept (calls.py).
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Protocol, cast

from proxy.protocol.answer_head import CHUNKED, CLOSE, AnswerHead, HeadBroken
from proxy.protocol.chunks import SIZE_LINES, Chunks
from proxy.wire.answer import Answer

# A body above it is written in pieces of this size, between which others get their turn of the loop; below it one write
# is quicker.
WRITE_BYTES = 1024 * 1024
# Heads of status 1xx before the one that counts: there is 100 and 103, and no engine sends either.
MAX_INTERIM_HEADS = 8

# A host that loses its power or its network says nothing more, and an answer may take minutes: asked after ten seconds
# of silence and then every five, it counts as gone after three questions without an answer, or when what was sent is
# not acknowledged for as long (seconds, questions, milliseconds: the kernel's own units).
VANISHED = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}


@dataclass(slots=True)  # frozen it would take three times as long to make, and every request has one
class Call:
    """One request as it goes to a backend; nobody changes it. `head` is all that comes before the body, ready to be
    written; the answer to `method` HEAD has no body."""

    method: str
    head: bytes
    body: bytes = b""


class Home(Protocol):
    """Where connections are kept."""

    def keep(self, connection: "Connection") -> None:
        """Its answer is whole, and it may be used again."""
        ...

    def forget(self, connection: "Connection") -> None:
        """It is closed."""
        ...


class Diversion(Protocol):
    """What takes a connection's reads in its place, and steps aside for all that is not for it. (It is an
    asyncio.Protocol as well. While it stands there a request is not written, so nothing tells of that.)"""

    behind: "Connection | None"


class Connection(asyncio.Protocol):
    """`fault` says why the last call has no answer; `silent` whether not one byte of one has come. `opened_s` and
    `idle_s` are instants of the loop's clock: when it was made, and since when it is kept."""

    __slots__ = (
        "_answer", "_bodiless", "_chunks", "_diversion", "_full", "_head", "_home", "_interim", "_keeps", "_left",
        "_loop", "_reading", "_rest", "_waiter", "closed", "fault", "idle_s", "opened_s", "silent", "transport",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, home: Home, *, keeps: bool) -> None:
        self._loop = loop
        self._home = home
        self._keeps = keeps
        self._waiter: asyncio.Future[Answer | None] | None = None
        self._head: AnswerHead | None = None
        self._answer: Answer | None = None
        self._chunks: Chunks | None = None
        self._diversion: Diversion | None = None
        self._left = 0
        self._bodiless = False
        self._interim = 0
        self._rest: memoryview | None = None
        self._full = False
        self._reading = True
        self.closed = False
        self.silent = True
        self.fault = ""
        self.opened_s = self.idle_s = loop.time()
        self.transport: asyncio.Transport

    # ------------------------------------------------------------ what the pool and the answer ask

    def ask(self, call: Call) -> "asyncio.Future[Answer | None]":
        """Write a request. The future has its answer when its head has come, None when none will: see `fault`."""
        self._waiter = waiter = self._loop.create_future()
        self._bodiless = call.method == "HEAD"
        self.silent = True
        if self.closed:
            self._fail(self.fault)
        elif len(call.body) <= WRITE_BYTES:
            self.transport.write(call.head + call.body)
        else:
            self.transport.write(call.head)
            self._rest = memoryview(call.body)
            self._write_on()
        return waiter

    def is_usable(self) -> bool:
        """Whether another request may be written. One that the backend has closed is noticed a little later."""
        return not (self.closed or self.transport.is_closing())

    def abort(self) -> None:
        """Close at once."""
        self._rest = None
        if not self.closed:
            self.closed = True
            self.undivert()  # the loop may deliver what it has read already
            self.transport.abort()

    def forsake(self) -> None:
        """Let go of the transport: whoever had it made has left before it was theirs. uvloop closes it then and tells
        nobody, and the two would keep each other alive until the collector comes."""
        if hasattr(self, "transport"):
            self.abort()
            del self.transport
        self.closed = True

    def give_up(self, answer: Answer) -> None:
        """See Source.give_up."""
        if self._answer is answer:
            self._answer = None
            self.abort()

    def steer(self, *, reading: bool) -> None:
        """See Source.steer."""
        if reading is self._reading or not self.is_usable():
            return
        self._reading = reading
        if reading:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def divert(self, to: Diversion) -> None:
        """See Source.divert."""
        if self.is_usable() and self._rest is None:
            self._diversion, to.behind = to, self
            self.transport.set_protocol(cast(asyncio.Protocol, to))

    def undivert(self) -> None:
        """Take the reads back."""
        diversion, self._diversion = self._diversion, None
        if diversion is not None:
            diversion.behind = None
            self.transport.set_protocol(self)

    # ------------------------------------------------------------ what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by their type
        opened = transport.get_extra_info("socket")
        if opened is not None:
            notice_vanished_host(opened)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        answer = self._answer
        if answer is None:
            self._head_came(data)
            return
        chunks = self._chunks
        if chunks is None:
            self._body_came(answer, data)
            return
        if chunks.between and data.startswith(line := SIZE_LINES[len(data)]) and data.endswith(b"\r\n"):
            # One whole chunk, as nearly every read is: what `feed` would find, a call less for each event.
            framed, payload = data, data[len(line) : -2]
        else:
            framed, payload = chunks.feed(data)
        if payload:
            sink = answer.sink
            if sink is not None:
                sink.came(framed, payload)
            else:
                answer.gather(payload)
        if chunks.over and self._answer is answer:  # else the sink has closed it
            if chunks.fault is None:
                self._end(answer, clean=not chunks.surplus)
            else:
                self._fail(f"the backend's answer broke off (its framing is broken: {chunks.fault})")

    def eof_received(self) -> None:
        """See asyncio.Protocol."""
        answer = self._answer
        if answer is not None and answer.framing is CLOSE:
            self._end(answer, clean=False)

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.closed = True
        self._home.forget(self)
        kind = f" ({type(error).__name__})" if error is not None else ""
        if self._answer is not None:
            self._fail(f"the backend's answer broke off{kind}")
        elif self.silent:
            self._fail(f"the backend closed the connection without an answer{kind}")
        else:
            self._fail(f"the backend closed the connection in the head of its answer{kind}")

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._full = True

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._full = False
        if self._rest is not None:
            self._loop.call_soon(self._write_on)

    # ------------------------------------------------------------ the way of one call

    def _write_on(self) -> None:
        rest = self._rest
        if rest is None or self.closed:
            return
        self._rest = rest[WRITE_BYTES:] if len(rest) > WRITE_BYTES else None
        self.transport.write(rest[:WRITE_BYTES])
        if self._rest is not None and not self._full:
            self._loop.call_soon(self._write_on)

    def _head_came(self, data: bytes) -> None:
        """The head, or something that nobody has asked for."""
        waiter = self._waiter
        if self.closed:
            return  # uvloop may have read on before it closed
        if waiter is None or waiter.done():
            self.abort()
            return
        self.silent = False
        head = self._head or AnswerHead(bodiless=self._bodiless)
        try:
            rest = head.feed(data)
        except HeadBroken as broken:
            self._fail(f"the backend's answer was not valid HTTP ({broken})")
            return
        if rest is None:
            self._head = head
        elif 200 <= head.status <= 599:
            self._begin(waiter, head, rest)
        else:
            self._pass_over(head, rest)

    def _pass_over(self, head: AnswerHead, rest: bytes) -> None:
        """A head that is not the answer's: those of 1xx say that it will come."""
        self._head = None
        self._interim += 1
        if 100 <= head.status <= 199 and head.status != 101 and self._interim <= MAX_INTERIM_HEADS:
            if rest:
                self._head_came(rest)
            return
        self._fail("the backend's answer has a status that HTTP does not know")

    def _begin(self, waiter: "asyncio.Future[Answer | None]", head: AnswerHead, rest: bytes) -> None:
        self._waiter = self._head = None
        self._interim = 0
        self._keeps = self._keeps and head.kept
        self._left = left = head.length or 0
        if len(rest) >= left and head.framing is not CHUNKED and head.framing is not CLOSE:
            answer = Answer(self, head, rest[:left])
            self._free(clean=len(rest) == left)
        else:
            self._answer = answer = Answer(self, head)
            if head.framing is CHUNKED:
                self._chunks = Chunks()
            if rest:
                self.data_received(rest)
        waiter.set_result(answer)

    def _body_came(self, answer: Answer, data: bytes) -> None:
        """Of a body that is not in chunks."""
        if answer.framing is CLOSE:
            _give(answer, data)
            return
        payload = data[: self._left]
        self._left -= len(payload)
        if payload:
            _give(answer, payload)
        if not self._left and self._answer is answer:  # else the sink has closed it
            self._end(answer, clean=len(payload) == len(data))

    def _end(self, answer: Answer, *, clean: bool) -> None:
        """The answer is whole."""
        self._answer = self._chunks = None
        self._free(clean=clean)
        answer.conclude()

    def _free(self, *, clean: bool) -> None:
        """For another request, if it can be. One that is answered before it was written whole leaves its rest in the
        way."""
        if clean and self._keeps and self._rest is None and not self.transport.get_write_buffer_size():
            if not self._reading:
                self.steer(reading=True)
            self._home.keep(self)
        else:
            self.abort()

    def _fail(self, fault: str) -> None:
        """Neither the answer that is awaited nor the rest of the one that has begun will come."""
        self.fault = self.fault or fault  # the first one: closing is told too
        answer, self._answer = self._answer, None
        waiter, self._waiter = self._waiter, None
        self._head = None
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if answer is not None:
            answer.break_off(fault)


def notice_vanished_host(opened: socket.socket) -> None:
    """Make a socket notice a host that is gone without a word, however long the answer may take."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in VANISHED.items():
        if hasattr(socket, name):  # other systems have some of them
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _give(answer: Answer, payload: bytes) -> None:
    if answer.sink is not None:
        answer.sink.came(b"", payload)
    else:
        answer.gather(payload)
