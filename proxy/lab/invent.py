"""A value for a JSON Schema: made up, valid for the common keywords, always the same. Free text is not made here."""

from collections.abc import Mapping
from typing import Any

# Schemas may refer to themselves; below this depth everything is null.
MAX_DEPTH = 6

_STRING = "made up by an embedded engine"


def invent(schema: Any) -> Any:
    """A value that fits `schema` (a decoded JSON Schema); unknown parts become a short string."""
    return _value(schema, schema if isinstance(schema, dict) else {}, 0)


def _value(schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None if depth > MAX_DEPTH else _STRING
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _value(schema[key][0], root, depth + 1)
    if isinstance(schema.get("$ref"), str):
        return _value(_referred(schema["$ref"], root), root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            properties = schema.get("properties") or {}
            return {name: _value(inner, root, depth + 1) for name, inner in properties.items()}
        case "array":
            count = max(1, int(schema.get("minItems", 1)))
            return [_value(schema.get("items", {}), root, depth + 1) for _ in range(min(count, 8))]
        case "integer" | "number":
            return schema.get("minimum", 7)
        case "boolean":
            return True
        case "null":
            return None
    return _STRING[: int(schema["maxLength"])] if "maxLength" in schema else _STRING


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    place: Any = root
    for step in reference.removeprefix("#/").split("/"):
        place = place.get(step) if isinstance(place, dict) else None
    return place
