"""One deadline for a whole exchange over HTTP: connecting, the handshake, the head and every byte of the body.

A socket's own timeout begins anew with each byte, so a peer that sends one now and then would hold a command for ever.
What is asked, and what is said when nothing comes in time, is in port.py.
"""

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.request
from functools import partial
from types import TracebackType
from typing import Any


class Deadline:
    """Ends the connections of its opener `within_s` seconds after it was entered; `passed` says whether it has."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.passed = False
        self._watched: list[socket.socket] = []
        self._looking = threading.Lock()  # the timer has a thread of its own
        self._timer = threading.Timer(within_s, self.end)
        self._timer.daemon = True

    def __enter__(self) -> "Deadline":
        self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        with self._looking:
            for each in self._watched:
                each.close()
            self._watched.clear()

    def opener(self, context: ssl.SSLContext) -> urllib.request.OpenerDirector:
        """What opens URLs over connections that end with the deadline. No proxies from the environment: the admin port
        is on this machine or one the operator named."""
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Http(self), _Https(self, context))

    def watch(self, connected: socket.socket) -> None:
        """End this connection too."""
        with self._looking:
            # A second name of the same connection: TLS takes the first one over before its handshake.
            self._watched.append(connected.dup())
            if self.passed:
                _end(self._watched[-1])

    def lift(self) -> None:
        """Let what came in time go on without one, until `end` is called."""
        self._timer.cancel()

    def end(self) -> None:
        """End the connections now."""
        with self._looking:
            self.passed = True
            for each in self._watched:
                _end(each)


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the peer was first
        connected.shutdown(socket.SHUT_RDWR)


class _Watched(http.client.HTTPConnection):
    deadline: Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _WatchedSecurely(http.client.HTTPSConnection, _Watched):
    """TLS upon a connection that is watched before its handshake begins: by the order of the two above."""


def _made(kind: type[_Watched], deadline: Deadline, host: str, **more: Any) -> _Watched:
    connection = kind(host, **more)
    connection.deadline = deadline
    return connection


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._made = partial(_made, _Watched, deadline)

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._made, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: Deadline, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._made, self._trusting = partial(_made, _WatchedSecurely, deadline), context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._made, req, context=self._trusting)
