"""Memory under large bodies is theirs and little more, seen from outside at a proxy in a process of its own (H23)."""

import asyncio
from pathlib import Path

import pytest
from fakes.own_process import Process, own_process
from fakes.raw import RawClient, chat, request
from fakes.sending import SSE
from fakes.sink import Sink

MIB = 1024 * 1024
BODIES, BODY_BYTES = 50, 10 * MIB
# What they may take beside themselves. The pieces of chunks are smaller than those of a plain length and leave holes in
# the heap when they are put together: as much as twice what is held it must not be.
LENGTH_SPARE_BYTES, CHUNKED_SPARE_BYTES = 64 * MIB, 400 * MIB


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_h23_memory_of_many_bodies_at_once_is_theirs_and_little_more(tmp_path: Path, chunked: bool) -> None:
    """All are under way at the same time: the engines answer none before they have read all."""
    read = asyncio.Semaphore(0)
    all_read = asyncio.Event()

    async def hold(_: int) -> bytes:
        read.release()
        await all_read.wait()
        return b"{}"

    async with Sink(hold) as a, Sink(hold) as b, own_process(tmp_path, a.url, b.url) as proxy:
        proxy.forget_peak()
        idle_bytes = proxy.peak_bytes
        async with asyncio.TaskGroup() as clients:
            asked = [clients.create_task(sent_in_pieces(proxy.port, chunked=chunked)) for _ in range(BODIES)]
            for _ in range(BODIES):
                await read.acquire()
            all_read.set()
        assert {task.result() for task in asked} == {200}
        grown = proxy.peak_bytes - idle_bytes
        spare_bytes = CHUNKED_SPARE_BYTES if chunked else LENGTH_SPARE_BYTES
        assert grown <= BODIES * BODY_BYTES + spare_bytes, f"{grown // MIB} MiB"


async def sent_in_pieces(port: int, *, chunked: bool) -> int:
    """The status that a body of BODY_BYTES gets, of which this side holds one piece."""
    piece = b"x" * 65536
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {BODY_BYTES}"
    sent = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
    async with RawClient(port) as client:
        await client.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n".encode())
        for _ in range(BODY_BYTES // len(piece)):
            await client.send(sent)
        if chunked:
            await client.send(b"0\r\n\r\n")
        async with asyncio.timeout(60):
            return int((await client.reader.readline()).split()[1])


# What a stream may take beside its buffers, whatever its length.
ENDLESS_SPARE_BYTES = 16 * MIB
# The 200 MiB of the case once; what would be collected shows in a fifth of it too.
ENDLESS = [
    (SSE, b"data: ", 200 * MIB),
    ("application/x-ndjson", b"{", 40 * MIB),
]


@pytest.mark.parametrize(("content_type", "begin", "endless_bytes"), ENDLESS)
async def test_h23_endless_line_passes_whole_in_constant_memory(
    tmp_path: Path, content_type: str, begin: bytes, endless_bytes: int
) -> None:
    """The side parser gives up, the stream does not."""
    async with (
        Sink(None, content_type, begin, endless_bytes) as a,
        own_process(tmp_path, a.url, "http://127.0.0.1:1") as proxy,
    ):
        proxy.forget_peak()
        idle_bytes = proxy.peak_bytes
        target = "/api/chat" if "ndjson" in content_type else "/v1/chat/completions"
        assert await counted(proxy, target) == endless_bytes + len(begin)
        assert proxy.peak_bytes - idle_bytes <= ENDLESS_SPARE_BYTES


async def counted(proxy: Process, target: str) -> int:
    """How many bytes of a body came, which has to end well."""
    async with RawClient(proxy.port) as client:
        await client.send(request(target, chat(stream=True)))
        await client.head()
        size_bytes = 0
        async with asyncio.timeout(60):
            while size := int(await client.reader.readline(), 16):
                await client.reader.readexactly(size + 2)
                size_bytes += size
        return size_bytes
