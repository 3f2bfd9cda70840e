"""The clients' keys file as text: one client a line, `name sha256-hex`; what is wrong with it, a line for a new key.

Reading the file is in config/key_files.py, comparing a request's key in credentials.py. The keys are stored nowhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from proxy.protocol.credentials import ClientKey

PREFIX = "crossover_"
"""What every key that we make begins with, so that people and scanners for leaked secrets know one."""

# Each request's key is compared with every one of them: a thousand take about a tenth of a millisecond.
MAX_CLIENTS = 1000
# What metrics say where no client is known.
RESERVED = frozenset({"none", "other"})

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME_FORM = "a lower-case letter or digit, then up to 31 of these, `-` and `_`"
_OF_NOTHING = sha256(b"").digest()


@dataclass(frozen=True, slots=True)
class LineFault:
    """What is wrong with one line (from 1; 0 for the whole file), and the mend. Never quotes the line."""

    line: int
    message: str


def read_clients(text: str) -> tuple[tuple[ClientKey, ...], tuple[LineFault, ...]]:
    """The clients of a keys file in its order, and every fault; with a fault the clients are not to be used."""
    clients: list[ClientKey] = []
    faults: list[LineFault] = []
    lines: dict[str | bytes, int] = {}
    for number, words in _written(text):
        read = _client(words)
        if isinstance(read, str):
            faults.append(LineFault(number, read))
            continue
        for what, said in ((read.name, "name"), (read.digest, "key")):
            if what in lines:
                faults.append(LineFault(number, f"has the {said} of line {lines[what]}; mend: give each its own"))
            lines.setdefault(what, number)
        clients.append(read)
    if not clients and not faults:
        faults.append(LineFault(0, "holds no key; mend: add a line of `crossover key NAME`, or set the key to null"))
    if len(clients) > MAX_CLIENTS:
        faults.append(LineFault(0, f"holds more than {MAX_CLIENTS} keys; mend: remove those that nobody uses"))
    return tuple(clients), tuple(faults)


def line_for(name: str, key: str) -> str:
    """The line that lets a key in. Raises ValueError when the name cannot be one."""
    if fault := _name_fault(name):
        raise ValueError(fault)
    return f"{name} {sha256(key.encode()).hexdigest()}"


def _written(text: str) -> Iterator[tuple[int, list[str]]]:
    """Number and words of each line that says something."""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if words:
            yield number, words


def _client(words: list[str]) -> ClientKey | str:
    """One line's client, or what is wrong with the line."""
    if len(words) != 2:
        return "must be a name and a SHA-256; mend: write `name sha256-hex`, as `crossover key NAME` prints it"
    name, digest = words
    if fault := _name_fault(name):
        return fault
    if digest.startswith(PREFIX):
        return (
            "holds a key itself, which is known to whoever reads this file; "
            "mend: make a new one with `crossover key NAME`, and write the line that comes with it"
        )
    if not _DIGEST.fullmatch(digest):
        return "must end with a SHA-256; allowed: 64 hexadecimal digits; mend: `printf %s KEY | sha256sum` prints it"
    if bytes.fromhex(digest) == _OF_NOTHING:
        return "is the SHA-256 of nothing; mend: make the line with `crossover key NAME`"
    return ClientKey(name, bytes.fromhex(digest))


def _name_fault(name: str) -> str | None:
    if name in RESERVED:
        return f"must not be named {name}; mend: choose another name, since metrics say that where no client is known"
    if not _NAME.fullmatch(name):
        return f"must begin with a name; allowed: {_NAME_FORM}; mend: choose such a name"
    return None
