"""One YAML document to plain values that remember where they stood; every fault becomes a Problem.

Which keys exist and what they may hold is not here (settings.py). Only the plain part of YAML is read: mappings, lists
and scalars. Anchors, aliases, merge keys and tags are refused: they hide where a value comes from, and aliases can
expand without bound. Scalars resolve as in YAML 1.2, so `on`, `yes` and `1:30` stay text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from proxy.config.problems import KeyPath, Problem, dotted
from proxy.config.variables import substituted

# The deepest key has depth 5; more only comes from a mistake or from an attack on the recursion below.
MAX_DEPTH = 16

# A full configuration has about 60 nodes; ten thousand take a third of a second to read, a full MiB of them ten.
MAX_NODES = 10_000

# Python refuses to read longer decimal numbers (4300 digits); no setting has more than a dozen.
MAX_NUMBER_CHARS = 40

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key stood (from 1), and its scalar as written, before substitution (None: a mapping or a list)."""

    line: int
    column: int
    written: str | None = None
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says. `values` are plain Python values; `broken` are the paths whose value could not be read."""

    file: str
    values: object = None
    places: Mapping[KeyPath, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    broken: frozenset[KeyPath] = frozenset()

    def place(self, path: KeyPath) -> Place:
        """The place of `path`, or of the nearest thing around it that is in the file."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(0, 0)

    def is_broken(self, path: KeyPath) -> bool:
        """Whether `path`, or something around it, could not be read."""
        return any(path[:length] in self.broken for length in range(len(path) + 1))

    def problem(self, path: KeyPath, message: str) -> Problem:
        """A problem of `path`, placed."""
        place = self.place(path)
        return Problem(self.file, place.line, place.column, dotted(path), message)


def decode(text: str, file: str, environ: Mapping[str, str], text_keys: frozenset[str] = frozenset()) -> Document:
    """Read one document. Never raises: what cannot be read is in `problems` of the result.

    `environ` fills `${VAR}` and `${VAR:-default}`; `$${` stands for `${`. Keys named in `text_keys` keep unquoted
    numbers and booleans as text (a key made of digits is still a key).
    """
    return _Reading(text, file, environ, text_keys).document()


