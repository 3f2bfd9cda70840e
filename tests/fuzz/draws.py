"""What every target is made of: choices drawn from bytes, a property that must hold, a limit made small for a while.

Not here: any property of the proxy.
"""

import contextlib
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


class PropertyBroken(AssertionError):
    """A property of the proxy does not hold for this input."""


def require(holds: bool, what: str) -> None:
    """Raise PropertyBroken when a property does not hold; unlike `assert` it also speaks under `python -O`."""
    if not holds:
        raise PropertyBroken(what)


class Draws:
    """Choices out of bytes, in order; zeros once they have run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        """Whether bytes are left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def one_of(self, choices: Sequence[T]) -> T:
        """One of at most 256 choices."""
        return choices[self.byte() % len(choices)]

    def rest(self) -> bytes:
        """All bytes that are left."""
        rest, self._at = self._data[self._at :], len(self._data)
        return rest


@contextlib.contextmanager
def patched(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """A module's limit set to another value inside the block."""
    former = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, former)
