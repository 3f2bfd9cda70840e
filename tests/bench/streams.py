"""Streams: many begun one after another, counted in a window in which all of them run, each read to its end.

Light on purpose: what an engine's event looks like on the wire is compared as a whole, and taken apart only where a
proxy frames it in another way.
"""

import dataclasses
import statistics
import time

from bench import messages
from bench.engine_word import end_streams, state, wait_for_quiet
from bench.jobs import STREAMS, Job, Load
from bench.sampling import Tally, load_between, memory_bytes, read
from bench.wire import READ_BYTES, Broken, Chunks, Wire

_SIZE_LINE = messages.EVENT_CHUNK.partition(b"\n")[0] + b"\n"
_EVENT_BYTES = len(messages.EVENT)
_CHUNK_BYTES = len(messages.EVENT_CHUNK)
_STAMP_AT = messages.EVENT_CHUNK.index(messages.MARK) + 1
_STAMP_END = _STAMP_AT + messages.STAMP_BYTES
# A stream's end and the answer's head together are read in less.
_HEAD_BYTES = 65536
# Beyond its own length, a measurement that takes longer than this has failed.
PATIENCE_S = 30.0
# Longer than any window: streams end when the engine is told.
ENDLESS = 1_000_000


class Stream:
    """One stream. `first_s` is how long its first byte took."""

    __slots__ = ("_head", "_request", "_sent_s", "_wire", "chunks", "events", "failure", "first_s", "sock", "tally")

    def __init__(self, wire: Wire, tally: Tally, port: int, request: bytes, receive_bytes: int | None = None) -> None:
        self._wire = wire
        self.tally = tally
        self._head: bytes | None = b""
        self.chunks = Chunks()
        self.events = 0
        self.first_s: float | None = None
        self.failure: str | None = None
        self.sock = wire.connect(port, receive_bytes=receive_bytes)
        self._request = request
        self._sent_s = time.perf_counter()
        wire.watch(self.sock, self)

    def connected(self) -> None:
        """Ask."""
        try:
            self.sock.send(self._request)
        except OSError as error:
            self._fail(f"no connection: {error}")

    @property
    def answered(self) -> bool:
        """Whether a stream has begun, and no error and not nothing."""
        return self._head is None

    def readable(self) -> None:
        """Read once."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"the connection broke: {error}")
            return
        if len(data) == _CHUNK_BYTES and self.chunks.between and data.startswith(_SIZE_LINE):
            self.chunks.payload_bytes += _EVENT_BYTES
            self._count(1)
            if self.tally.counting:
                self._note(time.monotonic_ns(), data[_STAMP_AT:_STAMP_END])
        else:
            self._take_apart(data)

    def _take_apart(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        if not data:
            self._fail("the connection closed before the answer was whole")
            return
        if self._head is not None:
            data = self._begin(data)
        events = data.count(messages.MARK)
        if events:
            self._count(events)
            if self.tally.counting:
                at = -1
                for _ in range(events):
                    at = data.index(messages.MARK, at + 1)
                    self._note(now_ns, data[at + 1 : at + 1 + messages.STAMP_BYTES])
        try:
            self.chunks.feed(data)
        except Broken as error:
            self._fail(str(error))
        if self.chunks.ended:
            self._end()

    def _begin(self, data: bytes) -> bytes:
        """The first bytes of an answer; what follows its head."""
        if self.first_s is None:
            self.first_s = time.perf_counter() - self._sent_s
            self.tally.begun += 1
        head, end, body = ((self._head or b"") + data).partition(b"\r\n\r\n")
        if not end:
            self._head = head
            return b""
        if not head.startswith(b"HTTP/1.1 200 ") or b"chunked" not in head.lower():
            self._fail(f"answered {head[:60]!r} {body[:120]!r}")
            return b""
        self._head = None
        return body

    def _count(self, events: int) -> None:
        self.events += events
        self.tally.units += events
        self.tally.reads += 1

    def _note(self, now_ns: int, stamp: bytes) -> None:
        # A stamp that a read cut in two is left out, and so are events that leave together with a stream's head or end.
        if len(stamp) == messages.STAMP_BYTES and stamp != messages.UNSTAMPED:
            self.tally.stamps.append((now_ns, stamp))

    def _fail(self, words: str) -> None:
        self.failure = words
        self.tally.failed += self.first_s is None
        self._end()

    def _end(self) -> None:
        self.tally.over += 1
        self._wire.leave(self.sock)


def request(job: Job) -> bytes:
    """What every stream of a job asks for."""
    interval_s = 1 / job.rate if job.rate else 0.0
    return messages.request(stream=True, port=job.port, shape=job.shape, interval_s=interval_s, events=ENDLESS)


def streams(job: Job) -> Load:
    """Do one job of streams. Raises Broken where a contender does not take them all on."""
    wire, tally = Wire(), Tally()
    before_bytes, sent = memory_bytes(job), state(job.engine_port).sent
    begun: list[Stream] = []
    try:
        begin(job, wire, tally, begun)
        load = window(job, wire, tally)
        load = dataclasses.replace(load, offered=job.streams * job.rate * load.window_s if job.rate else None)
        load = to_the_end(job, wire, load, begun, sent)
        return dataclasses.replace(
            load, before_bytes=before_bytes, streams=job.streams, first_byte_s=first_byte_s(begun)
        )
    finally:
        for each in begun:
            wire.leave(each.sock)
        wire.close()
        wait_for_quiet(job.engine_port)


def begin(job: Job, wire: Wire, tally: Tally, begun: list[Stream]) -> None:
    """Begin all streams at their pace, and wait until each has its first byte."""
    asked = request(job)
    next_s = time.monotonic()
    for _ in range(job.streams):
        begun.append(Stream(wire, tally, job.port, asked))
        next_s += 1 / job.streams_per_s
        wire.run(next_s)
    wire.run(time.monotonic() + PATIENCE_S, lambda: tally.begun + tally.failed >= job.streams)
    refused = sum(not each.answered for each in begun)
    if refused and (job.test != STREAMS or refused == job.streams):
        words = next((each.failure for each in begun if each.failure), "nothing came")
        raise Broken(f"{refused} of {job.streams} streams did not begin: {words}")


def window(job: Job, wire: Wire, tally: Tally) -> Load:
    """Let things come to rest, then count for `job.seconds`."""
    wire.run(time.monotonic() + job.settle_s)
    begun_bytes = memory_bytes(job)
    tally.counting = True
    before = read(job, tally)
    wire.run(time.monotonic() + job.seconds)
    after = read(job, tally)
    tally.counting = False
    after_bytes = memory_bytes(job)
    return dataclasses.replace(
        load_between(job, before, after, tally),
        after_bytes=after_bytes,
        peak_bytes=max(begun_bytes, after_bytes) if begun_bytes is not None and after_bytes is not None else None,
    )


def to_the_end(job: Job, wire: Wire, load: Load, begun: list[Stream], sent_before: int) -> Load:
    """Have the engine end all streams, read each to its end, and see whether all of it has come."""
    end_streams(job.engine_port)
    wire.run(time.monotonic() + PATIENCE_S, lambda: begun[0].tally.over >= len(begun))
    sent = state(job.engine_port).sent - sent_before
    return dataclasses.replace(
        load,
        lost=sent - sum(each.events for each in begun),
        wrong=sum(each.answered and not whole(each, job.shape) for each in begun),
        refused=sum(not each.answered for each in begun),
    )


def whole(stream: Stream, shape: str) -> bool:
    """Whether a stream has ended as it should and each of its events had all its bytes."""
    return stream.chunks.ended and stream.chunks.payload_bytes == messages.payload_bytes(stream.events, shape)


def first_byte_s(begun: list[Stream]) -> float:
    """How long first bytes took, while streams were begun one after another."""
    return statistics.median(each.first_s for each in begun if each.first_s is not None)
