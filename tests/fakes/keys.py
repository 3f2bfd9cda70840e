"""A clients' keys file with keys that a test knows, and a mark in each that must turn up nowhere."""

from collections.abc import Iterable
from pathlib import Path

from proxy.protocol.client_keys import line_for

MARK = "KEYMARK"


def key_of(name: str) -> str:
    """The key of a client in the file."""
    return f"crossover_{MARK}-{name}"


def bearer(name: str) -> str:
    """The header line that lets a client in."""
    return f"authorization: Bearer {key_of(name)}"


def write_keys(path: Path, names: Iterable[str]) -> Path:
    """Write the file anew, as an editor does; its path."""
    beside = path.with_suffix(".new")
    beside.write_text("# clients\n" + "".join(f"{line_for(name, key_of(name))}\n" for name in names))
    return beside.replace(path)
