"""Words to standard output or standard error, so that they cannot steer a terminal. What is said is made elsewhere."""

import os
import sys
from typing import TextIO


def say(text: str, stream: TextIO | None = None) -> bool:
    """Print a text and be sure that it is out. A reader that has seen enough (`| head`) is no failure; False then."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        # The flush at the exit would fail once more, and say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True


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
