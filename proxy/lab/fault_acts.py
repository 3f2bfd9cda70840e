"""Doing faults to a connection. Which fault is due is in faults.py; faults inside a stream are in outlet.py."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import NoReturn

import orjson
from aiohttp import web

from proxy.lab import refusals
from proxy.lab.faults import Fault, FaultKind

_NOT_HTTP = b"\x16\x03\x01\x00\xa5 this is not HTTP \x00\xff\xfe\r\n\r\n"

# How the three plain errors speak.
_ERRORS = {
    FaultKind.ERROR_500: (500, "InternalServerError", "Internal Server Error"),
    FaultKind.ERROR_503: (503, "ServiceUnavailableError", "The engine is overloaded."),
    FaultKind.ERROR_429: (429, "RateLimitError", "Too many requests."),
}


async def strike(fault: Fault, request: web.Request, refuse: Callable[[float], None]) -> web.Response | None:
    """Fail a request before its answer: an error answer, or never (the connection is dealt with and this hangs).

    None means that the request goes on: late, or into a fault that strikes later. `refuse` closes the listening
    socket for that many seconds.
    """
    match fault.kind:
        case FaultKind.ERROR_500 | FaultKind.ERROR_503 | FaultKind.ERROR_429:
            return _error(fault.kind)
        case FaultKind.SLOW:
            await asyncio.sleep(fault.arg)
        case FaultKind.REFUSE:
            refuse(fault.arg)
            await _reset_and_wait(request)
        case FaultKind.RESET:
            await _reset_and_wait(request)
        case FaultKind.GARBAGE:
            if request.transport is not None:
                request.transport.write(_NOT_HTTP)
                request.transport.close()
            await until_gone()
        case FaultKind.SILENT:
            await until_gone()
    return None


def reset(transport: asyncio.WriteTransport | None) -> None:
    """End a connection with a TCP reset instead of an orderly close."""
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # A linger time of zero makes closing send RST and drop whatever was not yet sent.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def until_gone() -> NoReturn:
    """Wait for the end of the connection, which cancels the request."""
    while True:
        await asyncio.Event().wait()


async def _reset_and_wait(request: web.Request) -> NoReturn:
    reset(request.transport)
    await until_gone()


def _error(kind: FaultKind) -> web.Response:
    status, name, message = _ERRORS[kind]
    body = refusals.nested(message, name, status) if status != 500 else refusals.flat(message, name, status)
    headers = {"Retry-After": "2"} if status == 503 else {}
    return web.Response(body=orjson.dumps(body), status=status, headers=headers, content_type="application/json")
