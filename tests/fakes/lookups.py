"""The machine's resolver as a test wants it, on whatever loop: asked in a thread, as the true one is."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp.abc import ResolveResult


def through(getaddrinfo: Callable[..., Any]) -> Callable[..., Awaitable[list[ResolveResult]]]:
    """What stands in for `aiohttp.ThreadedResolver.resolve` where `getaddrinfo` is the machine's own function."""

    async def resolve(
        _: object, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.to_thread(getaddrinfo, host, port, family, socket.SOCK_STREAM)
        return [
            ResolveResult(
                hostname=host, host=address[0], port=address[1], family=kind, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for kind, _, proto, _, address in found
        ]

    return resolve
