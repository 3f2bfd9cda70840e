"""Header fields as bytes, in the order and case in which they came: what crosses the proxy is not decoded on the way.

Which of them cross is in headers.py.
"""

Fields = list[tuple[bytes, bytes]]
"""Names as they were sent, values without the white space around them."""


def by_name(fields: Fields) -> dict[bytes, bytes]:
    """Values by lower-case name; those of a repeated name are joined by ", " (RFC 9110, section 5.2)."""
    found = {name.lower(): value for name, value in fields}
    if len(found) == len(fields):
        return found  # as nearly always: no name is repeated
    found.clear()
    for name, value in fields:
        lower = name.lower()
        before = found.get(lower)
        found[lower] = value if before is None else before + b", " + value
    return found


def text(value: bytes) -> str:
    """A value as text; bytes that are not UTF-8 become surrogates and come back unchanged by `raw`."""
    return value.decode("utf-8", "surrogateescape")


def raw(value: str) -> bytes:
    """The bytes of a text."""
    return value.encode("utf-8", "surrogateescape")
