"""One request to one backend: the small interface that the trip is written against, and aiohttp behind it.

Foreign errors are translated here, once. Deciding what to do about them is in relay.py. A backend has two kept
connection pools: one for clients' requests, one (wire/engine_poll.py) for the proxy's own questions.
"""

import asyncio
import socket
from dataclasses import dataclass
from time import monotonic
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from proxy.errors import BackendBroken, BackendUnreachable, ConnectTimeout, StaleConnection, UpstreamError
from proxy.wire.control import Resolver
from proxy.wire.names import Names

# Both engines run uvicorn, which closes a kept connection after 5 s of idleness; one used again just then is lost.
# Three seconds leave two for the request to arrive.
POOL_IDLE_S = 3.0
# How long a kept connection is used at most: names are looked up for new connections alone, and under steady traffic an
# engine that has moved would be missed for as long as its old address answers.
MAX_AGE_S = 30.0
# A connection that was closed while idle fails within a round trip. A failure later than this came after the engine
# had the request, so sending it again could run the prompt twice.
STALE_WITHIN_S = 0.1
# Heads of engines are below 4 KiB; 64 KiB is the most a broken one may make us hold.
MAX_HEAD_BYTES = 65536
# Bytes an answer may run ahead of its client before reading from the engine pauses (aiohttp pauses at twice this).
READ_AHEAD_BYTES = 65536
# A body above it is written in pieces of this size, between which others get their turn of the loop; below it one write
# is quicker.
WRITE_BYTES = 1024 * 1024

# A host that loses its power or its network says nothing more, and an answer may take minutes: asked after ten seconds
# of silence and then every five, it counts as gone after three questions without an answer, or when what was sent is
# not acknowledged for as long (seconds, questions, milliseconds: the kernel's own units).
VANISHED = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it goes to a backend. `target` is path and query, byte for byte as the client sent them."""

    method: str
    target: str
    headers: Headers
    body: bytes


class Answer(Protocol):
    """An answer whose head has come. Whoever holds it closes it."""

    status: int
    headers: Headers

    async def read(self) -> bytes:
        """The next bytes as they come, b"" at the end of a whole answer. Raises BackendBroken."""
        ...

    def close(self) -> None:
        """Give the answer up: the connection is closed at once unless the answer was read to its end."""
        ...


class Upstream(Protocol):
    """A backend one can send a call to."""

    async def send(self, call: Call, *, fresh: bool = False) -> Answer:
        """Send and wait for the head; `fresh` opens a new connection. Raises UpstreamError. Waits as long as the
        head takes: a limit is the caller's."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class AiohttpAnswer:
    """An aiohttp response read chunk by chunk."""

    __slots__ = ("_closed", "_content", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._content = response.content
        protocol = response.connection.protocol if response.connection is not None else None
        self._closed = protocol.closed if protocol is not None else None
        if self._closed is not None:
            self._closed.remove_done_callback(_look)  # once a connection, however many answers come over it
            self._closed.add_done_callback(_look)
            self._closed.add_done_callback(self._lost)
        self.status = response.status
        self.headers: Headers = [
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in response.raw_headers
        ]

    async def read(self) -> bytes:
        """See Answer.read."""
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise BackendBroken(f"the backend's answer broke off ({type(error).__name__})") from error

    def close(self) -> None:
        """See Answer.close."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._lost)  # a kept connection outlives many answers
        if not self._content.is_eof() and self._content.exception() is None:
            # aiohttp would raise one and the same exception for all readers: it keeps the frames of each of them.
            self._content.set_exception(BackendBroken("the answer was given up"))
        self._response.close()

    def _lost(self, _: "asyncio.Future[None]") -> None:
        """Wakes the reader: aiohttp gives a connection up over a broken chunk and tells whoever reads nothing."""
        if not self._content.is_eof() and self._content.exception() is None:
            self._content.set_exception(BackendBroken("the backend's answer broke off (its framing is broken)"))


def _look(closed: "asyncio.Future[None]") -> None:
    """Look at why a connection ended, else the loop complains of an error that nobody asked for."""
    if not closed.cancelled():
        closed.exception()


class AiohttpUpstream:
    """A backend reached through aiohttp's client, with a pool of kept connections."""

    def __init__(self, url: str, *, connect_s: float, names: Names | None = None) -> None:
        self._scheme, self._authority, *_ = urlsplit(url)
        self._connect_s = connect_s
        self._names = names or Names()
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def send(self, call: Call, *, fresh: bool = False) -> Answer:
        """See Upstream.send."""
        seen = SimpleNamespace(reused=False)
        sent_at_s = monotonic()
        try:
            response = await self._pick(fresh=fresh).request(
                call.method,
                self._url(call.target),
                headers=call.headers,
                data=_data(call.body),
                allow_redirects=False,
                trace_request_ctx=seen,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _translate(error, reused=seen.reused, after_s=monotonic() - sent_at_s) from error
        if not 200 <= response.status <= 599:
            response.close()
            raise BackendBroken("the backend's answer has a status that HTTP does not know")
        return AiohttpAnswer(response)

    async def close(self) -> None:
        """See Upstream.close."""
        for session in (self._session, self._fresh):
            if session is not None:
                await session.close()
        self._session = self._fresh = None

    def _url(self, target: str) -> URL:
        """The whole target goes as a path: of a query, yarl would drop the "?" where nothing follows it."""
        return URL.build(scheme=self._scheme, authority=self._authority, path=target, encoded=True)

    def _pick(self, *, fresh: bool) -> aiohttp.ClientSession:
        if fresh:
            self._fresh = self._fresh or open_session(self._connect_s, self._names, keep=False)
            return self._fresh
        self._session = self._session or open_session(self._connect_s, self._names, keep=True)
        return self._session


def open_session(connect_s: float, names: Names, *, keep: bool) -> aiohttp.ClientSession:
    """A client session that adds nothing to a request and takes nothing from the environment."""
    how: dict[str, Any] = {
        "limit": 0,
        "use_dns_cache": False,
        "resolver": Resolver(names),
        "socket_factory": _open_socket,
    }
    connector = _Pool(**how, keepalive_timeout=POOL_IDLE_S) if keep else aiohttp.TCPConnector(**how, force_close=True)
    session = aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=None),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
        read_bufsize=READ_AHEAD_BYTES,
        trace_configs=[_reuse_trace()],
        requote_redirect_url=False,
    )
    # aiohttp would send PUT and GET again by itself when a kept connection fails, however late; that is decided here.
    session._retry_connection = False
    return session


