"""What the proxy itself lacks when a connection to an engine cannot be made, and what to do about it.

Such a failure says nothing of the engine. Not here: what others do with it (hearing.py, health.py).
"""

import errno

from proxy.errors import OutOfSockets

# So long the system keeps a local port after its connection has ended (TIME-WAIT, a fixed minute on Linux). A process
# that has made no connection to a place for longer has taken none of its ports.
PORT_KEPT_S = 60.0

_FILES = "raise its limit of open files (LimitNOFILE, ulimit -n) or lower listen.max_connections"
_MEMORY = "give the machine more memory, or fewer connections"
_MENDS = {
    errno.EMFILE: f"as many files are open as it may have: {_FILES}",
    errno.ENFILE: "as many files are open as the system may have: raise fs.file-max",
    errno.ENOBUFS: f"the system has no memory for sockets: {_MEMORY}",
    errno.ENOMEM: f"the system has no memory for sockets: {_MEMORY}",
}
_PORTS = "no local port is left: widen net.ipv4.ip_local_port_range, or send fewer requests a second"


def is_lack(error: OSError) -> bool:
    """Whether it is surely ours, whatever was called."""
    return error.errno in _MENDS


def lack(error: BaseException, unused_s: float) -> OutOfSockets | None:
    """The error that says what is lacking and the mend; None where the failure is not the proxy's own.

    `unused_s` is since when no connection to the same place was made, 0 where one is open. An address that this machine
    cannot call at all (::1 without IPv6) fails just like one for which no local port is left: only who has taken ports
    may be out of them.
    """
    number = error.errno if isinstance(error, OSError) else None
    mend = _PORTS if number == errno.EADDRNOTAVAIL and unused_s < PORT_KEPT_S else _MENDS.get(number or 0)
    if number is None or mend is None:
        return None
    return OutOfSockets(f"the proxy could make no connection to a backend ({errno.errorcode[number]}): {mend}")
