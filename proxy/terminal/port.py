"""The operators' port of a running proxy, asked from outside: with its token, and with a mend for whatever goes wrong.

What is done with the answers is in status.py, explain.py and top.py. It blocks, and is for commands alone.
"""

import argparse
import contextlib
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.config.key_files import read_key
from proxy.terminal.deadline import Deadline
from proxy.terminal.saying import plain

# For the whole answer: the proxy's own loop answers in milliseconds, and a person waits no longer than this.
ASK_WITHIN_S = 10.0
# No answer to a command comes near it; something else on that port may send without end, and a page of what it sent
# would be minutes of work.
MAX_ANSWER_BYTES = 1 << 22
# A line of the stream has some KiB.
MAX_LINE_BYTES = 1 << 20
SCHEMES = ("http://", "https://")
DEFAULT_URL = "http://127.0.0.1:29000"
TOKEN_VARIABLE = "CROSSOVER_ADMIN_TOKEN"
# What the operators' port says with its 401, and nothing else does: the clients' port has one too.
OPERATORS_MARK = 'Basic realm="crossover"'
# What the operators' port answers where it is not asked by a name of its own: it tells the mend.
OTHER_NAME = 421
TOKEN_MEND = f"it asks for its admin.token; mend: give --token-file, or set {TOKEN_VARIABLE}"
ADMIN_MEND = "is the proxy running, and is this its admin port?"
WRONG_PORT = "is this its admin port? (admin.port, 29000 by default)"


class Unanswered(Exception):
    """There is no answer to go on with. The message says what was met and the mend; `status` is the HTTP status, 0
    where there was none, and `told` what the proxy itself said was wrong."""

    def __init__(self, message: str, status: int = 0, told: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.told = told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command takes that asks the operators' port."""
    parser.add_argument(
        "url", nargs="?", type=_address, default=DEFAULT_URL, metavar="URL", help=f"its admin port ({DEFAULT_URL})"
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=f"holds admin.token; default: {TOKEN_VARIABLE}")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="PEM of the authority behind its certificate (https)")


def _address(text: str) -> str:
    """Where an operators' port is. Raises ArgumentTypeError, with the form."""
    if not text.lower().startswith(SCHEMES):
        raise argparse.ArgumentTypeError(f"give the address like {DEFAULT_URL}, not {plain(text, 100)!r}")
    return text


class Port:
    """One operators' port. Raises Unanswered where the token cannot be read or no certificate is in `ca_file`."""

    def __init__(self, url: str, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._token_file = token_file
        try:
            self._token = os.environ.get(TOKEN_VARIABLE) if token_file is None else _token_in(token_file)
        except ValueError as error:
            raise Unanswered(f"--token-file {error}") from error
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Unanswered(f"--ca {ca_file}: {error}; mend: name a PEM file with certificates") from error
        self._context = context

    def text(self, path: str) -> str:
        """What the port says to a GET, whole within ASK_WITHIN_S. Raises Unanswered."""
        with Deadline(ASK_WITHIN_S) as deadline:
            try:
                return self._got(path, deadline)
            except urllib.error.HTTPError as error:
                told = _told(error)
                mend = plain(told, 1000) if error.code == OTHER_NAME and told else self._refusal_mend(error)
                raise Unanswered(self._no_answer(error, mend), error.code, told) from error
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                met = _late(deadline) if deadline.passed else error
                raise Unanswered(self._no_answer(met, _mend(met))) from error

    def lines(self, path: str, deadline: Deadline) -> Iterator[str]:
        """The lines of an answer that goes on, as they come, once its head came within the deadline, until that is
        ended. Raises Unanswered, without a mend: who asks for the rest as well is told it."""
        with deadline:
            try:
                with self._opened(path, deadline) as answer:
                    deadline.lift()
                    while line := answer.readline(MAX_LINE_BYTES):
                        yield line.decode()
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                raise Unanswered(self._no_answer(error, ADMIN_MEND)) from error

    def _opened(self, path: str, deadline: Deadline) -> Any:
        asked = urllib.request.Request(f"{self.url}{path}")
        if self._token:
            # Unredirected: whoever we are sent on to is not to have it.
            asked.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return deadline.opener(self._context).open(asked, timeout=ASK_WITHIN_S)

    def _got(self, path: str, deadline: Deadline) -> str:
        with self._opened(path, deadline) as answer:
            said: bytes = answer.read(MAX_ANSWER_BYTES + 1)
        if deadline.passed:  # a body that ends with its connection looks whole
            raise _late(deadline)
        if len(said) > MAX_ANSWER_BYTES:
            raise Unanswered(f"{plain(self.url)} answers with more than {MAX_ANSWER_BYTES:,} bytes; {WRONG_PORT}")
        return said.decode()

    def json(self, path: str) -> dict[str, Any]:
        """The same as the object it is. Raises Unanswered."""
        return self.read(self.text(path))

    def read(self, text: str) -> dict[str, Any]:
        """A text of the port as the object it is. Raises Unanswered where it is none."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise Unanswered(f"{self.url} answers, but not as a Crossover does; {WRONG_PORT}")
        return found

    def _no_answer(self, error: Exception, mend: str) -> str:
        return f"no answer from {plain(self.url)} ({plain(error)}); {mend}"

    def _refusal_mend(self, error: urllib.error.HTTPError) -> str:
        if error.code != 401 or OPERATORS_MARK not in error.headers.get_all("WWW-Authenticate", []):
            return WRONG_PORT
        if not self._token:
            return TOKEN_MEND
        source = TOKEN_VARIABLE if self._token_file is None else f"--token-file {self._token_file}"
        return f"the token of {source} is wrong; mend: give the one of its admin.token"


def _token_in(file: Path) -> str:
    if not file.is_file():  # a pipe or a device could block for ever
        raise ValueError(f"names no regular file ({file}); mend: check the path, which counts from the current folder")
    return read_key(file)


@contextlib.contextmanager
def understood(url: str) -> Iterator[None]:
    """While an answer of this port is made into words: what cannot be (a list in place of an object, a word in place of
    a number) raises Unanswered, since it is none of a Crossover's."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise Unanswered(f"{plain(url)} answers, but not as a Crossover does; {WRONG_PORT}") from error


def _late(deadline: Deadline) -> TimeoutError:
    return TimeoutError(f"no whole answer within {deadline.within_s:g} s")


def _told(error: urllib.error.HTTPError) -> str | None:
    """The error that a proxy tells in JSON."""
    try:
        with error:
            return str(json.loads(error.read(MAX_ANSWER_BYTES))["error"])
    except (OSError, http.client.HTTPException, ValueError, TypeError, LookupError, RecursionError):
        return None


def _mend(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            "name the authority of its certificate (admin.tls.cert_file) by --ca FILE, and the host as it stands there"
        )
    if isinstance(reason, ssl.SSLError) and "CERTIFICATE_REQUIRED" in str(reason):
        return "admin.tls.client_ca_file asks for a certificate: use curl --cert FILE --key FILE"
    if isinstance(error, http.client.BadStatusLine | http.client.RemoteDisconnected | ConnectionError):
        return f"{ADMIN_MEND} With admin.tls the URL begins with https://"
    return ADMIN_MEND
