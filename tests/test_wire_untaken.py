"""What a connection's other side has not taken is counted here and in the kernel."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.until import until

from proxy.wire.untaken import untaken_bytes


def transport_of(waiting: int, opened: object) -> Any:
    return SimpleNamespace(get_write_buffer_size=lambda: waiting, get_extra_info=lambda _: opened)


def test_nothing_is_untaken_as_soon_as_none_waits_here() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.send(b"x" * 100)
        assert untaken_bytes(transport_of(0, one)) == 0


async def test_bytes_that_the_other_kernel_holds_back_count_and_fall_as_they_are_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as one:
        listening.settimeout(10)
        one.connect(listening.getsockname())
        other, _ = listening.accept()
        with other:
            other.settimeout(10)
            one.setblocking(False)
            sent = 0
            with pytest.raises(BlockingIOError):
                while True:
                    sent += one.send(b"x" * 65536)
            before = untaken_bytes(transport_of(1, one))
            assert 1 < before <= sent + 1
            taken = 0
            while taken < sent // 2:
                taken += len(other.recv(1 << 20))
            await until(lambda: untaken_bytes(transport_of(1, one)) < before, what="the kernel telling what was read")


@pytest.mark.parametrize("opened", [None, SimpleNamespace(fileno=lambda: -1)], ids=["no socket", "a closed one"])
def test_where_no_kernel_tells_what_waits_here_counts(opened: object) -> None:
    assert untaken_bytes(transport_of(7, opened)) == 7
