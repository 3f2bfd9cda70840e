"""A reader that stops: what a proxy's memory does while an engine goes on offering, and whether all comes after it."""

import dataclasses
import time

from bench.engine_word import state, wait_for_quiet
from bench.jobs import Job, Load
from bench.processes import ended
from bench.sampling import Tally, load_between, memory_bytes, read
from bench.streams import Stream, request, to_the_end
from bench.wire import Broken, Wire

# Small, so that what the kernel keeps for the reader is little beside what a proxy may keep.
RECEIVE_BYTES = 65536
# How long the reader takes everything before it stops.
READING_S = 1.0
SAMPLE_S = 0.1


def stopped(job: Job) -> Load:
    """Read for a while, then take nothing for `job.seconds`, then all that is left. Raises Broken where nothing came.

    `before_bytes` is memory before the stream, `after_bytes` at the end of the rest, `peak_bytes` the most in it.
    """
    wire, tally = Wire(), Tally()
    before_bytes, sent = memory_bytes(job), state(job.engine_port).sent
    stream = Stream(wire, tally, job.port, request(job), RECEIVE_BYTES)
    try:
        wire.run(time.monotonic() + READING_S)
        if not tally.begun:
            raise Broken(f"the stream did not begin: {stream.failure or 'nothing came'}")
        before = read(job, tally)
        resting = rest(job)
        load = load_between(job, before, read(job, tally), tally)
        return dataclasses.replace(
            to_the_end(job, wire, load, [stream], sent),
            before_bytes=before_bytes,
            after_bytes=resting[-1] if resting else None,
            peak_bytes=max(resting, default=None),
        )
    finally:
        wire.leave(stream.sock)
        wire.close()
        wait_for_quiet(job.engine_port)


def rest(job: Job) -> list[int]:
    """Take nothing; what memory was meanwhile, from time to time."""
    seen: list[int] = []
    end_s = time.monotonic() + job.seconds
    while time.monotonic() < end_s and not ended(job.pids, SAMPLE_S):
        now_bytes = memory_bytes(job)
        if now_bytes is not None:
            seen.append(now_bytes)
    return seen
