"""The answer's way to the client: heads with the decision stamped on, errors of our own, and an honest abnormal end.

How a head is spelt is in answer_head.py, whose turn it is to be answered in client.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.errors import CrossoverError, KeyRefused, MethodNotAllowed
from proxy.model import Because, Costs, Decision, Dialect
from proxy.protocol import dialects, headers
from proxy.protocol.fields import Fields
from proxy.wire import answer_head
from proxy.wire.answer_head import LENGTH, OURS, STREAMED
from proxy.wire.kept import Kept
from proxy.wire.request import Request

# Said with what comes piece by piece.
UNBUFFERED = b"X-Accel-Buffering: no\r\n"
# Answers that have neither a body nor its length.
BODILESS = frozenset({204, 304})
# Of a large body: as much as a transport takes before it says that it is full.
PIECE_BYTES = 65536
# In one piece: put together one by one, they cost as much as the decision that they tell of.
_STAMPS = (
    "x-request-id: %s\r\nx-crossover-backend: %s\r\nx-crossover-reason: %s\r\n"
    "x-crossover-in-flight: speculative=%d, baseline=%d\r\n"
    "x-crossover-because: %s\r\n"
)


@dataclass(slots=True)
class Reply:
    """An answer that is there whole. `close` ends the connection behind it; `length` is told in place of the body's,
    to a HEAD. `stamps` are like those of `Downstream.begin`."""

    status: int
    fields: Fields
    body: bytes = b""
    close: bool = False
    length: int | None = None
    stamps: bytes = b""


class Downstream:
    """The way of one answer. `begun`: its head is written; `chunked`: payload goes in chunks; `bodiless`: payload is
    dropped; `over`: its end is written, normal or not; `full`: the client takes no more now.

    `on_full` and `on_room` are called when that changes. Nothing is written behind an end, or to a client that is gone.
    A head goes out together with what comes first behind it, or by `flush`: each write is a system call.
    """

    __slots__ = (
        *("_client", "_left_bytes", "_request", "_unsent"),
        *("begun", "bodiless", "chunked", "full", "on_full", "on_room", "over"),
    )

    def __init__(self, request: Request) -> None:
        self._request = request
        self._client = request.client
        self._left_bytes: int | None = None  # of a length that was told
        self._unsent = b""  # the head, until something goes out behind it
        self.begun = self.chunked = self.bodiless = self.over = False
        self.full = False
        self.on_full: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None

    def begin(self, status: int, fields: Fields, *, length: int | None, stamps: bytes = b"") -> None:
        """Write the head. Without a length among the arguments or fields the body goes in chunks, or, to a client of
        HTTP/1.0, up to the end of the connection; with both, they say the same. `stamps` are lines of ours, to which
        fields of their names give way. A stream tells proxies in front not to buffer it."""
        self._unsent = self._head(status, fields, length, stamps, close=False)

    def flush(self) -> None:
        """Send the head, should it still wait for something behind it."""
        if self._unsent:
            self._send(b"")

    def write(self, payload: bytes) -> None:
        """Write a piece of the body."""
        if not payload or self.over or self.bodiless:
            return
        if self.chunked:
            self._send(b"%x\r\n%b\r\n" % (len(payload), payload))
            return
        if self._left_bytes is not None:
            # Beyond its length it would be taken for the next answer.
            payload = payload[: self._left_bytes]
            self._left_bytes -= len(payload)
        self._send(payload)

    def pass_framed(self, framed: bytes) -> None:
        """Write bytes that are whole chunks already, where the answer is chunked."""
        if not self.over:
            self._send(framed)

    def end(self) -> None:
        """The body is whole. One that is shorter than was told ends the connection."""
        if self.over:
            return
        self.over = True
        if self.chunked:
            self._send(b"0\r\n\r\n")
            return
        if self._unsent:
            self._send(b"")
        if self._left_bytes:
            self._client.cut(reset=False)

    def cut(self, *, told: bool) -> None:
        """End without the final chunk, short of Content-Length, or by a reset where nothing else would show the break
        and the client was not `told` of it: a reset could cost it that last word. What was written is flushed before.
        """
        if self.over:
            return
        self.over = True
        self.flush()
        ends_by_closing = not (self.chunked or self.bodiless) and self._left_bytes is None
        self._client.cut(reset=ends_by_closing and not told)

    async def drain(self) -> None:
        """Wait until there is room. Raises ConnectionError if the client is gone."""
        await self._client.room()

    def stays_short_with(self, size_bytes: int) -> bool:
        """Whether so many bytes more leave the body short of the length that was told: at it, it would look whole."""
        return self._left_bytes is None or size_bytes < self._left_bytes

    def tell(self, reply: Reply) -> None:
        """Write a whole answer at once."""
        head = self._whole_head(reply)
        self._client.write(head if self.bodiless else head + reply.body)
        self.over = True

    async def tell_piecemeal(self, reply: Reply) -> None:
        """Write a whole answer as the client takes it: in one write all of it would lie in the transport, where under
        TLS nobody sees that a client takes none of it."""
        self._client.write(self._whole_head(reply))
        whole = memoryview(reply.body)
        for begin in range(0, len(whole), PIECE_BYTES):
            if self.full:
                await self.drain()
            self.write(bytes(whole[begin : begin + PIECE_BYTES]))
        self.end()

    def _send(self, data: bytes) -> None:
        if self._unsent:
            data, self._unsent = self._unsent + data, b""
        if (transport := self._client.transport) is not None:
            transport.write(data)

    def _whole_head(self, reply: Reply) -> bytes:
        length = reply.length
        if length is None and (reply.body or self._request.method != "HEAD"):
            length = len(reply.body)
        return self._head(reply.status, reply.fields, length, reply.stamps, close=reply.close)

    def _head(self, status: int, fields: Fields, length: int | None, lines: bytes, *, close: bool) -> bytes:
        request, client = self._request, self._client
        gate = client.host.door.gate
        if gate.origins:
            fields = gate.stamp(request, fields)
        marks = answer_head.named(fields)
        if marks & (STREAMED | OURS):
            fields, lines = _stamped(fields, lines, marks)
        self.bodiless = status in BODILESS or request.method == "HEAD"
        keeps = not close
        if status in BODILESS:
            if status == 204 and marks & LENGTH:
                fields = [field for field in fields if field[0].lower() != b"content-length"]
        elif marks & LENGTH:
            length = length or _length_in(fields)
        elif length is not None:
            lines += b"Content-Length: %d\r\n" % length
        elif not self.bodiless:
            self.chunked = not request.http10
            lines += answer_head.CHUNKS if self.chunked else b""
            keeps = keeps and self.chunked  # without chunks the closing is the only end
        if not self.bodiless:
            self._left_bytes = length
        self.begun = True
        keeps = client.begin(self, request, keeps=keeps)
        if keeps == request.http10:  # what is not the rule of a version is said
            lines += answer_head.KEEP if keeps else answer_head.CLOSE
        return answer_head.compose(status, fields, lines, marks, http10=request.http10)


def _length_in(fields: Fields) -> int:
    return int(next(value for name, value in fields if name.lower() == b"content-length"))


def _stamped(fields: Fields, lines: bytes, marks: int) -> tuple[Fields, bytes]:
    """The fields, their names and order kept, but for those of which lines of ours speak; and these lines."""
    if marks & STREAMED:
        lines += UNBUFFERED
    ours = {line.partition(b":")[0].lower() for line in lines.split(b"\r\n")}
    return [field for field in fields if field[0].lower() not in ours], lines


def error_reply(error: CrossoverError, dialect: Dialect, stamps: bytes = b"", *, close: bool = False) -> Reply:
    """An error of our own making as an answer in the client's dialect."""
    fields = [(b"Content-Type", b"application/json"), (b"Server", answer_head.SERVER)]
    if error.retry_after_s is not None:
        fields.append((b"Retry-After", b"%d" % max(1, round(error.retry_after_s))))
    if isinstance(error, MethodNotAllowed):
        fields.append((b"Allow", ", ".join(sorted(error.allow)).encode()))
    if isinstance(error, KeyRefused):
        fields.append((b"WWW-Authenticate", b"Bearer"))
    return Reply(error.status, fields, dialects.error_body(error, dialect), close, stamps=stamps)


