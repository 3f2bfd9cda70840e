"""The proxy's own questions to an engine, over a pool of their own: a busy data path must not starve them."""

import asyncio
from dataclasses import dataclass

import aiohttp
from yarl import URL

from proxy.errors import BackendBroken, BackendUnreachable, UpstreamError
from proxy.wire.names import Names
from proxy.wire.upstream import open_session

# Answers to control questions are some kilobytes (/server_info 31 KB, /metrics some 100 KB); more is not for us.
MAX_ANSWER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answered to a control question."""

    status: int
    body: bytes


class Control:
    """Asks one backend control questions. `api_key` is the backend's own key, sent even to open paths."""

    def __init__(self, url: str, *, api_key: str | None, connect_s: float, names: Names | None = None) -> None:
        self._base = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connect_s = connect_s
        self._names = names or Names()
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, *, within_s: float) -> Reply:
        """GET a path. Raises BackendUnreachable or BackendBroken, also for lateness and for an answer too large."""
        self._session = self._session or open_session(self._connect_s, self._names, keep=True)
        try:
            async with (
                asyncio.timeout(within_s),
                self._session.get(
                    URL(self._base + path, encoded=True), headers=self._headers, allow_redirects=False
                ) as response,
            ):
                return Reply(response.status, await _whole(response.content))
        except aiohttp.ClientConnectorError as error:
            raise BackendUnreachable(f"{path}: no connection ({type(error).__name__})") from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._broken(path, error, within_s) from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @staticmethod
    def _broken(path: str, error: Exception, within_s: float) -> UpstreamError:
        if isinstance(error, TimeoutError):
            return BackendBroken(f"{path}: no answer within {within_s:g} s")
        return BackendBroken(f"{path}: {type(error).__name__}")


async def _whole(content: aiohttp.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size_bytes = 0
    while data := await content.readany():
        size_bytes += len(data)
        if size_bytes > MAX_ANSWER_BYTES:
            raise ValueError("the answer is too large to be one to a control question")
        pieces.append(data)
    return b"".join(pieces)
