"""How much of what was written to a connection its other side has not taken: what waits here and in the kernel.

A kernel takes megabytes ahead of a slow reader and asks for more only when a good part of that has gone: what waits
here alone stands still meanwhile, as if nothing were read.
"""

import asyncio
import fcntl
import struct
import termios

_COUNT = struct.Struct("i")


def untaken_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes that wait here, and those that the other kernel has not acknowledged, where ours tells them; 0 as soon as
    none wait here."""
    waiting = transport.get_write_buffer_size()
    return waiting + unacknowledged_bytes(transport) if waiting else 0


def unacknowledged_bytes(transport: asyncio.WriteTransport) -> int:
    """Bytes in our kernel that the other one has not acknowledged; 0 where ours does not tell."""
    opened = transport.get_extra_info("socket")
    try:
        told = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, _COUNT.pack(0))
    except (AttributeError, OSError, ValueError):  # no socket, one that has been closed, or a kernel that does not say
        return 0
    count: int = _COUNT.unpack(told)[0]
    return count
