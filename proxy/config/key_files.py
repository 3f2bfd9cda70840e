"""Reads the files that the configuration names: whole, and none larger than its kind can be. Of those with keys (an
engine's, the operators' token, the clients' digests) also what is in them.

What their text may be is not here: a key's is in addresses.py, the clients' in protocol/client_keys.py.
"""

from dataclasses import dataclass, field
from pathlib import Path

from proxy.config.addresses import checked_key
from proxy.config.marks import Marks
from proxy.config.problems import Problem
from proxy.protocol.client_keys import read_clients
from proxy.protocol.credentials import ClientKey
from proxy.routing.curves import Curves

# The longest token known is a JWT of a few KiB; larger is not a key.
MAX_KEY_FILE_BYTES = 1 << 16
# A thousand clients take about 100 KiB, with comments some more; larger is another file.
MAX_CLIENTS_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Sources:
    """Where settings came from: every file with its mark, taken before it was read, the clients of the clients' keys
    file and the speeds of the curves file, each None where no such file is named, and the headers of traces; `file` is
    the configuration itself, None where it was built in code."""

    marks: Marks = field(default_factory=dict, compare=False)
    clients: tuple[ClientKey, ...] | None = None
    curves: Curves | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    file: Path | None = field(default=None, compare=False)


def read_key(path: Path) -> str:
    """The key in a file, without the white space around it. Raises ValueError with a message."""
    content = content_of(path, MAX_KEY_FILE_BYTES)
    try:
        return checked_key(content.decode("ascii", errors="replace").strip())
    except ValueError as error:
        raise ValueError(f"names a file whose content {error}") from None


def read_clients_file(path: Path) -> tuple[tuple[ClientKey, ...], list[Problem]]:
    """The clients of a keys file, and every problem in it. Raises ValueError when it cannot be read as text at all."""
    try:
        text = content_of(path, MAX_CLIENTS_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("names a file that is not UTF-8; mend: save it as UTF-8, or check the path") from None
    clients, faults = read_clients(text)
    return clients, [Problem(str(path), fault.line, min(fault.line, 1), "", fault.message) for fault in faults]


def content_of(path: Path, max_bytes: int, where: str = "") -> bytes:
    """The bytes of a file that a key names. Raises ValueError with a message, in which `where` tells the path: not of
    files with secrets, since the secret itself may stand in the place of the name."""
    try:
        if not path.is_file():  # a pipe or a device could block for ever
            raise ValueError(
                f"names no regular file{where}; mend: check the path, which counts from the configuration's folder"
            )
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        said = f"names a file that cannot be read ({error.strerror}){where}"
        raise ValueError(f"{said}; mend: check its permissions") from None
    if len(content) > max_bytes:
        raise ValueError(f"names a file larger than {max_bytes} bytes; mend: check the path")
    return content
