"""What each key may hold, read from the settings models: as JSON Schema for editors, in words for messages and docs.

The models are in settings.py, routing_keys.py and traces_keys.py; wording what is wrong with a value is in mends.py.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from itertools import pairwise
from typing import Any

from proxy.config import routing_keys, settings, traces_keys
from proxy.config.problems import KeyPath
from proxy.config.sections import WORDS
from proxy.config.settings import Settings

Schema = Mapping[str, Any]

_MEASURES = {
    "_bytes_per_s": "a whole number of bytes a second",
    "_s": "a number of seconds",
    "_bytes": "a whole number of bytes",
}
_KINDS = {
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "integer": "a whole number",
    "number": "a number",
}
# A number or a word may come from the environment, so editors must not mark the variable as a mistake.
_SUBSTITUTION = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}


@cache
def raw_schema() -> dict[str, Any]:
    """pydantic's own JSON Schema of the settings, with the meaning of each key. Shared: not to be changed."""
    bare = Settings.model_json_schema()
    for section, meanings in _meanings().items():
        keys = (bare if section == Settings.__name__ else bare["$defs"][section])["properties"]
        for name, meaning in meanings.items():
            keys[name]["description"] = meaning
    return bare


def _meanings() -> dict[str, dict[str, str]]:
    """The text under each key by its section. pydantic would read the source of every section for it at every start,
    and no start needs it."""
    bodies = [ast.parse(inspect.getsource(module)).body for module in (settings, routing_keys, traces_keys)]
    sections = [each for body in bodies for each in body if isinstance(each, ast.ClassDef)]
    found = {each.name: dict(_texts_under(each)) for each in sections}
    return {section: meanings for section, meanings in found.items() if meanings}


def _texts_under(section: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for key, text in pairwise(section.body):
        match key, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                yield name, inspect.cleandoc(meaning)


def schema() -> dict[str, Any]:
    """The JSON Schema to publish: the settings' own, with `${VARIABLE}` allowed wherever a scalar may stand."""
    published = deepcopy(raw_schema())
    for section in (published, *published["$defs"].values()):
        section.pop("title", None)
        section["description"] = description(section)
        keys = section.get("properties", {})
        section.update({"properties": {name: _editable(key) for name, key in keys.items()}} if keys else {})
    learn = published["$defs"]["Routing"]["properties"]["learn"]
    learn["anyOf"] = [{"$ref": learn.pop("$ref")}, {"type": "boolean"}]  # the one section with a short form
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Crossover settings", **published}


def schema_at(path: KeyPath, root: Schema | None = None) -> Schema | None:
    """The schema of one key, its reference resolved; None where there is no such key. `root` is another file's schema
    than that of the settings."""
    root = raw_schema() if root is None else root
    here: Schema | None = root
    for part in path:
        assert here is not None
        inner = here.get("items") if isinstance(part, int) else here.get("properties", {}).get(part)
        here = _resolved(inner, root) if inner is not None else None
        if here is None:
            return None
    return here


def key_paths(path: KeyPath = (), root: Schema | None = None) -> Iterator[KeyPath]:
    """The path of each key that is no section, in the order of the file; a list counts as one key."""
    for name in (schema_at(path, root) or {}).get("properties", {}):
        inner = tuple(key_paths((*path, name), root))
        yield from inner or ((*path, name),)


def kind(path: KeyPath, schema: Schema) -> str:
    """What a key holds, without its range, in words: `a whole number of bytes`, `one of json, text`."""
    if WORDS in schema:
        return str(schema[WORDS])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(kind(path, one) for one in schema["anyOf"] if one["type"] != "null")
    if schema["type"] in ("integer", "number"):
        return next((words for end, words in _MEASURES.items() if str(path[-1]).endswith(end)), _KINDS[schema["type"]])
    return _KINDS.get(schema["type"], "null")


def span(schema: Schema) -> str | None:
    """The range of a number in words: `1 to 100`, `auto or 1 to 100000`; None for what has no range."""
    if "anyOf" in schema:
        spans = [one["const"] if "const" in one else span(one) for one in schema["anyOf"]]
        return " or ".join(one for one in spans if one) or None
    if "maximum" not in schema:
        return None
    if "exclusiveMinimum" in schema:
        return f"above {schema['exclusiveMinimum']:g}, up to {plain(schema['maximum'])}"
    return f"{plain(schema['minimum'])} to {plain(schema['maximum'])}"


def plain(number: float) -> str:
    """A number as people write it: whole ones with all their digits."""
    return str(int(number)) if float(number).is_integer() else f"{number:.12g}"


def allowed(path: KeyPath, schema: Schema) -> str:
    """All that a key may hold, in words: `a number of seconds, 0 to 600`, `auto or a whole number, 1 to 9`."""
    alternatives = schema.get("anyOf", [schema])
    return " or ".join(", ".join(filter(None, (kind(path, one), span(one)))) for one in alternatives)


def description(schema: Schema) -> str:
    """The meaning of a key or a section on one line."""
    return " ".join(schema["description"].split())


def _resolved(schema: Schema, root: Schema) -> Schema:
    """The schema with its reference looked up, also where null may stand instead of a section."""
    for one in schema.get("anyOf", ()):
        if "$ref" in one:
            schema = {name: part for name, part in schema.items() if name != "anyOf"} | one
    if "$ref" not in schema:
        return schema
    return {**root["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}


def _editable(schema: Schema) -> dict[str, Any]:
    """One key's schema with the substitution as an alternative; its description and default stay outside."""
    outer = {name: schema[name] for name in ("description", "default", "examples") if name in schema}
    if "description" in outer:
        outer["description"] = description(outer)
    inner = {name: part for name, part in schema.items() if name not in (*outer, "title", WORDS)}
    if "items" in inner:
        inner["items"] = {name: part for name, part in inner["items"].items() if name != WORDS}
    if "anyOf" in inner:
        inner["anyOf"] = [{name: part for name, part in one.items() if name != WORDS} for one in inner["anyOf"]]
    alternatives = [_resolved(one, raw_schema()) for one in inner.get("anyOf", [inner])]
    if any(one["type"] in ("object", "array", "string") and not {"enum", "const"} & one.keys() for one in alternatives):
        return outer | inner
    return outer | {"anyOf": [*inner.get("anyOf", [inner]), _SUBSTITUTION]}
