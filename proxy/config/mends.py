"""What the schema refused, worded: what must be there, what is there, what is allowed, and the mend.

Values are quoted only where they look like a number or a single word: anything else may be a secret in the wrong
place. Reading YAML is not here (yaml_nodes.py), nor keys that contradict each other (conflicts.py).
"""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.config.problems import KeyPath, Problem, dotted
from proxy.config.reference import Schema, key_paths, kind, schema_at, span
from proxy.config.settings import EXAMPLE_URLS
from proxy.config.yaml_nodes import Document, Place, resolve
from proxy.model import Role

# Each unknown key costs a search for the nearest name, and the operator is shown a hundred problems.
MAX_FAULTS = 1000

_QUANTITY = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z%]{1,7})\s*")
_SECONDS: dict[str, float] = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "seconds": 1,
    "m": 60,
    "min": 60,
    "minutes": 60,
    "h": 3600,
    "hours": 3600,
}
_BYTES: dict[str, float] = {
    "b": 1,
    "k": 1 << 10,
    "kb": 10**3,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 10**6,
    "mib": 1 << 20,
}
_BYTES |= {"g": 1 << 30, "gb": 10**9, "gib": 1 << 30}
_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
# How other servers call what this one has not: several processes, each of which would count its own requests alone.
_PROCESSES = frozenset({"workers", "worker", "num_workers", "processes", "num_processes", "threads", "replicas"})
_UNIT_ENDING = re.compile(r"_(ms|millis|s|secs?|seconds|m|min|minutes|bytes|kb|kib|mb|mib)$")
_SHOWN = re.compile(r"[-+]?[0-9][0-9._:]{0,15} ?[A-Za-z%]{0,7}|[A-Za-z_]{1,20}")
_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _Fault:
    """One refused value: where, what was read there, how it was written, what may be there."""

    path: KeyPath
    value: Any
    place: Place
    schema: Schema

    @property
    def name(self) -> str:
        return str(self.path[-1]) if self.path else ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The JSON types that are allowed, of all alternatives."""
        return tuple(one["type"] for one in self.schema.get("anyOf", [self.schema]))

    @property
    def words(self) -> tuple[str, ...]:
        """The words that are allowed, of all alternatives."""
        alternatives = self.schema.get("anyOf", [self.schema])
        return (*self.schema.get("enum", ()), *(one["const"] for one in alternatives if "const" in one))


def schema_problems(
    error: ValidationError, document: Document, root: Schema | None = None
) -> Iterator[tuple[KeyPath, Problem]]:
    """Each refused key once, as (path, problem), leaving out what the document already calls broken. `root` is the
    schema of the file, where it is not the settings'."""
    seen: set[KeyPath] = set()
    for fault in error.errors(include_url=False):
        path = _key_path(fault, root)
        half_read = fault["type"] == "value_error" and any(one[: len(path)] == path for one in document.broken)
        if path not in seen and not half_read and not document.is_broken(path):
            seen.add(path)
            message = _message(fault, path, document, root) if len(seen) <= MAX_FAULTS else "is refused too"
            yield path, document.problem(path, message)


def _key_path(fault: ErrorDetails, root: Schema | None) -> KeyPath:
    """The part of the location that is a path in the file: for unions the member that failed is appended to it."""
    path = fault["loc"]
    if fault["type"] == "extra_forbidden":
        return path
    while schema_at(path, root) is None:
        path = path[:-1]
    return path


def _message(error: ErrorDetails, path: KeyPath, document: Document, root: Schema | None) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown(path, document, root)
    fault = _Fault(path, error["input"], document.place(path), schema_at(path, root) or {})
    if error["type"] == "missing":
        return f"is required; mend: add `{fault.name}: {_example(fault)}`"
    if error["type"] == "value_error":  # one of our validators: its message is whole
        return str(error["ctx"]["error"])
    allowed = span(fault.schema)
    parts = (
        f"must be {kind(path, fault.schema)}, not {_seen(fault)}",
        f"allowed: {allowed}" if allowed else "",
        f"mend: {_mend(fault)}",
    )
    return "; ".join(part for part in parts if part)


# ---------------------------------------------------------------- keys that do not exist


def _unknown(path: KeyPath, document: Document, root: Schema | None) -> str:
    siblings = tuple((schema_at(path[:-1], root) or {}).get("properties", {}))
    return f"is not a key here; allowed: {', '.join(siblings)}; mend: {_unknown_mend(path, siblings, document, root)}"


def _unknown_mend(path: KeyPath, siblings: tuple[str, ...], document: Document, root: Schema | None) -> str:
    name = str(path[-1])
    if name.partition(":")[0] in siblings:
        return "write a space after the colon"
    if name.lower() in _PROCESSES:
        return (
            "remove it; one process serves a pair of engines, since of several each counts its own requests alone and "
            "together they send an engine too many; for more engines start a Crossover for each pair, on its own ports"
        )
    near = _nearest(name, siblings)
    if near:
        return _meant((*path[:-1], near), near, document)
    elsewhere = [one for one in key_paths((), root) if one[-1] == name]
    if elsewhere:
        return _meant(elsewhere[0], dotted(elsewhere[0]), document, "? Check the section and the indent")
    return "remove it, or check its spelling"


