"""A control path without sockets: each path has the answers that a test lays out, the last one for ever."""

from dataclasses import dataclass

from proxy.errors import BackendUnreachable, UpstreamError
from proxy.wire.control import Control, Reply


@dataclass
class Said:
    """What a path answers from now on."""

    status: int = 200
    body: bytes = b""


class FakeControl(Control):
    """Raises BackendUnreachable for paths that it does not know."""

    def __init__(self, **pages: "Said | UpstreamError") -> None:
        super().__init__("http://fake.invalid", api_key=None, connect_s=1)
        self.pages: dict[str, Said | UpstreamError] = {f"/{name}": page for name, page in pages.items()}
        self.asked: list[str] = []
        self.limits_s: list[float] = []

    async def get(self, path: str, *, within_s: float) -> Reply:
        path = path.partition("?")[0]
        self.asked.append(path)
        self.limits_s.append(within_s)
        page = self.pages.get(path)
        if page is None:
            raise BackendUnreachable("no such page")
        if isinstance(page, UpstreamError):
            raise page
        return Reply(page.status, page.body)
