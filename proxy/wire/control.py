"""The proxy's own questions to an engine, over a pool of their own: a busy data path must not starve them.

They are few, so they go through aiohttp's client. Not here: clients' requests (calls.py).
"""

import asyncio
import errno
import os
import socket
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from proxy.errors import BackendBroken, BackendUnreachable, FirstByteTimeout, UpstreamError
from proxy.protocol.answer_head import MAX_HEAD_BYTES
from proxy.wire.calls import MAX_AGE_S, POOL_IDLE_S
from proxy.wire.connection import MAX_INTERIM_HEADS, notice_vanished_host
from proxy.wire.lack import lack
from proxy.wire.names import NO_ADDRESS, Names

# Answers to control questions are some kilobytes (/server_info 31 KB, /metrics some 100 KB); more is not for us.
MAX_ANSWER_BYTES = 8 * 1024 * 1024
# What is read at once, between two looks at how many heads have come: a socket may give 256 KiB, which are thousands.
PIECE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answered to a control question."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Heard:
    """What the questions so far came to, for people: the status of the latest answer, and why the latest question that
    failed did, in words; None where there was none."""

    answered: int | None = None
    failure: str | None = None


class Control:
    """Asks one backend control questions. `api_key` is the backend's own key, sent even to open paths."""

    def __init__(self, url: str, *, api_key: str | None, connect_s: float, names: Names | None = None) -> None:
        self._base = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connect_s = connect_s
        self._names = names or Names()
        self._session: aiohttp.ClientSession | None = None
        self.heard = Heard()
        self._answered_s = float("-inf")

    async def get(self, path: str, *, within_s: float) -> Reply:
        """GET a path. Raises BackendUnreachable, OutOfSockets, FirstByteTimeout where nothing came in time, and
        BackendBroken, also for an answer that began and is late, or is too large."""
        self._session = self._session or _open_session(self._connect_s, self._names)
        begun = False
        try:
            async with (
                asyncio.timeout(within_s),
                self._session.get(
                    URL(self._base + path, encoded=True), headers=self._headers, allow_redirects=False
                ) as response,
            ):
                begun = True
                self._answered_s = monotonic()
                self.heard = replace(self.heard, answered=response.status)
                return Reply(response.status, await _whole(response.content))
        except aiohttp.ClientConnectorError as error:
            self.heard = replace(self.heard, failure=_unreached(error))
            # Not in a local: an error keeps the frame that raised it, which is not to keep the error.
            raise lack(error, monotonic() - self._answered_s) or BackendUnreachable(
                f"{path}: no connection ({type(error).__name__})"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self.heard = replace(self.heard, failure=self._unheard(error, within_s))
            raise self._broken(path, error, within_s, begun=begun) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _unheard(self, error: Exception, within_s: float) -> str:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"no connection within {self._connect_s:g} s"
        if isinstance(error, TimeoutError):
            return f"none within {within_s:g} s"
        if isinstance(error, aiohttp.ClientResponseError):
            return "what is there does not speak HTTP"
        return "the connection was broken off"

    @staticmethod
    def _broken(path: str, error: Exception, within_s: float, *, begun: bool) -> UpstreamError:
        if isinstance(error, TimeoutError):
            late = BackendBroken if begun else FirstByteTimeout
            return late(f"{path}: no answer within {within_s:g} s")
        return BackendBroken(f"{path}: {type(error).__name__}")


def _unreached(error: aiohttp.ClientConnectorError) -> str:
    """Why there is no connection."""
    met = error.os_error
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        unknown = isinstance(met, socket.gaierror) and met.errno in NO_ADDRESS
        return "its name is not known" if unknown else "its name could not be looked up"
    if isinstance(error, aiohttp.ClientConnectorSSLError | aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted, or there is no TLS"
    if met.errno == errno.ECONNREFUSED:
        return "connection refused"
    return f"no connection ({os.strerror(met.errno)})" if met.errno else "no connection"


async def _whole(content: aiohttp.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size_bytes = 0
    while data := await content.readany():
        size_bytes += len(data)
        if size_bytes > MAX_ANSWER_BYTES:
            raise ValueError("the answer is too large to be one to a control question")
        pieces.append(data)
    return b"".join(pieces)


def _open_session(connect_s: float, names: Names) -> aiohttp.ClientSession:
    """A client session that adds nothing to a request and takes nothing from the environment."""
    session = aiohttp.ClientSession(
        connector=_Pool(
            limit=0,
            use_dns_cache=False,
            resolver=Resolver(names),
            socket_factory=_open_socket,
            keepalive_timeout=POOL_IDLE_S,
        ),
        timeout=aiohttp.ClientTimeout(total=None, connect=connect_s, sock_connect=connect_s, sock_read=None),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
        requote_redirect_url=False,
    )
    # aiohttp would ask again by itself when a kept connection fails, however late; the next question is soon enough.
    session._retry_connection = False
    return session


def _open_socket(address: "aiohttp.AddrInfoType") -> socket.socket:
    opened = socket.socket(*address[:3])
    notice_vanished_host(opened)
    return opened


class Resolver(AbstractResolver):
    """A backend's names, in aiohttp's words."""

    def __init__(self, names: Names) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """See AbstractResolver.resolve."""
        return [
            ResolveResult(
                hostname=host,
                host=each.host,
                port=each.port,
                family=each.family,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each in await self._names.resolve(host, port)
            if family in (socket.AF_UNSPEC, each.family)
        ]

    async def close(self) -> None:
        """The names are their line's, and closed with it."""


class _Strict(ResponseHandler):
    """A connection that ends where more heads come than belong to one answer, or a head too large for one. aiohttp
    reads interim ones (1xx) as long as there are any, and lets nobody else have the loop meanwhile."""

    _heads = _head_bytes = 0
    _headed = False

    def set_response_params(self, **how: Any) -> None:
        """See ResponseHandler: a question has been asked."""
        self._heads = self._head_bytes = 0
        self._headed = False
        super().set_response_params(**how)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """See ResponseHandler: a head has come."""
        self._heads += 1
        self._headed = data[0].code >= 200 or self._headed
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """See ResponseHandler."""
        if self.exception() is not None:
            return  # uvloop may have read on before it closed
        for begin in range(0, len(data) or 1, PIECE_BYTES):
            piece = data[begin : begin + PIECE_BYTES]
            if not self._headed:
                self._head_bytes += len(piece)
            super().data_received(piece)
            if self._heads > MAX_INTERIM_HEADS + 1 or self._head_bytes > MAX_HEAD_BYTES:
                self._give_up()
                return

    def _give_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        self.set_exception(aiohttp.ClientConnectionError("more heads than belong to an answer"))


def _strict(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _Strict(loop)


class _Pool(aiohttp.TCPConnector):
    """Kept connections, less those on which something came while nobody had asked: it is no answer to who asks next.
    And less the old ones: a name may have another address by now."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self._factory = partial(_strict, self._loop)
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
