"""How spans are posted: of what a collector answers the status alone counts, and the rest is read within limits.

The library reads a whole answer, unpacks it and waits anew for each piece: whoever stands in the collector's place
could fill the memory or hold the sender for ever. What is posted, and when, is in export.py; the deadline is in
deadline.py.
"""

import os
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from proxy.traces.deadline import Deadline

# A collector answers with an empty message or with one sentence of what it rejects.
MAX_ANSWER_BYTES = 64 * 1024
# Bytes of one read: most answers are one piece.
PIECE_BYTES = 4096
# By which the library is told to take a session with credentials of its own; that one is left as it is.
CREDENTIALS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)


def session() -> requests.Session | None:
    """The session to post by; None where the environment names another."""
    return None if any(os.environ.get(name) for name in CREDENTIALS) else Bounded()


class Bounded(requests.Session):
    """A session whose answers have a status and headers, and no body that could be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self._deadline = Deadline()
        for scheme in ("http://", "https://"):
            self.mount(scheme, self._deadline)

    def send(self, request: requests.PreparedRequest, **more: Any) -> requests.Response:
        """Send and get the head of the answer. The body is read only so that the connection can be used again.

        Raises requests.RequestException where it is longer than MAX_ANSWER_BYTES, or head and body are not whole within
        `timeout` seconds of the sending, and where the collector sends on to elsewhere: whoever is there is not to have
        the headers."""
        with self._deadline.within(more.get("timeout")):
            answer = super().send(request, **{**more, "stream": True, "allow_redirects": False})
            try:
                _drain(answer)
            except BaseException:
                answer.close()
                raise
        if 300 <= answer.status_code < 400:
            raise requests.RequestException("the collector sends on to elsewhere")
        return answer


def _drain(answer: requests.Response) -> None:
    read_bytes = 0
    try:
        while piece := answer.raw.read1(PIECE_BYTES, decode_content=False):
            read_bytes += len(piece)
            if read_bytes > MAX_ANSWER_BYTES:
                raise requests.RequestException("the collector's answer is too long")
    except (HTTPError, OSError) as error:
        if isinstance(error, requests.RequestException):
            raise
        raise requests.ReadTimeout("the collector's answer does not come whole") from error
