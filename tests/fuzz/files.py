"""Configuration files of any bytes: settings, or InvalidConfig with problems that have a place and a mend.

Byte 0 says whether the two urls that every configuration needs are written before the rest.
"""

import os
import re
import tempfile
from pathlib import Path

from fuzz.draws import Draws, require

from proxy import config
from proxy.config import InvalidConfig, Settings
from proxy.config.problems import MAX_PROBLEMS

ENVIRON = {"KEY": "secret", "PORT": "30000", "EMPTY": "", "LONG": "x" * 300}
URLS = b'backends: {speculative: {url: "http://a:1"}, baseline: {url: "http://b:1"}}\n'
FOLDER = tempfile.TemporaryDirectory(prefix="crossover-fuzz-")
FILE = Path(FOLDER.name) / f"{os.getpid()}.yaml"
# YAML's lines, and those of an editor: what is no YAML at all is placed by the second.
LINE_ENDS = (re.compile("\r\n|[\r\n\x85\u2028\u2029]"), re.compile("\n"))


def config_file(data: bytes) -> None:
    """Settings that are whole, or every problem with its place, and no other error."""
    draws = Draws(data)
    text = (URLS if draws.byte() % 2 else b"") + draws.rest()
    FILE.write_bytes(text)
    try:
        settings = config.load(FILE, ENVIRON)
    except InvalidConfig as error:
        _require_placed(error, text)
        return
    require(isinstance(settings, Settings), "no settings and no error")
    require("secret" not in config.effective(settings), "the settings in force show a key")
    require(config.load(FILE, ENVIRON) == settings, "the same file, other settings")
    require(not config.differences(settings, settings), "settings differ from themselves")


def _require_placed(error: InvalidConfig, text: bytes) -> None:
    require(0 < len(error.problems) <= MAX_PROBLEMS, "no problem, or too many")
    whole = text.decode("utf-8-sig", "replace")
    counted = [[len(line) for line in end.split(whole)] for end in LINE_ENDS]
    for problem in error.problems:
        placed = any(_is_within(problem.line, problem.column, lengths) for lengths in counted)
        require(placed, f"line {problem.line}, column {problem.column} is not in the file")
        require("mend: " in problem.message, f"no mend: {problem.message}")
        require(problem.message.isprintable(), f"a problem that cannot be printed: {problem.message!r}")


def _is_within(line: int, column: int, lengths: list[int]) -> bool:
    """Whether a place is in the file or just behind a line's end or the last line."""
    length = [*lengths, 0][line - 1] if 1 <= line <= len(lengths) + 1 else -1
    return 1 <= column <= length + 2
