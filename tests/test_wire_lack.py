"""A connection that fails for want of what is the proxy's own is told from one that an engine does not take."""

import errno
import os

import pytest

from proxy.errors import OutOfSockets, Side
from proxy.wire.lack import PORT_KEPT_S, is_lack, lack

NEVER = float("inf")
OURS = {
    errno.EMFILE: "LimitNOFILE",
    errno.ENFILE: "fs.file-max",
    errno.ENOBUFS: "memory",
    errno.ENOMEM: "memory",
}


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(("number", "mend"), OURS.items())
def test_want_of_files_or_memory_is_ours_and_tells_the_mend(number: int, mend: str) -> None:
    told = lack(failed(number), NEVER)
    assert told is not None
    assert is_lack(failed(number))
    assert (told.code, told.status, told.side, told.reached) == ("out_of_sockets", 503, Side.PROXY, False)
    assert mend in told.message
    assert errno.errorcode[number] in told.message


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNRESET])
def test_what_the_other_side_or_the_way_there_does_is_not_ours(number: int) -> None:
    assert lack(failed(number), 0.0) is None
    assert not is_lack(failed(number))


@pytest.mark.parametrize("error", [TimeoutError(), ValueError("no port"), OSError("several failures")])
def test_a_failure_without_a_number_is_not_ours(error: Exception) -> None:
    assert lack(error, 0.0) is None


def test_want_of_a_port_is_ours_only_where_one_can_have_been_taken() -> None:
    """::1 on a machine without IPv6 fails alike: an engine there is to count as down."""
    told = lack(failed(errno.EADDRNOTAVAIL), PORT_KEPT_S - 1)
    assert isinstance(told, OutOfSockets)
    assert "ip_local_port_range" in told.message
    assert lack(failed(errno.EADDRNOTAVAIL), PORT_KEPT_S) is None
    assert lack(failed(errno.EADDRNOTAVAIL), NEVER) is None
