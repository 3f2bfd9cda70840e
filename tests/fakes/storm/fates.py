"""What an engine makes of an attempt: every way an answer can go well or wrong, with a record of each byte of it."""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fakes.engine import Exchange
from fakes.storm.books import Attempt
from fakes.storm.plan import Plan

from proxy.model import Dialect

MARK = "x-storm-attempt"
_WORD = re.compile(rb"w([012])")
_RST = struct.pack("ii", 1, 0)
NOBODYS = b"HTTP/1.1 200 OK\r\nx-storm-attempt: 0\r\ncontent-length: 6\r\n\r\nnobody"


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST."""
    sock: Any = writer.get_extra_info("socket")
    if sock is not None and not writer.transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
    writer.transport.abort()


class Act:
    """One attempt being answered."""

    def __init__(self, exchange: Exchange, attempt: Attempt, plan: Plan) -> None:
        self.exchange, self.attempt, self.plan = exchange, attempt, plan
        sample = plan.sample
        word = b"w\\1-%d-%b" % (attempt.serial, b"x" * plan.pad_bytes)
        events = [_WORD.sub(word, event) for event in sample.events] or [b""]
        self.events = [events[number % len(events)] for number in range(plan.pieces)]

    # ------------------------------------------------------------ pieces of an answer

    async def rest(self, seconds: float) -> None:
        """Let time pass, unless the other side leaves."""
        try:
            async with asyncio.timeout(seconds):
                await self.exchange.reader.read(1)
        except TimeoutError:
            return
        raise ConnectionResetError

    async def gone(self) -> None:
        await self.exchange.gone()
        raise ConnectionResetError

    def drop(self, *, by_reset: bool = True) -> None:
        if by_reset:
            reset(self.exchange.writer)
        raise ConnectionResetError

    async def head(self, status: str, *lines: str) -> None:
        self.attempt.status = int(status[:3])
        await self.exchange.head(status, f"{MARK}: {self.attempt.serial}", *lines)

    async def write(self, data: bytes) -> None:
        """One chunk of the body."""
        self.attempt.body += data
        await self.exchange.chunk(data)

    async def begin(self, events: int, gap_s: float = 0.0) -> None:
        """The head of a stream and its first events."""
        await self.head("200 OK", f"content-type: {self.plan.sample.content_type}", "transfer-encoding: chunked")
        for event in self.events[:events]:
            await self.write(event)
            if gap_s:
                await self.rest(gap_s)

    async def end(self, last: bytes, *, good: bool = True) -> None:
        self.attempt.ending, self.attempt.good = True, good
        await self.write(last)
        await self.exchange.end()
        self.attempt.sent = True

    async def answer(self, status: str, value: object, *lines: str, good: bool = False) -> None:
        """A whole plain answer."""
        body = orjson.dumps(value)
        await self.head(status, "content-type: application/json", f"content-length: {len(body)}", *lines)
        self.attempt.body += body
        self.attempt.ending, self.attempt.good = True, good
        await self.exchange.send(body)
        self.attempt.sent = True

    @property
    def whole(self) -> dict[str, object]:
        pad = "x" * self.plan.pad_bytes * self.plan.pieces
        return {"attempt": self.attempt.serial, "pad": pad, "usage": {"prompt_tokens": 1, "completion_tokens": 2}}

    @property
    def some(self) -> int:
        """Some of the events, at least one."""
        return 1 + int(self.plan.moment * (len(self.events) - 1))


# ---------------------------------------------------------------- answers


async def finish(act: Act, gap_s: float = 0.0) -> None:
    if not act.plan.stream:
        return await act.answer("200 OK", act.whole, good=True)
    await act.begin(len(act.events), gap_s)
    return await act.end(act.plan.sample.end)


async def drip(act: Act) -> None:
    await finish(act, 0.3 * act.plan.moment / len(act.events) + 0.01)


async def late_head(act: Act) -> None:
    await act.rest(0.05 + 0.4 * act.plan.moment)
    await finish(act)


async def comments(act: Act) -> None:
    if not act.plan.stream or act.plan.sample.dialect is Dialect.OLLAMA:
        return await finish(act)
    await act.begin(0)
    for _ in range(3):
        await act.write(b": still here\n\n")
        await act.rest(0.05)
    for event in act.events:
        await act.write(event)
    return await act.end(act.plan.sample.end)


async def trailing(act: Act) -> None:
    """Whole, and then an answer that nobody asked for."""
    await finish(act)
    await act.exchange.send(NOBODYS)


# ---------------------------------------------------------------- refusals


async def reject(act: Act) -> None:
    await act.answer(
        ("400 Bad Request", "404 Not Found", "422 Unprocessable Entity")[act.attempt.serial % 3],
        {"object": "error", "message": "no", "attempt": act.attempt.serial, "code": 400},
    )


async def fail(act: Act) -> None:
    status = ("500 Internal Server Error", "502 Bad Gateway", "504 Gateway Timeout")[act.attempt.serial % 3]
    await act.answer(status, {"error": "no", "attempt": act.attempt.serial})


async def busy(act: Act) -> None:
    status = ("429 Too Many Requests", "503 Service Unavailable")[act.attempt.serial % 2]
    await act.answer(status, {"error": "busy", "attempt": act.attempt.serial}, "retry-after: 1")


def _error(plan: Plan, code: int) -> bytes:
    value = orjson.dumps({"error": {"message": "no", "type": "overloaded_error", "code": code}})
    if plan.sample.dialect is Dialect.OLLAMA:
        return value + b"\n"
    if plan.sample.dialect is Dialect.MESSAGES:
        return b'event: error\ndata: {"type":"error",' + value[1:] + b"\n\n"
    return b"data: " + value + b"\n\n"


async def refuse(act: Act) -> None:
    """HTTP 200 and an error event: busy, or a request that is wrong."""
    if not act.plan.stream:
        return await busy(act)
    await act.begin(0)
    return await act.end(_error(act.plan, (503, 400, 429)[act.attempt.serial % 3]), good=False)


async def mid_error(act: Act) -> None:
    if not act.plan.stream:
        return await fail(act)
    await act.begin(act.some)
    return await act.end(_error(act.plan, 500), good=False)


# ---------------------------------------------------------------- breaks of every kind


async def reset_before(act: Act) -> None:
    act.drop()


async def reset_in_head(act: Act) -> None:
    await act.exchange.send(b"HTTP/1.1 200 OK\r\ncontent-ty")
    act.drop()


async def break_in_stream(act: Act, *, by_reset: bool) -> None:
    if not act.plan.stream:
        return await truncated(act)
    await act.begin(act.some)
    await act.write(act.events[0][:10])
    await act.rest(0.02)
    return act.drop(by_reset=by_reset)


async def reset_in_stream(act: Act) -> None:
    await break_in_stream(act, by_reset=True)


async def fin_in_stream(act: Act) -> None:
    await break_in_stream(act, by_reset=False)


async def silence(act: Act) -> None:
    await act.gone()


async def silence_in_stream(act: Act) -> None:
    if act.plan.stream:
        await act.begin(act.some)
    await act.gone()


async def garbage(act: Act) -> None:
    await act.exchange.send(b"\x00\x01 this is no HTTP \xff\r\n\r\n")
    await act.gone()


async def huge_head(act: Act) -> None:
    await act.exchange.head("200 OK", f"x-huge: {'h' * 70_000}", "content-length: 0")
    await act.gone()


async def broken_chunks(act: Act) -> None:
    await act.begin(act.some if act.plan.stream else 0)
    await act.exchange.send(b"zz\r\nno chunk\r\n")
    await act.gone()


async def truncated(act: Act) -> None:
    """A body that ends before its framing does."""
    if act.plan.stream:
        await act.begin(act.some)
        await act.exchange.send(b"ff\r\n")
    else:
        body = orjson.dumps(act.whole)
        await act.head("200 OK", "content-type: application/json", f"content-length: {len(body)}")
        act.attempt.body += body[:-5]
        await act.exchange.send(body[:-5])
    act.drop(by_reset=False)


async def no_end(act: Act) -> None:
    """A stream that its framing ends and its dialect does not."""
    if not act.plan.stream:
        return await truncated(act)
    await act.begin(act.some)
    return await act.exchange.end()


FATES: dict[str, Callable[[Act], Awaitable[None]]] = {
    act.__name__: act
    for act in (
        *(finish, drip, late_head, comments, trailing, reject, fail, busy, refuse, mid_error, reset_before),
        *(reset_in_head, reset_in_stream, fin_in_stream, silence, silence_in_stream, garbage, huge_head),
        *(broken_chunks, truncated, no_end),
    )
}
