"""A backend that requests wait on and that says nothing: told before so many probes have failed that it counts as down.

Nothing is measured for it. A byte of any answer ends a row of missed probes, so that a row says that none has come.
"""

from proxy.state.backend import Backend
from proxy.telling import Trouble
from proxy.telling.figures import count, seconds, title

# An engine that told its load so lately is no silent one, whatever its health page does.
LEAST_S = 2.0


def silent(backend: Backend) -> bool:
    """Whether requests wait there, its latest probes had no answer, and no byte of a generation has come since."""
    health = backend.health
    return bool(health.up and (health.misses or health.doubtful) and backend.book.requests)


def said(backend: Backend, now_s: float) -> str:
    """A sentence of a silent one."""
    requests, since_s = backend.book.requests, backend.load_at_s
    wait = f"{count(requests, 'request')} {'waits' if requests == 1 else 'wait'} there"
    if since_s is None or now_s - since_s < LEAST_S:
        return f"{title(backend.role)} gives nothing and misses its probes, and {wait}."
    return f"{title(backend.role)} has given nothing for {seconds(now_s - since_s)}, and {wait}."


def troubles(backends: tuple[Backend, Backend], now_s: float) -> list[Trouble]:
    """One for each that is silent."""
    return [Trouble("silent", said(each, now_s)) for each in backends if silent(each)]
