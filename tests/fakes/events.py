"""The events of an operators' stream as they come: their names and what they tell."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """Each event of a stream that was just asked for, until it ends."""
    name = ""
    async for line in response.content:
        word, _, rest = line.decode().rstrip("\n").partition(": ")
        if word == "event":
            name = rest
        elif word == "data":
            yield name, orjson.loads(rest)
