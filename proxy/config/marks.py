"""What tells one state of a file from the next, so that a change can be noticed without reading it.

When marks are compared is not here (wire/reload.py).
"""

from pathlib import Path

Mark = tuple[int, int, int] | None
Marks = dict[Path, Mark]


def mark(path: Path) -> Mark:
    """The file's state; None where there is no file. Take it before reading the file, or an edit right behind the
    reading goes unnoticed."""
    try:
        stat = path.stat()
    except (OSError, ValueError):  # no file, or a name that can be none
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