def _meant(path: KeyPath, name: str, document: Document, end: str = "?") -> str:
    """The key that was probably meant; where the file has that one too, this one is too many."""
    return f"remove it; {name} is in the file already" if path in document.places else f"did you mean {name}{end}"


def _nearest(name: str, siblings: tuple[str, ...]) -> str | None:
    stem = _UNIT_ENDING.sub("", name.lower().replace("-", "_"))
    same = [key for key in siblings if _UNIT_ENDING.sub("", key) == stem]
    return next(iter(same or difflib.get_close_matches(name[:40].lower(), siblings, n=1)), None)


# ---------------------------------------------------------------- values that may not be there


def _seen(fault: _Fault) -> str:
    """The value as far as it may be shown."""
    names = {dict: "a mapping", list: "a list", tuple: "a list", type(None): "nothing", bool: str(fault.value).lower()}
    if type(fault.value) in names:
        return names[type(fault.value)]
    if variable := _VARIABLE.search(fault.place.written or ""):
        return f"the value of {variable[0]}}}"
    text = str(fault.value)[:40]
    if not text:
        return "empty text"
    if "password" in str(fault.schema) or not _SHOWN.fullmatch(text):
        return "what is there"
    return f'the text "{text}"' if isinstance(fault.value, str) else text


def _mend(fault: _Fault) -> str:
    if _VARIABLE.search(fault.place.written or ""):
        return "set the variable to such a value"
    if "object" in fault.kinds:
        return f"write its keys below it, indented: {', '.join(fault.schema.get('properties', ()))}"
    if "array" in fault.kinds:
        return f"write a list below it, each entry begun with a dash, or `{fault.name}: []`"
    return _text_mend(fault, fault.value.strip()) if isinstance(fault.value, str) else _plain_mend(fault)


def _plain_mend(fault: _Fault) -> str:
    """The mend where a number, a boolean, nothing or a collection was found and something else is wanted."""
    if fault.value is None:
        return f"give it a value, such as `{fault.name}: {_example(fault)}`, or remove the key"
    if "integer" in fault.kinds and isinstance(fault.value, float) and abs(fault.value) < 1e15:
        return f"write a whole number, such as {round(fault.value)}"
    if isinstance(fault.value, dict | list | tuple):
        return f"write one value, such as `{fault.name}: {_example(fault)}`"
    if "string" in fault.kinds and not fault.words:
        return "put it in quotes"
    return f"write `{fault.name}: {_example(fault)}` or the like"


def _text_mend(fault: _Fault, text: str) -> str:
    """The mend where text was found and something else is wanted: a unit, quotes, a spelling."""
    near = difflib.get_close_matches(text[:40].lower(), fault.words, n=1)
    if near:
        return f"did you mean {near[0]}?"
    if "boolean" in fault.kinds:
        lower = text.lower()
        known = _BOOLEANS.get(lower) or (lower if lower in ("true", "false") else "true or false")
        return f"write {known}, without quotes"
    if {"integer", "number"} & set(fault.kinds):
        return _number_mend(fault, text)
    return (
        f"write {' or '.join(fault.words)}" if fault.words else f"write `{fault.name}: {_example(fault)}` or the like"
    )


def _number_mend(fault: _Fault, text: str) -> str:
    quantity = _QUANTITY.fullmatch(text)
    units = _units(fault.name)
    if quantity and quantity[2].lower() in units:
        amount = float(quantity[1]) * units[quantity[2].lower()]
        measure = (
            "seconds as a number"
            if units is _SECONDS
            else "bytes as a number"
            if units is _BYTES
            else "the number alone"
        )
        return f"write {measure}: `{fault.name}: {amount:.12g}`"
    digits = text.replace("_", "").replace(",", "").lstrip("0") or "0"
    if isinstance(number := resolve(digits), int | float) and not isinstance(number, bool):
        how = "it without quotes" if digits == text else "the digits alone"
        return f"write {how}: `{fault.name}: {digits}`" if _SHOWN.fullmatch(digits) else f"write {how}"
    return f"write a number, such as `{fault.name}: {_example(fault)}`"


def _units(name: str) -> dict[str, float]:
    if name.endswith(("_bytes", "_bytes_per_s")):
        return _BYTES
    return _SECONDS if name.endswith("_s") else {"%": 0.01}


def _example(fault: _Fault) -> str:
    """A value that would do: the default, the example, or the first word of a closed set."""
    if fault.name == "url" and fault.path[-2] in EXAMPLE_URLS:
        return EXAMPLE_URLS[Role(fault.path[-2])]
    default = fault.schema.get("default")
    if default is not None:
        return (
            str(default).lower()
            if isinstance(default, bool)
            else f"{default:.12g}"
            if isinstance(default, float)
            else str(default)
        )
    if "array" in fault.kinds:
        return "[...]"
    return fault.words[0] if fault.words else "1" if {"integer", "number"} & set(fault.kinds) else "text"