def resolve(text: str) -> object:
    """The value of an unquoted scalar by the YAML 1.2 core schema, without octal, hexadecimal, infinity and NaN."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= MAX_NUMBER_CHARS and _INT.fullmatch(text):
        return int(text)
    if len(text) <= MAX_NUMBER_CHARS and _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Unreadable(Exception):
    """The rest of the document has no meaning; `problem` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Reading:
    """One pass over the events of one document."""

    def __init__(self, text: str, file: str, environ: Mapping[str, str], text_keys: frozenset[str]) -> None:
        self._text = text
        self._file = file
        self._environ = environ
        self._text_keys = text_keys
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self._places: dict[KeyPath, Place] = {(): Place(1, 1)}
        self._problems: list[Problem] = []
        self._broken: set[KeyPath] = set()
        self._nodes = 0

    def document(self) -> Document:
        """The whole reading. Foreign errors end here."""
        values: object = None
        try:
            values = self._only_document()
        except _Unreadable as error:
            self._problems.append(error.problem)
            self._broken.add(())
        except yaml.YAMLError as error:
            self._problems.append(_syntax_problem(self._file, self._text, error))
            self._broken.add(())
        except (ValueError, OverflowError):  # the scanner's own: "\UFFFFFFFF", %YAML with thousands of digits
            message = "is not YAML: a number in an escape or a directive is out of range; mend: remove it"
            self._problems.append(Problem(self._file, 1, 1, "", message))
            self._broken.add(())
        return Document(self._file, values, self._places, tuple(self._problems), frozenset(self._broken))

    def _only_document(self) -> object:
        next(self._events)  # StreamStart
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        values = self._value((), next(self._events))
        next(self._events)  # DocumentEnd
        more = next(self._events)
        if not isinstance(more, yaml.StreamEndEvent):
            raise _Unreadable(
                self._at(more, (), "is a second document; mend: keep one, and remove the `---` before it")
            )
        return values

    def _value(self, path: KeyPath, event: yaml.Event) -> object:
        self._count(event, len(path))
        if isinstance(event, yaml.AliasEvent):
            self._refused(event, path, "is an alias (*), which is not supported; mend: write the value out")
            return None
        if getattr(event, "anchor", None):
            self._refused(event, path, "has an anchor (&), which is not supported; mend: remove it")
        if getattr(event, "tag", None):
            self._refused(event, path, "has a tag (!), which is not supported; mend: remove it")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path)
        assert isinstance(event, yaml.ScalarEvent)
        return self._scalar(path, event)

    def _count(self, event: yaml.Event, depth: int) -> None:
        """Take one more node, read or skipped. Raises _Unreadable past the limits."""
        if depth > MAX_DEPTH:
            raise _Unreadable(self._at(event, (), "is nested too deep; mend: check the brackets and the indent"))
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"holds more than {MAX_NODES} values, so it is no configuration; mend: check the path"
            raise _Unreadable(self._at(event, (), message))

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            name = self._key(path, key)
            if name is None:
                self._skip(next(self._events))
                continue
            value = self._value((*path, name), next(self._events))
            former = values.get(name)
            if isinstance(former, dict) and isinstance(value, dict):
                value = former | value  # a section given twice: both halves are still checked
            values[name] = value
        return values

    def _key(self, path: KeyPath, event: yaml.Event) -> str | None:
        """The name of the next key, its place noted; None where the entry cannot be used."""
        if not isinstance(event, yaml.ScalarEvent):
            self._problems.append(self._at(event, path, "has a key that is not a name; mend: write `name: value`"))
            self._skip(event)
            return None
        name: str = event.value
        here = (*path, name)
        if name == "<<":
            message = "has a merge key (<<), which is not supported; mend: write the keys out"
            self._problems.append(self._at(event, path, message))
            return None
        if here in self._places:
            message = f"is given twice, first on line {self._places[here].line}; mend: remove one of them"
            self._problems.append(self._at(event, here, message))
        self._places[here] = _place(event)
        return name

    def _list(self, path: KeyPath) -> list[object]:
        values: list[object] = []
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            here = (*path, len(values))
            self._places[here] = _place(item)
            values.append(self._value(here, item))
        return values

    def _scalar(self, path: KeyPath, event: yaml.ScalarEvent) -> object:
        plain = event.style is None
        place = self._places[path]
        self._places[path] = Place(place.line, place.column, event.value, not plain)
        try:
            text = substituted(event.value, self._environ)
        except ValueError as error:
            self._refused(event, path, str(error))
            return None
        if not all(char.isprintable() or char in "\n\t" for char in text):
            self._refused(event, path, "holds characters that cannot be printed; mend: remove them")
            return None
        if not plain or (path and path[-1] in self._text_keys and text not in _WORDS):
            return text
        return resolve(text)

    def _refused(self, event: yaml.Event, path: KeyPath, message: str) -> None:
        self._problems.append(self._at(event, path, message))
        self._broken.add(path)

    def _skip(self, event: yaml.Event) -> None:
        """Pass over one node unread: `event` begins it."""
        depth = 0
        while True:
            self._count(event, depth)
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth == 0:
                return
            event = next(self._events)

    def _at(self, event: yaml.Event, path: KeyPath, message: str) -> Problem:
        place = _place(event)
        return Problem(self._file, place.line, place.column, dotted(path), message)


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    assert mark is not None  # only events made by hand have none
    return Place(mark.line + 1, mark.column + 1)


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Problem:
    """The parser's complaint, placed, with what usually mends it, and without quoting the file."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = str(error.problem or error.context or "it cannot be read")
    else:  # the reader's: a character that no YAML file may hold
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        said = "it holds a control character"
    said = re.sub("(tag handle) .*", r"\1", said)  # the one complaint that quotes a word of the file
    in_flow = "flow" in str(getattr(error, "context", ""))
    return Problem(file, line, column, "", f"is not YAML: {said}; mend: {_syntax_mend(said, in_flow)}")


def _syntax_mend(said: str, in_flow: bool) -> str:
    if r"\t" in said or "control character" in said:
        return "indent with spaces and remove tabs and control characters"
    if "mapping values are not allowed" in said:
        return "check the indent, and quote a value that holds `: `"
    if "could not find expected ':'" in said:
        return "write `key: value`, with a space after the colon"
    if in_flow:
        return "check the brackets and commas, and put quotes around ${...} inside { } and [ ]"
    return "check the indent, quotes and brackets here and just above"
