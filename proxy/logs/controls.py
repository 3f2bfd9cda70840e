"""Control characters as escapes: whatever stands in a value, one event stays one line."""

from typing import Any

from structlog.typing import EventDict, WrappedLogger

_HARMLESS = frozenset({int, float, bool})
# What a line of JSON has none of where nothing in it needs an escape: the sign that begins one, and the one control
# character that JSON lets stand.
_BACKSLASH, _DELETE = 0x5C, 0x7F


def escape_controls(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Control characters in values are written as escapes: one event is one line, in text as well."""
    # Most values need nothing: told here and not in `_escaped`, it costs half.
    return {
        name: value if type(value) in _HARMLESS or (type(value) is str and value.isprintable()) else _escaped(value)
        for name, value in event.items()
    }


def is_harmless(line: bytes) -> bool:
    """Whether a line of JSON has visible ASCII characters alone and no escape, so that no value needs one of ours."""
    return line.isascii() and _BACKSLASH not in line and _DELETE not in line


def _escaped(value: Any) -> Any:
    if isinstance(value, list):
        return [_escaped(each) for each in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
