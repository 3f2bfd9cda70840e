"""Ports on this machine for programs that are started only to be measured: a free one, and a wait until it answers."""

import socket
import time


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def wait_for(port: int, within_s: float) -> None:
    """Return once somebody listens there. Raises OSError after `within_s` seconds without."""
    until_s = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.1)
        else:
            return
