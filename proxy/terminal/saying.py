"""Words to standard output or standard error. What is said is made elsewhere."""

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
    safe = "".join(each if " " <= each <= "~" else "?" for each in said[: most + 1])
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."
