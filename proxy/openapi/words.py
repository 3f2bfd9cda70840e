"""The words that both documents are written in: schemas of single values, objects of them, answers.

Not here: any path (clients.py, operators.py), and the objects themselves.
"""

from collections.abc import Iterable
from typing import Any

from proxy import __version__

Schema = dict[str, Any]
JSON = "application/json"
OPENAPI = "3.1.0"


def text(meaning: str, words: Iterable[str] = ()) -> Schema:
    """A string, one of `words` where there are any."""
    named = [str(word) for word in words]
    return {"type": "string", "description": meaning} | ({"enum": named} if named else {})


def whole(meaning: str, *, least: int = 0) -> Schema:
    """A whole number."""
    return {"type": "integer", "minimum": least, "description": meaning}


def number(meaning: str) -> Schema:
    """Any number."""
    return {"type": "number", "description": meaning}


def flag(meaning: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": meaning}


def maybe(schema: Schema) -> Schema:
    """The same, or null."""
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    named = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return schema | {"type": [schema["type"], "null"]} | named


def many(of: Schema, meaning: str = "") -> Schema:
    """A list."""
    return {"type": "array", "items": of} | ({"description": meaning} if meaning else {})


def by_name(of: Schema, meaning: str) -> Schema:
    """An object whose keys are not known before."""
    return {"type": "object", "additionalProperties": of, "description": meaning}


def record(meaning: str, *, absent: Iterable[str] = (), **named: Schema) -> Schema:
    """An object with these keys, all of them there but those that may be `absent`. Later versions may add keys."""
    left = set(absent)
    required = [name for name in named if name not in left]
    return {"type": "object", "description": meaning, "required": required, "properties": named}


def ref(name: str) -> Schema:
    """One of the document's own schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def answer(meaning: str, content: Schema | None = None, headers: Schema | None = None, kind: str = JSON) -> Schema:
    """One answer; `content` is the schema of a body of `kind`."""
    told: Schema = {"description": meaning}
    if headers:
        told["headers"] = headers
    if content is not None:
        told["content"] = {kind: {"schema": content}}
    return told


def header(meaning: str, *, required: bool = True, words: Iterable[str] = ()) -> Schema:
    """A field of an answer's head."""
    return {"description": meaning, "required": required, "schema": text(meaning, words)}


def document(title: str, meaning: str, paths: Schema, schemas: Schema, keys: Schema, *, locked: bool) -> Schema:
    """A whole document. `keys` are the security schemes, any of which opens the port where it is `locked`."""
    whole_port: Schema = {"security": [{name: []} for name in keys]} if locked else {}
    return {
        "openapi": OPENAPI,
        "info": {"title": title, "version": __version__, "description": meaning, "license": {"name": "Apache-2.0"}},
        **whole_port,
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": keys},
    }
