"""How many files this process may have open, and how many connections that is enough for.

A file here is whatever takes a descriptor: a connection of a client, one to an engine, a listening socket, a log. What
happens where they run out all the same is in wire/calls.py.
"""

import resource

# The connection of the client, and that to the engine.
FILES_A_STREAM = 2
# Kept from clients, for engines' probes, the operators' port, those who are turned away, lookups and files: 192 are
# enough for all of them at once, and of a limit below 768 they would leave too little to clients.
KEPT = 192
KEPT_SHARE = 4


def limit() -> int | None:
    """As many files as this process may have open: `serve` raises its limit as far as the system lets it. None where
    there is no limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def connections(wanted: int, files: int | None) -> int:
    """As many of the `wanted` client connections as so many `files` are enough for; one at least."""
    if files is None:
        return wanted
    return max(1, min(wanted, (files - min(KEPT, files // KEPT_SHARE)) // FILES_A_STREAM))


def beside(connected: int, files: int | None) -> float:
    """How many files are left where so many client connections stream."""
    return float("inf") if files is None else files - FILES_A_STREAM * connected


def few(wanted: int, files: int | None) -> str | None:
    """What to say where `files` are too few for the `wanted` client connections; None where they are enough."""
    if beside(wanted, files) >= 0:
        return None
    return (
        f"listen.max_connections: {wanted} streams need {FILES_A_STREAM * wanted} open files and more, and the "
        f"hard limit is {files}: no more than {connections(wanted, files)} client connections are taken; mend: raise "
        "that limit (LimitNOFILE of systemd, nofile of containers, ulimit -Hn) and restart, or lower this key"
    )
