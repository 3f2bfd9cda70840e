"""JSON of whatever the proxy has to tell: what JSON cannot carry is written so that it can, and nobody goes without.

Paths that are no UTF-8 and sums beyond 64 bits are rare, and each would else take an answer, or the stream, with it.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import orjson

# Whole numbers that orjson writes: 64 bits, with a sign or without.
LEAST, MOST = -(1 << 63), (1 << 64) - 1


def json_text(value: Any) -> bytes:
    """A value as JSON. Bytes of a path that are no UTF-8 stand in it as `\\udce9`, larger numbers as floats."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.dumps(_plain(value))


def escaped(text: str) -> str:
    """A text as UTF-8 can say it: halves of pairs of surrogates, as undecodable paths bring them, by their numbers."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return _single(value.value if isinstance(value, Enum) else value)


def _single(value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if LEAST <= value <= MOST else _rough(value)
    return escaped(str(value))


def _rough(number: int) -> float | None:
    try:
        return float(number)
    except OverflowError:
        return None
