"""Words to standard output or standard error, so that they cannot steer a terminal. What is said is made elsewhere."""

import os
import sys
from typing import TextIO


def say(text: str) -> bool:
    """Print a text and be sure that it is out. A reader that has seen enough (`| head`), or an output that was closed
    before the start (`>&-`), is no failure; False then. Raises SystemExit, which tells why, where it cannot be written
    (a full disk)."""
    error = _failed(text, sys.stdout)
    if error is not None and not isinstance(error, BrokenPipeError):
        complain(f"standard output cannot be written: {error.strerror}")
        raise SystemExit(1)
    return error is None and sys.stdout is not None


def complain(text: str) -> None:
    """Print a text to standard error. Where that cannot be written there is nobody to tell it."""
    _failed(text, sys.stderr)


def _failed(text: str, stream: TextIO | None) -> OSError | None:
    """Why a text could not be printed; None where it is out, or nothing is open that it could go to."""
    if stream is None:
        return None
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        abandon(stream)
        return error
    return None


def abandon(stream: TextIO) -> None:
    """Let all that is still written to it go nowhere: the flush at the exit would fail as well, and say so."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def plain(text: object, most: int = 200) -> str:
    """A text of others (an engine's name of its model, a request's id) so that it cannot steer a terminal: printable
    ASCII, a question mark for all else, `most` characters."""
    said, most = "" if text is None else str(text), max(most, 4)
    safe = harmless(said[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def harmless(text: str, besides: str = "") -> str:
    """A text of the same length: printable ASCII and the characters in `besides`, a question mark for all else."""
    return "".join(each if " " <= each <= "~" or each in besides else "?" for each in text)


def escaped(document: str) -> str:
    """A document of JSON that says the same in visible ASCII: all else stands in its strings, where escapes may be."""
    return "".join(each if " " <= each <= "~" or each in "\n\t" else _escape(each) for each in document)


def _escape(character: str) -> str:
    if character == "\r":
        return "\n"  # between values; it would begin its line anew, over what stands there
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
