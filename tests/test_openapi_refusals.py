"""The schemas of the proxy's errors are what protocol/dialects.py writes, and every error is told of."""

from typing import Any

import orjson
import pytest

from proxy.errors import CrossoverError, MethodNotAllowed
from proxy.model import Dialect
from proxy.openapi import refusals
from proxy.protocol.dialects import error_body

KINDS = refusals.kinds()


def keys(schema: dict[str, Any]) -> Any:
    """The keys of a schema's object, and of those inside."""
    named: dict[str, Any] = schema.get("properties", {})
    return {name: keys(each) for name, each in named.items()} or None


def keys_of(value: Any) -> Any:
    return {name: keys_of(each) for name, each in value.items()} if isinstance(value, dict) else None


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_has_the_keys_of_its_schema(kind: type[CrossoverError], dialect: Dialect) -> None:
    body = orjson.loads(error_body(kind("what to do"), dialect))
    shape = refusals.named(dialect, locked=True)["413"]["$ref"].rpartition("/")[2].removesuffix("413")
    assert keys_of(body) == keys(refusals.shapes()[shape])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_an_error_is_told_of_under_its_status_and_its_code_is_known(kind: type[CrossoverError]) -> None:
    told = refusals.shapes()["OpenAIError"]["properties"]["error"]["properties"]
    assert kind.code in told["code"]["enum"]
    assert kind.error_type in told["type"]["enum"]
    if kind is not MethodNotAllowed:
        assert f"`{kind.code}`: {(kind.__doc__ or '').split()[0]}" in told_under(kind.status)


def told_under(status: int) -> str:
    said: str = refusals.answers()[f"OpenAIError{status}"]["description"]
    return said
