"""The document of the clients' port tells of the rows of the allow-list that all engines have, and of health paths."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.openapi import clients_document, operators_document
from proxy.openapi.operators import described
from proxy.protocol.allowlist import LIVENESS_PATHS, READINESS_PATHS, ROUTES, EngineKind

OWN = {(method, path) for path in LIVENESS_PATHS | READINESS_PATHS for method in ("GET", "HEAD")}


def told_of(document: dict[str, Any]) -> set[tuple[str, str]]:
    items = document["paths"].items()
    return {(method.upper(), path) for path, item in items for method in item if method != "parameters"}


def rows(engine: EngineKind) -> set[tuple[str, str]]:
    return {(method, row.template.replace(":path", "")) for row in ROUTES[engine] for method in row.methods}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if "$ref" in value else [])
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


@pytest.mark.parametrize("engine", EngineKind)
def test_every_row_of_an_engine_is_told_of_with_its_methods(engine: EngineKind) -> None:
    assert told_of(clients_document((engine,), locked=False)) == rows(engine) | OWN


def test_of_two_kinds_of_engines_only_what_both_have() -> None:
    pair = (EngineKind.LLAMACPP, EngineKind.SGLANG)
    assert told_of(clients_document(pair, locked=False)) == (rows(pair[0]) & rows(pair[1])) | OWN


@pytest.mark.parametrize("locked", [True, False])
def test_a_key_is_told_of_where_one_is_asked_for_and_never_for_health(locked: bool) -> None:
    told = clients_document((EngineKind.OPENAI,), locked=locked)
    assert ("security" in told) == locked
    assert ("401" in told["paths"]["/v1/chat/completions"]["post"]["responses"]) == locked
    assert told["paths"]["/health"]["get"]["security"] == []


def test_a_head_has_no_body_to_tell_of() -> None:
    told = clients_document((EngineKind.SGLANG,), locked=True)
    heads = [item["head"] for item in told["paths"].values() if "head" in item]
    assert heads
    assert not [answer for head in heads for answer in head["responses"].values() if "content" in answer]


@pytest.mark.parametrize(
    "document",
    [clients_document(tuple(EngineKind), locked=True), operators_document(described(), locked=True)],
    ids=["clients", "operators"],
)
def test_whatever_a_document_refers_to_is_in_it(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        value = document
        for name in reference.removeprefix("#/").split("/"):
            value = value[name]
        assert value
