"""The answer's way to the client: heads with the decision stamped on, errors of our own, and an honest abnormal end."""

import asyncio
import socket
import struct
from collections.abc import Iterable

from aiohttp import web

from proxy.errors import CrossoverError, KeyRefused, MethodNotAllowed
from proxy.model import Because, Decision, Dialect
from proxy.protocol import dialects
from proxy.protocol.headers import downstream_headers
from proxy.wire.kept import Kept

# Said where the engine says nothing; aiohttp would tell which Python and which library run here.
SERVER = "crossover"
# What comes piece by piece, whether we understand it or not: without a word, proxies in front gather it into bursts.
STREAMED_TYPES = frozenset({"text/event-stream", "application/x-ndjson"})
UNBUFFERED = ("X-Accel-Buffering", "no")
# Of a large body: as much as a transport takes before it says that it is full.
PIECE_BYTES = 65536
# SO_LINGER on, for no time: closing the socket then sends a reset instead of an orderly end.
AT_ONCE = struct.pack("ii", 1, 0)


class Downstream(web.StreamResponse):
    """A response whose end can be abnormal: the client must not take a broken answer for a whole one."""

    _cut = False
    _secured: asyncio.Transport | None = None  # to be closed behind TLS's back, once what was written has left

    def cut(self, *, told: bool) -> None:
        """End without the final chunk, short of Content-Length, or by a reset where nothing else would show the break
        and the client was not `told` of it: a reset could cost it that last word. What was written is flushed before.
        """
        self._cut = True
        self.force_close()
        if self._ends_by_closing and not told:
            self._reset_at_close()

    @property
    def _ends_by_closing(self) -> bool:
        """Whether nothing but the end of the connection ends the body, as with HTTP/1.0 clients."""
        writer = self._payload_writer
        return writer is not None and writer.length is None and not getattr(writer, "chunked", True)

    def _reset_at_close(self) -> None:
        transport = self._req.transport if self._req is not None else None
        wire = transport.get_extra_info("socket") if transport is not None else None
        if transport is not None and transport.get_extra_info("sslcontext") is not None:
            self._secured = transport
        if wire is not None:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)

    async def write_eof(self, data: bytes = b"") -> None:
        """End the response; raises ConnectionResetError after `cut`, on which aiohttp closes without ending it."""
        if self._cut:
            if self._secured is not None:
                await self._abort_when_sent(self._secured)
            raise ConnectionResetError("the answer was cut on purpose")
        await super().write_eof(data)

    async def _abort_when_sent(self, transport: asyncio.Transport) -> None:
        """TLS says goodbye at an orderly close, and a client that has heard that takes the answer for whole. One that
        takes nothing is dropped like any other."""
        transport.set_write_buffer_limits(high=1, low=0)  # at 0 uvloop calls an empty buffer full
        assert self._payload_writer is not None
        await self._payload_writer.drain()
        transport.abort()


def open_response(status: int, headers: Iterable[tuple[str, str]], stamps: Iterable[tuple[str, str]]) -> Downstream:
    """A response with the backend's end-to-end headers, names and order kept, and the proxy's own stamps.

    A backend's own copy of a stamped header gives way; Content-Length decides the framing (else chunks). A stream tells
    proxies in front not to buffer it.
    """
    response = Downstream(status=status)
    headers, stamps = list(headers), list(stamps)
    if _is_streamed(headers):
        stamps.append(UNBUFFERED)
    ours = {name.lower() for name, _ in stamps}
    for name, value in headers:
        if name.lower() not in ours:
            response.headers.add(name, value)
    for name, value in stamps:
        response.headers[name] = value
    response.headers.setdefault("Server", SERVER)
    return response


def _is_streamed(headers: Iterable[tuple[str, str]]) -> bool:
    types = (value.partition(";")[0].strip().lower() for name, value in headers if name.lower() == "content-type")
    return any(each in STREAMED_TYPES for each in types)


def error_response(
    error: CrossoverError, dialect: Dialect, stamps: Iterable[tuple[str, str]] = (), *, close: bool = False
) -> web.Response:
    """An error of our own making as a response in the client's dialect."""
    response = web.Response(
        status=error.status, body=dialects.error_body(error, dialect), content_type="application/json"
    )
    response.headers["Server"] = SERVER
    for name, value in stamps:
        response.headers[name] = value
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    if isinstance(error, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(sorted(error.allow))
    if isinstance(error, KeyRefused):
        response.headers["WWW-Authenticate"] = "Bearer"
    if close:
        response.force_close()
    return response


class _Kept(web.StreamResponse):
    """A body that is there whole and is written piece by piece: in one write all of it would lie in the transport,
    where under TLS nobody sees that a client takes none of it."""

    def __init__(self, kept: Kept) -> None:
        super().__init__(status=kept.status)
        self._whole = memoryview(kept.body)

    async def write_eof(self, data: bytes = b"") -> None:
        """Write what is there, then the end."""
        whole, self._whole = self._whole, self._whole[:0]
        for begin in range(0, len(whole), PIECE_BYTES):
            await self.write(bytes(whole[begin : begin + PIECE_BYTES]))
        await super().write_eof(data)


def kept_response(kept: Kept, stamps: Iterable[tuple[str, str]], *, bodiless: bool = False) -> web.StreamResponse:
    """A backend's answer that was read whole, status and body unchanged; `bodiless` keeps a HEAD's Content-Length."""
    response = web.StreamResponse(status=kept.status) if bodiless else _Kept(kept)
    for name, value in downstream_headers(kept.headers):
        response.headers.add(name, value)
    if not bodiless and kept.status not in (204, 304):
        response.content_length = len(kept.body)
    for name, value in stamps:
        response.headers[name] = value
    response.headers.setdefault("Server", SERVER)
    return response


def stamps_of(request_id: str, decision: Decision | None) -> list[tuple[str, str]]:
    """The headers that tell the client which backend answered, and why."""
    stamps = [("x-request-id", request_id)]
    if decision is not None and decision.role is not None:
        because = decision.because
        stamps += [
            ("x-crossover-backend", decision.role.value),
            ("x-crossover-reason", decision.reason.value),
            (
                "x-crossover-in-flight",
                f"speculative={because.speculative_in_flight}, baseline={because.baseline_in_flight}",
            ),
            ("x-crossover-because", because_header(because)),
        ]
    return stamps


def because_header(because: Because) -> str:
    """The numbers of a decision as one header value."""
    failures = f", recent_failures={because.recent_failures}" if because.recent_failures else ""
    return (
        f"policy={because.policy.value}, regime={because.regime.value}, smoothed={because.smoothed:.2f}, "
        f"enter_at={because.enter_at}, leave_at={because.leave_at}{failures}"
    )
