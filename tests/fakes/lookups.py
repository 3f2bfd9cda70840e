"""The machine's resolver as a test wants it, on whatever loop: asked in a thread, as the true one is."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
import uvloop

# The product's loop, and the one of cases that leap.
LOOPS: tuple[Any, ...] = (uvloop.Loop, asyncio.BaseEventLoop)


def resolve_by(monkeypatch: pytest.MonkeyPatch, getaddrinfo: Callable[..., Any], *, threaded: bool = True) -> None:
    """Let `getaddrinfo` be the machine's own function for every loop, which is asked for names alone. Not `threaded`
    where the loop leaps, which waits for no thread."""
    for loop in LOOPS:
        monkeypatch.setattr(loop, "getaddrinfo", _asked(getaddrinfo, loop.getaddrinfo, threaded=threaded))


def _asked(getaddrinfo: Callable[..., Any], true: Callable[..., Any], *, threaded: bool) -> Callable[..., Any]:
    async def asked(loop: object, host: str, port: int, *, family: int = 0, **how: Any) -> Any:
        if _is_address(host):
            return await true(loop, host, port, family=family, **how)
        if not threaded:
            return getaddrinfo(host, port, family, socket.SOCK_STREAM)
        return await asyncio.to_thread(getaddrinfo, host, port, family, socket.SOCK_STREAM)

    return asked


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
