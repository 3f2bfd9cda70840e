"""The reverse proxy that anyone would write with aiohttp on uvloop: what Crossover's own cost is measured against.

It streams, keeps connections and copies headers, and does nothing else: no count, no decision, no metrics, no log, no
look at the answer, no second backend. Usage: python -m bench.bare_proxy PORT BACKEND_URL.
"""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

HOP_BY_HOP = frozenset({"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"})
SESSION = web.AppKey("session", aiohttp.ClientSession)
BACKEND = web.AppKey("backend", str)


def end_to_end(headers: "aiohttp.typedefs.LooseHeaders") -> list[tuple[str, str]]:
    """The headers that are for the other end."""
    return [(name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP]  # type: ignore[union-attr]


async def forward(request: web.Request) -> web.StreamResponse:
    """Send a request on and its answer back, piece by piece."""
    body = await request.read()
    session = request.app[SESSION]
    async with session.request(
        request.method, request.app[BACKEND] + request.path_qs, headers=end_to_end(request.headers), data=body or None
    ) as answer:
        response = web.StreamResponse(status=answer.status)
        response.headers.extend(end_to_end(answer.headers))
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
        await response.write_eof()
        return response


async def open_session(app: web.Application) -> AsyncIterator[None]:
    """One client session for the life of the proxy, without limits on connections or time."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
    ) as session:
        app[SESSION] = session
        yield


def main(port: int, backend: str) -> None:
    """Serve until terminated."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app[BACKEND] = backend
    app.cleanup_ctx.append(open_session)
    app.router.add_route("*", "/{path:.*}", forward)
    loop = uvloop.new_event_loop()
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, backlog=4096, loop=loop)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
