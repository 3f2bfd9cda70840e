"""One deadline for a whole post: the handshake, the head and every byte of the answer.

A socket's own limit begins anew with each byte, so a collector that sends one now and then would hold the sender for
ever. What is posted, and how much of an answer is read, is in session.py.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

# Heads of status 1xx before the one that counts: no collector has a reason for more than one.
MAX_INTERIM_HEADS = 8
LATE = "the collector's answer is not whole in time"


class Deadline(HTTPAdapter):
    """Opens the connections of a session that posts one thing at a time, and ends the one in use when its time is
    over."""

    def __init__(self) -> None:
        self._looking = threading.Lock()  # the timer has a thread of its own
        self._opened: socket.socket | None = None
        self._post: object = None
        self._passed = False
        super().__init__()

    @contextlib.contextmanager
    def within(self, limit_s: float | None) -> Iterator[None]:
        """Post. Raises requests.ReadTimeout where that is not over in so many seconds."""
        post = object()
        with self._looking:
            self._post, self._passed = post, False
        timer = threading.Timer(threading.TIMEOUT_MAX if limit_s is None else limit_s, self._end, (post,))
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if self._passed:
                raise requests.ReadTimeout(LATE) from error
            raise
        finally:
            timer.cancel()
            with self._looking:
                self._post = None
        if self._passed:
            raise requests.ReadTimeout(LATE)  # a head that is cut reads like a whole one

    def init_poolmanager(self, *asked: Any, **how: Any) -> None:
        """See HTTPAdapter."""
        super().init_poolmanager(*asked, **how)
        self._open_watched(self.poolmanager)

    def proxy_manager_for(self, proxy: Any, **how: Any) -> Any:
        """See HTTPAdapter."""
        manager = super().proxy_manager_for(proxy, **how)
        if not proxy.lower().startswith("socks"):  # which has connections of a kind of its own
            self._open_watched(manager)
        return manager

    def close(self) -> None:
        """See HTTPAdapter."""
        super().close()
        self._watch(None)

    def _open_watched(self, manager: Any) -> None:
        pools = {"http": (HTTPConnectionPool, _Watched), "https": (HTTPSConnectionPool, _WatchedSecurely)}
        manager.pool_classes_by_scheme = {
            scheme: partial(_pool, kind, partial(_connection, of, self._watch)) for scheme, (kind, of) in pools.items()
        }

    def _watch(self, connected: socket.socket | None) -> None:
        """This is the one in use from now on."""
        with self._looking:
            if self._opened is not None:
                self._opened.close()
            # A second name of the same connection: TLS takes the first one over before its handshake.
            self._opened = None if connected is None else connected.dup()
            if self._passed:
                self._cut()

    def _end(self, post: object) -> None:
        with self._looking:
            if self._post is post:
                self._passed = True
                self._cut()

    def _cut(self) -> None:
        if self._opened is not None:
            with contextlib.suppress(OSError):  # the collector was first
                self._opened.shutdown(socket.SHUT_RDWR)


def _pool(kind: Any, connection: Any, *where: Any, **how: Any) -> Any:
    pool = kind(*where, **how)
    pool.ConnectionCls = connection
    return pool


def _connection(kind: Any, opened: Callable[[socket.socket], None], **how: Any) -> Any:
    connection = kind(**how)
    connection.opened = opened
    return connection


class _Answer(http.client.HTTPResponse):
    """An answer with few interim heads: the library reads as many as come."""

    _heads = 0

    def _read_status(self) -> Any:
        self._heads += 1
        if self._heads > MAX_INTERIM_HEADS + 1:
            raise http.client.HTTPException("more heads than belong to an answer")
        return super()._read_status()  # type: ignore[misc]


class _Watched(HTTPConnection):
    opened: Callable[[socket.socket], None]
    response_class = _Answer

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self.opened(connected)
        return connected


class _WatchedSecurely(HTTPSConnection, _Watched):
    """TLS upon a connection that is watched before its handshake begins: by the order of the two above."""

    response_class = _Answer
