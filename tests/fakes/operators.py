"""An operators' port with answers as a test wants them, in a thread of its own: for commands, which block."""

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from fakes.threaded import Quiet, in_a_thread

BACKEND = {
    "in_flight": 3,
    "max_in_flight": 48,
    "up": True,
    "eligible": True,
    "draining": False,
    "circuit": "closed",
    "engine_running": 3,
    "engine_waiting": 1,
    "drift": 0,
    "accept_length": 2.5,
    "learned_ratio": 1.25,
}
STATUS: dict[str, Any] = {
    "version": "1.2.3",
    "phase": "serving",
    "ready": True,
    "policy": "threshold",
    "pinned": None,
    "sentence": "New requests go to speculative.",
    "warnings": [{"code": "a", "message": "the two disagree"}],
    "engines": {"speculative": {"model": "m", "version": "0.5.23"}, "baseline": None},
    "urls": {"speculative": "http://a", "baseline": "http://b"},
    "learning": {"suspended_for_s": 0.0, "probes": 7},
    "verdict": ["at 1024 tokens of context: never speculate."],
    "dropped_in_flight": {},
    "backends": [{"role": "speculative", **BACKEND}, {"role": "baseline", **BACKEND, "in_flight": 12}],
    "regime": "speculative",
    "regime_age_s": 42.0,
    "smoothed": 3.14159,
    "enter_at": 5,
    "leave_at": 9,
    "waiting": 2,
    "connections": 4,
    "reload_failed": False,
}


class Operators:
    """What is answered: `answers` has for a path (without its query) an object, or a status and one. `asked` are the
    paths that came, with their queries."""

    def __init__(self, port: int, answers: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers = answers
        self.asked: list[str] = []


@contextlib.contextmanager
def operators(**answers: Any) -> Iterator[Operators]:
    """A port that answers /status and what else is named (`history` for /history)."""
    scene = Operators(0, {"/status": STATUS, **{f"/{name}": value for name, value in answers.items()}})

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scene.asked.append(self.path)
            found = scene.answers.get(self.path.partition("?")[0], (404, {"error": "no such path"}))
            status, value = found if isinstance(found, tuple) else (200, found)
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with in_a_thread(Handler, "operators") as port:
        scene.url = f"http://127.0.0.1:{port}"
        yield scene