def kept_reply(kept: Kept, stamps: bytes, *, bodiless: bool = False) -> Reply:
    """A backend's answer that was read whole, status and body unchanged; `bodiless` keeps a HEAD's Content-Length."""
    fields = headers.downstream_fields(kept.fields)
    if bodiless:
        return Reply(kept.status, fields, stamps=stamps)
    fields = [field for field in fields if field[0].lower() != b"content-length"]
    return Reply(kept.status, fields, kept.body, stamps=stamps)


def stamps_of(request_id: str, decision: Decision | None) -> bytes:
    """The lines that tell the client which backend answered, and why."""
    if decision is None or decision.role is None:
        return b"x-request-id: %b\r\n" % request_id.encode()
    because = decision.because
    said = _STAMPS % (
        request_id,
        decision.role,
        decision.reason,
        because.speculative_in_flight,
        because.baseline_in_flight,
        _because(because),
    )
    return said.encode()


def _because(because: Because) -> str:
    """What counted, and which backend was out. Never what is cached: by that one could guess at others' prompts."""
    policy, _, _, smoothed, enter_at, leave_at, regime, failures, costs, *_, speculative_out, baseline_out = because
    said = f"policy={policy}"
    if regime is not None:
        said += f", regime={regime}, smoothed={smoothed:.2f}"
    if enter_at is not None:
        said += f", enter_at={enter_at}"
    if leave_at is not None:
        said += f", leave_at={leave_at}"
    if failures:
        said += f", recent_failures={failures}"
    if costs is not None:
        said += _costs(costs)
    if speculative_out is not None:
        said += f", speculative_out={speculative_out}"
    return said if baseline_out is None else f"{said}, baseline_out={baseline_out}"


def _costs(costs: Costs) -> str:
    """What measured curves say of both choices."""
    said = f", speculative_cost_s={costs.speculative_s:.4g}, baseline_cost_s={costs.baseline_s:.4g}"
    failures = f", baseline_failures={costs.baseline_failures}" if costs.baseline_failures else ""
    return f"{said}{', extrapolated' if costs.extrapolated else ''}{failures}"
