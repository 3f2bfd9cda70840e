"""Values of the laboratory's command lines: numbers, lists, durations, addresses. What becomes of them is elsewhere."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from proxy.errors import ConfigError

Number = TypeVar("Number", int, float)

_UNIT_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def words(text: str) -> list[str]:
    """Words with commas between."""
    return [word for word in text.split(",") if word]


def write(path: Path, content: bytes) -> None:
    """Write a file that was asked for. Raises `ConfigError` with the mend."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); mend: choose another place") from error


def positive(kind: type[Number]) -> Callable[[str], Number]:
    """A parser of numbers above 0."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if kind is int else ''}number above 0")
        return value

    return parse


def list_of(kind: type[Number]) -> Callable[[str], tuple[Number, ...]]:
    """A parser of numbers above 0 with commas between."""
    parse = positive(kind)
    return lambda text: tuple(parse(part) for part in text.split(","))


def not_negative(text: str) -> float:
    """A number of at least 0."""
    return 0.0 if text.strip() == "0" else positive(float)(text)


def duration_s(text: str) -> float:
    """Seconds of a time with its unit: `90s`, `15m` or `2h`."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)\s*", text)
    if found is None or float(found[1]) <= 0.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 90s, 15m or 2h")
    return float(found[1]) * _UNIT_S[found[2]]


def token_counts(text: str) -> tuple[int, ...]:
    """Numbers of tokens with commas between; `k` stands for 1024: `1k,8k`."""
    return tuple(_tokens(part.strip().lower()) for part in text.split(","))


def server_url(text: str) -> str:
    """A server's base address without path: a trailing slash or `/v1` is taken off."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise argparse.ArgumentTypeError("give the address like http://127.0.0.1:30000")
    if parts.username is not None or parts.query or parts.fragment:
        raise argparse.ArgumentTypeError("give the address without user, query or fragment; the key goes to --api-key")
    return text.rstrip("/").removesuffix("/v1")


def _tokens(text: str) -> int:
    unit = 1024 if text.endswith("k") else 1
    try:
        return positive(int)(text.removesuffix("k")) * unit
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens like 1024 or 8k") from error
