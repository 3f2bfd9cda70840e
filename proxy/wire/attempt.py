"""One attempt on one backend, up to where its answer can be judged and nothing has gone to the client yet.

A 200 says little: SGLang answers a stream that it refuses with HTTP 200 and an error event, so the first event of a
stream is read before the answer counts as good. What follows from a verdict is in relay.py.
"""

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proxy.errors import BackendBroken, BackendSilent, FirstByteTimeout, StaleConnection
from proxy.model import Dialect
from proxy.protocol.fields import Fields
from proxy.protocol.sse import Scanner
from proxy.wire.answer import Answer
from proxy.wire.calls import Upstream
from proxy.wire.connection import Call
from proxy.wire.deadlines import Wait

# An answer whose first event is longer than this is passed on unjudged.
PEEK_MAX_BYTES = 65536
# A refusal may follow the opening event (a role, nothing said yet) in the same breath; an answer that only begins
# slowly is not kept waiting longer than this.
PEEK_MORE_S = 0.005
# What a backend says of itself when it is alive and has no room.
BUSY_STATUSES = frozenset({429, 503})
# What a stream that we understand comes as; a dialect without one has no events.
STREAM_TYPES = {
    **dict.fromkeys(set(Dialect) - {Dialect.PLAIN, Dialect.OLLAMA}, b"text/event-stream"),
    Dialect.OLLAMA: b"application/x-ndjson",
}
# Content codings that leave a body as it is.
UNCODED = frozenset({b"", b"identity"})


class Verdict(StrEnum):
    """What an answer says of its backend before anything is passed on."""

    GOOD = "good"
    CLIENT_FAULT = "client_fault"
    BUSY = "busy"
    FAILED = "failed"


# Bound once: a look at an enum's class takes longer than the rest of most lines that need it.
GOOD, CLIENT_FAULT, BUSY, FAILED = Verdict


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
    def mute(self) -> bool:
        """Whether a stream has brought comments only, which say nothing of the engine behind its HTTP server."""
        return self.scanner is not None and not self.scanner.events


async def open_answer(
    upstream: Upstream,
    call: Call,
    dialect: Dialect,
    *,
    task: "asyncio.Task[Any]",
    first_byte_s: float,
    fresh: bool = False,
) -> tuple[Opened, bool]:
    """Send a call and judge its answer, in the present `task`; the flag says that a stale connection made one replay
    necessary. Over a `fresh` connection there is none.

    Raises UpstreamError; FirstByteTimeout when neither the head nor (of a stream) the first event came in time, and
    BackendSilent when the wait was forsaken.
    """
    wait = Wait(upstream.deadlines[first_byte_s], task)
    del task  # one that is cancelled keeps this frame, which is not to keep it
    try:
        try:
            answer, replayed = await upstream.send(call, fresh=fresh, wait=wait), False
        except StaleConnection:
            answer, replayed = await upstream.send(call, fresh=True, wait=wait), True
        opened = Opened(answer, GOOD if answer.status < 400 else _by_status(answer.status))
        if opened.verdict is not GOOD or not _is_stream(answer.fields, dialect):
            return opened, replayed
        try:
            wait.come = answer.has_come  # its head is from the engine's HTTP server, and says nothing of the engine
            opened.scanner = Scanner(dialect)
            await _peek(opened, opened.scanner, wait)
            opened.verdict = _by_first_event(opened.scanner)
            return opened, replayed
        except BaseException:
            answer.close()
            raise
    except asyncio.CancelledError as error:
        if not wait.is_ours():
            raise
        if wait.forsaken:
            raise BackendSilent("the backend sent nothing and counts as down") from error
        message = f"the backend sent nothing within timeouts.first_byte_s ({first_byte_s:g} s)"
        raise FirstByteTimeout(message) from error
    finally:
        wait.close()


async def _peek(opened: Opened, scanner: Scanner, wait: Wait) -> None:
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
        wait.heard = True
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
        return GOOD
    if status in BUSY_STATUSES:
        return BUSY
    return CLIENT_FAULT if status < 500 else FAILED


def _by_first_event(scanner: Scanner) -> Verdict:
    if scanner.error is None:
        # The same refusal after another hop inside the engine: no error object, only this finish_reason. After content
        # it means that somebody aborted this very request, which must not be made again elsewhere.
        return BUSY if scanner.aborted and not scanner.first_content else GOOD
    return _by_status(scanner.error.status or 500)


def _is_stream(fields: Fields, dialect: Dialect) -> bool:
    """Whether the body is a stream that is ours to read: of the dialect's media type, and not compressed."""
    media_type = coding = b""
    for name, value in fields:
        size = len(name)
        if size == 12 and name.lower() == b"content-type":
            media_type = value.partition(b";")[0].strip().lower()
        elif size == 16 and name.lower() == b"content-encoding":
            coding = value.strip().lower()
    return media_type == STREAM_TYPES.get(dialect) and coding in UNCODED
