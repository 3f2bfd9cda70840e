"""An HTTP server in a thread of its own, for what blocks the loop: commands, and senders with threads of theirs."""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Quiet:
    """A handler, put before the library's, that says nothing of what it answers."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def in_a_thread(handler: type[BaseHTTPRequestHandler], name: str) -> Iterator[int]:
    """Answer by `handler` while it lasts; gives the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name=name, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
