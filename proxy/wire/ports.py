"""Whether a port can be had, asked before anything else of a start is done, and who has it when it cannot.

Listening is not here. Between the question and the listening somebody may come first: then that fails, with the same
words.
"""

import asyncio
import errno
import socket
from typing import Any

from proxy.errors import ConfigError

# What our answers call their server.
NAME = "crossover"
# How long whoever has the port may take to say who it is; a start that is refused need not hurry, nor wait long.
ASK_WITHIN_S = 1.0
# Heads of our own answers have some hundred bytes.
MAX_HEAD_BYTES = 4096
# Where each port answers without a token, a key or a line in the log.
OPEN_PATHS = {"listen": "/health/live", "admin": "/health"}
# Whoever listens everywhere is asked on loopback.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


async def claim(section: str, host: str, port: int) -> None:
    """Return if the port could be had now; any free one (0) always can. Nobody can connect meanwhile. Raises
    ConfigError."""
    if not port:
        return
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            _bind(socket.socket(family, kind, protocol), address, both=host == "::")
    except OSError as error:
        raise await refusal(section, host, port, error) from error


def _bind(free: socket.socket, address: Any, *, both: bool) -> None:
    with free:
        # As a server does it: the ends of connections of one that has just stopped are no obstacle, a server is.
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if free.family is socket.AF_INET6:
            free.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        free.bind(address)


async def refusal(section: str, host: str, port: int, error: OSError) -> ConfigError:
    """Why a port could not be had, with the mend. Asks whoever has it whether it is a Crossover."""
    where = f"here or by {'--port' if section == 'listen' else '--admin-port'}"
    if error.errno == errno.EADDRINUSE and await _is_crossover(section, LOOPBACK.get(host, host), port):
        return ConfigError(
            f"{section}.port: {port} on {host} is taken by another Crossover; one process serves a pair of engines, "
            "since of two each counts its own requests alone and sends both engines too many; mend: stop the other "
            f"one, or, where it serves other engines, set another port {where}"
        )
    if error.errno == errno.EADDRINUSE:
        mend = f"stop what listens there, or set another port {where}"
        return ConfigError(f"{section}.port: {port} on {host} is taken; mend: {mend}")
    if error.errno == errno.EACCES:
        mend = f"set a port above 1023 {where}"
        return ConfigError(f"{section}.port: {port} on {host} is not allowed to this user; mend: {mend}")
    why = error.strerror or error
    return ConfigError(f"{section}.host: cannot listen on {host} ({why}); mend: write an address of this machine")


async def _is_crossover(section: str, host: str, port: int) -> bool:
    """Whether a Crossover answers there, as far as can be told: under TLS it says nothing to us."""
    asked = f"GET {OPEN_PATHS[section]} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_HEAD_BYTES)
            try:
                writer.write(asked.encode())
                head = await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.close()
    except (OSError, EOFError, asyncio.LimitOverrunError):
        return False
    return f"\r\nserver: {NAME}\r\n".encode() in head.lower()
