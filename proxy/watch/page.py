"""The status page's files, read once and kept: what may be fetched is what lies in proxy/web, and nothing else.

What the page shows it asks for by the routes of routes.py and admin.py. Nothing of it comes from elsewhere, and its
policy lets nothing else in.
"""

from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

FOLDER = Path(__file__).resolve().parent.parent / "web"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept by the browser, and asked about each time: an upgrade shows at once
    "Vary": "Accept",
}


class Leaf(NamedTuple):
    """One file of the page."""

    body: bytes
    kind: str
    tag: str


class Page:
    """All files of the page by their paths below proxy/web. Reads the disk once, when it is made."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._leaves = {
            path.relative_to(folder).as_posix(): _leaf(path) for path in sorted(folder.rglob("*")) if path.is_file()
        }

    def routes(self) -> list[web.RouteDef]:
        """What the page asks for besides its data."""
        return [web.get("/web/{name:.+}", self._file)]

    def index(self, request: web.Request) -> web.Response:
        """The page itself."""
        return self._answer(request, INDEX)

    async def _file(self, request: web.Request) -> web.Response:
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        leaf = self._leaves.get(name)
        if leaf is None:
            raise web.HTTPNotFound
        headers = {**HEADERS, "Content-Type": leaf.kind, "ETag": f'"{leaf.tag}"'}
        if any(tag.value == leaf.tag for tag in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=leaf.body, headers=headers)


def wants_page(request: web.Request) -> bool:
    """Whether a person's browser asks: programs take JSON, or anything."""
    return "text/html" in request.headers.get("Accept", "")


def _leaf(path: Path) -> Leaf:
    body = path.read_bytes()
    return Leaf(body, TYPES[path.suffix], sha256(body).hexdigest()[:16])