def _open_socket(address: "aiohttp.AddrInfoType") -> socket.socket:
    """A socket that notices a host that is gone without a word, however long the answer may take."""
    opened = socket.socket(*address[:3])
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in VANISHED.items():
        if hasattr(socket, name):  # other systems have some of them
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened


class _Pool(aiohttp.TCPConnector):
    """Kept connections, less those on which something came while nobody had asked: it is no answer to who asks next.
    And less the old ones: a name may have another address by now."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._opened_s: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    async def _create_connection(self, *asked: Any, **how: Any) -> Any:
        protocol = await super()._create_connection(*asked, **how)
        self._opened_s[protocol] = monotonic()
        return protocol

    async def _get(self, key: Any, traces: Any) -> Any:
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close and self._age_s(protocol) < MAX_AGE_S:
                return connection
            connection.close()
        return None

    def _age_s(self, protocol: Any) -> float:
        return monotonic() - self._opened_s.get(protocol, 0.0)


class _LargeBody(aiohttp.payload.Payload):
    """A body that is written piece by piece, with a pause where the engine reads slowly."""

    _value: bytes

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        whole = memoryview(self._value)
        for begin in range(0, len(whole), WRITE_BYTES):
            await writer.write(whole[begin : begin + WRITE_BYTES])


def _data(body: bytes) -> bytes | _LargeBody | None:
    return _LargeBody(body) if len(body) > WRITE_BYTES else body or None


def _reuse_trace() -> aiohttp.TraceConfig:
    trace = aiohttp.TraceConfig()

    async def note(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
        if context.trace_request_ctx is not None:
            context.trace_request_ctx.reused = True

    trace.on_connection_reuseconn.append(note)
    return trace


def _translate(error: Exception, *, reused: bool, after_s: float) -> UpstreamError:
    """The error of ours that says the same; messages name no address, since clients may see them."""
    kind = type(error).__name__
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ConnectTimeout("the backend took no connection within timeouts.connect_s; is its host reachable?")
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.InvalidURL):
        return BackendUnreachable(f"no connection to the backend ({kind}); is it running at the configured url?")
    if isinstance(error, TimeoutError):
        return ConnectTimeout("the backend took no connection within timeouts.connect_s; is its host reachable?")
    if reused and after_s < STALE_WITHIN_S and isinstance(error, aiohttp.ClientConnectionError | OSError):
        return StaleConnection("the backend closed a kept connection as it was used again")
    if isinstance(error, aiohttp.ClientResponseError):
        return BackendBroken("the backend's answer was not valid HTTP")
    return BackendBroken(f"the backend closed the connection without an answer ({kind})")
