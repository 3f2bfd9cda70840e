"""The JSON in a file of curves or of their fits, as long as such a file can be. What it says is in curve_files.py."""

import errno
from pathlib import Path
from typing import Any

import orjson

# The shipped ones have some KiB; larger is another file, and would be minutes of work or fill the memory.
MAX_FILE_BYTES = 1 << 20


def json_in(path: Path) -> Any:
    """What is in the file. Blocks on the disk. Raises OSError, also where it is too large, and JSONDecodeError."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES} bytes, so it is no curve")
    return orjson.loads(content)
