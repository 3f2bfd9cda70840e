"""The document of the operators' port tells of every path that its router serves, and of no other."""

import pytest
from fakes.engine import FakeEngine
from fakes.proxy import running, settings
from fakes.raw import ask, request
from fakes.stage import staged

from proxy.admin import Admin, served
from proxy.openapi import operators_document
from proxy.openapi.operators import described


async def paths() -> set[tuple[str, str]]:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        return served(Admin(app).application())


async def test_every_path_that_is_served_has_words() -> None:
    assert await paths() <= described()


async def test_nothing_else_has_words() -> None:
    assert described() <= await paths()


async def test_a_document_tells_of_what_is_served_alone() -> None:
    told = operators_document({("GET", "/status"), ("POST", "/pin"), ("GET", "/nobody/knows")}, locked=False)
    assert {(method.upper(), path) for path, item in told["paths"].items() for method in item} == {
        ("GET", "/status"),
        ("HEAD", "/status"),
        ("POST", "/pin"),
    }


@pytest.mark.parametrize("locked", [True, False])
async def test_every_refusal_is_told_of(locked: bool) -> None:
    told = operators_document(await paths(), locked=locked)["paths"]
    for path, item in told.items():
        assert ("head" in item) == ("get" in item and path != "/stream"), path
        for operation in (item[method] for method in ("get", "post") if method in item):
            assert ("403" in operation["responses"]) == (path != "/health"), path
            assert ("421" in operation["responses"]) == (not locked and path not in ("/health", "/metrics")), path
            assert ("413" in operation["responses"]) == ("requestBody" in operation), path
    assert told["/health"]["head"]["security"] == []


async def test_head_is_answered_where_it_is_told_of() -> None:
    async with staged() as stage:
        for path in sorted(operators_document(await paths(), locked=False)["paths"]):
            said = await ask(stage.app.admin_port, request(path, method="HEAD"), bodiless=True)
            expected = {"/stream": 405, "/explain/{request_id}": 404, "/web/{name}": 404}.get(path, 200)
            assert said.status == (405 if path in ("/pin", "/drain", "/reload") else expected), path


@pytest.mark.parametrize("locked", [True, False])
def test_a_token_is_told_of_where_one_is_asked_for(locked: bool) -> None:
    told = operators_document({("GET", "/status"), ("GET", "/health")}, locked=locked)
    assert ("security" in told) == locked
    assert ("401" in told["paths"]["/status"]["get"]["responses"]) == locked
    assert "401" not in told["paths"]["/health"]["get"]["responses"]
    assert told["paths"]["/health"]["get"]["security"] == []


def test_what_an_operator_sends_has_no_other_keys() -> None:
    told = operators_document({("POST", "/drain")}, locked=False)
    body = told["paths"]["/drain"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], body["additionalProperties"]) == (["role"], False)
