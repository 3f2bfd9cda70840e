"""A backend that says nothing: told before so many probes have failed that it counts as down.

Nothing is measured for it. Whether one is silent is known to the desk; and a byte of any answer ends a row of missed
probes, so that a row on which requests wait says that none has come.
"""

from proxy.state.backend import Backend
from proxy.telling import Trouble
from proxy.telling.figures import count, seconds, title

# An engine that told its load so lately is no silent one, whatever its health page does.
LEAST_S = 2.0


def said(backend: Backend, now_s: float) -> str:
    """A sentence of a silent one."""
    requests, since_s = backend.book.requests, backend.load_at_s
    wait = "" if not requests else f", and {count(requests, 'request')} {'waits' if requests == 1 else 'wait'} there"
    if since_s is None or now_s - since_s < LEAST_S:
        said = f"{title(backend.role)} gives nothing and misses its probes{wait}"
    else:
        said = f"{title(backend.role)} has given nothing for {seconds(now_s - since_s)}{wait}"
    return f"{said}."


def troubles(backends: tuple[Backend, Backend], now_s: float) -> list[Trouble]:
    """One for each that is silent; severe where requests wait there, or will since the other one is no better."""
    found = [each for each in backends if each.gives_nothing]
    nowhere = len(found) == len(backends)
    return [Trouble("silent", said(each, now_s), severe=nowhere or bool(each.book.requests)) for each in found]
