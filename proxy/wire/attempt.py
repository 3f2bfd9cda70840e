"""One attempt on one backend, up to where its answer can be judged and nothing has gone to the client yet.

A 200 says little: SGLang answers a stream that it refuses with HTTP 200 and an error event, so the first event of a
stream is read before the answer counts as good. What follows from a verdict is in relay.py.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.errors import BackendBroken, FirstByteTimeout, StaleConnection
from proxy.model import Dialect
from proxy.protocol.sse import Scanner
from proxy.wire.upstream import Answer, Call, Headers, Upstream

# An answer whose first event is longer than this is passed on unjudged.
PEEK_MAX_BYTES = 65536
# A refusal may follow the opening event (a role, nothing said yet) in the same breath; an answer that only begins
# slowly is not kept waiting longer than this.
PEEK_MORE_S = 0.005
# What a backend says of itself when it is alive and has no room.
BUSY_STATUSES = frozenset({429, 503})
# What a stream that we understand comes as; a dialect without one has no events.
STREAM_TYPES = {
    **dict.fromkeys(set(Dialect) - {Dialect.PLAIN, Dialect.OLLAMA}, "text/event-stream"),
    Dialect.OLLAMA: "application/x-ndjson",
}


class Verdict(StrEnum):
    """What an answer says of its backend before anything is passed on."""

    GOOD = "good"
    CLIENT_FAULT = "client_fault"
    BUSY = "busy"
    FAILED = "failed"


@dataclass(slots=True)
class Opened:
    """An answer that can be passed on. `peeked` are bytes already read; `scanner` is set for streams we understand;
    `whole` says that the body has been read to its end."""

    answer: Answer
    verdict: Verdict
    scanner: Scanner | None = None
    peeked: list[bytes] = field(default_factory=list)
    whole: bool = False

    @property
    def status(self) -> int:
        """The backend's HTTP status."""
        return self.answer.status

    @property
    def content_type(self) -> str:
        """The media type without parameters, in lower case."""
        return _header(self.answer.headers, "content-type").partition(";")[0].strip().lower()

    @property
    def mute(self) -> bool:
        """Whether a stream has brought comments only, which say nothing of the engine behind its HTTP server."""
        return self.scanner is not None and not self.scanner.events

    @property
    def coded(self) -> bool:
        """Whether the body is compressed, and so not for us to read."""
        return _header(self.answer.headers, "content-encoding").strip().lower() not in ("", "identity")


async def open_answer(
    upstream: Upstream, call: Call, dialect: Dialect, *, first_byte_s: float, fresh: bool = False
) -> tuple[Opened, bool]:
    """Send a call and judge its answer; the flag says that a stale connection made one replay necessary. Over a `fresh`
    connection there is none.

    Raises UpstreamError; FirstByteTimeout when neither the head nor (of a stream) the first event came in time.
    """
    replayed = False
    try:
        async with asyncio.timeout(first_byte_s):
            try:
                answer = await upstream.send(call, fresh=fresh)
            except StaleConnection:
                replayed = True
                answer = await upstream.send(call, fresh=True)
            try:
                return await _judge(answer, dialect), replayed
            except BaseException:
                answer.close()
                raise
    except TimeoutError as error:
        message = f"the backend sent nothing within timeouts.first_byte_s ({first_byte_s:g} s)"
        raise FirstByteTimeout(message) from error


async def _judge(answer: Answer, dialect: Dialect) -> Opened:
    opened = Opened(answer, _by_status(answer.status))
    if opened.verdict is not Verdict.GOOD or opened.content_type != STREAM_TYPES.get(dialect) or opened.coded:
        return opened
    opened.scanner = Scanner(dialect)
    await _peek(opened, opened.scanner)
    opened.verdict = _by_first_event(opened.scanner)
    return opened


async def _peek(opened: Opened, scanner: Scanner) -> None:
    size_bytes, until_s = 0, None
    while not (scanner.first_content or scanner.finished or scanner.error) and size_bytes < PEEK_MAX_BYTES:
        # A comment is an engine's sign of life before its first token: held back it would be none.
        if until_s is None and (scanner.events or (size_bytes and scanner.at_boundary)):
            until_s = asyncio.get_running_loop().time() + PEEK_MORE_S
        data = await _more(opened, until_s)
        if data is None:
            return
        if not data and not scanner.events:
            raise BackendBroken("the backend ended its stream before the first event")
        if not data:
            opened.whole = True
            return
        size_bytes += len(data)
        opened.peeked.append(data)
        scanner.feed(data)


async def _more(opened: Opened, until_s: float | None) -> bytes | None:
    """The next bytes; None when nothing came by `until_s`, an instant of the loop's clock."""
    try:
        async with asyncio.timeout_at(until_s):
            return await opened.answer.read()
    except TimeoutError:
        return None


def _by_status(status: int) -> Verdict:
    if status < 400:
        return Verdict.GOOD
    if status in BUSY_STATUSES:
        return Verdict.BUSY
    return Verdict.CLIENT_FAULT if status < 500 else Verdict.FAILED


def _by_first_event(scanner: Scanner) -> Verdict:
    if scanner.error is None:
        # The same refusal after another hop inside the engine: no error object, only this finish_reason. After content
        # it means that somebody aborted this very request, which must not be made again elsewhere.
        return Verdict.BUSY if scanner.aborted and not scanner.first_content else Verdict.GOOD
    return _by_status(scanner.error.status or 500)


def _header(headers: Headers, wanted: str) -> str:
    return next((value for name, value in headers if name.lower() == wanted), "")
