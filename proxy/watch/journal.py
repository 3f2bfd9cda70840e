"""What changed and what operators did, each with a sentence for people and its numbers; the newest few hundred.

The same things are log events; there they are for machines. The sentences of changes are in sentences.py.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from proxy.model import Role
from proxy.watch.json_text import escaped

# An engine that flaps makes a few entries a minute: some hours of it, or weeks of quiet. About 200 KiB.
MAX_ENTRIES = 500
# Ours have some hundred characters; those that quote a path, a configuration or an engine may have any number.
MAX_CHARACTERS = 1000

Number = str | float | None


class Entry(NamedTuple):
    """One thing that happened. `at_s` is monotonic seconds; `role` is None where no single backend is meant."""

    at_s: float
    kind: str
    role: Role | None
    sentence: str
    numbers: Mapping[str, Number]

    def told(self, offset_s: float) -> dict[str, object]:
        """As JSON tells it; `offset_s` makes unix seconds of monotonic ones."""
        role = {} if self.role is None else {"role": self.role}
        at_s = round(self.at_s + offset_s, 3)
        return {"at_s": at_s, "kind": self.kind, **role, "sentence": self.sentence, "numbers": dict(self.numbers)}


class Journal:
    """The entries of one proxy, oldest first. `written` counts all there ever were."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=MAX_ENTRIES)
        self.written = 0

    def write(self, entry: Entry) -> None:
        """Add an entry, its words cut to MAX_CHARACTERS and such as JSON can carry; the oldest goes when there are too
        many."""
        numbers = {name: _bounded(each) if isinstance(each, str) else each for name, each in entry.numbers.items()}
        self.entries.append(entry._replace(sentence=_bounded(entry.sentence), numbers=numbers))
        self.written += 1

    def newest(self, count: int) -> list[Entry]:
        """At most `count` entries, newest first."""
        return [entry for entry, _ in zip(reversed(self.entries), range(count), strict=False)]


def _bounded(text: str) -> str:
    said = escaped(text)
    return said if len(said) <= MAX_CHARACTERS else f"{said[: MAX_CHARACTERS - 2]} …"
