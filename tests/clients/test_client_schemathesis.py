"""schemathesis finds nothing on either port that its OpenAPI document does not say. What is checked besides is in
schema_checks.py.

The documents are made strict before: a key that no schema names is a mistake here, and none to clients.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fakes.environments import installed
from fakes.keys import key_of, write_keys
from fakes.proxy import running, settings

from proxy.app import App
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import Role

HERE = Path(__file__).resolve().parent
# A run takes ten seconds on an idle machine.
RUN_WITHIN_S = 240
TOKEN = "operators-token-of-a-test-0123456789"
# A thousand times faster than life; the embedded health probe answers at once.
QUICK = {"time_scale": 0.001, "health_latency_s": 0.0}
# The same requests in every run.
SAME = ("--generation-deterministic", "--phases", "coverage,fuzzing")
# Of each form that the proxy's own errors have, a path.
ONE_OF_EACH_SHAPE = ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/models", "/health")
# What a body has to be the engines say, each in its way.
ENGINES_OWN = "negative_data_rejection,positive_data_acceptance"


@contextlib.asynccontextmanager
async def locked(keys: Path) -> AsyncIterator[tuple[App, list[EmbeddedEngine]]]:
    """A proxy in front of two embedded engines, with a client key and a token."""
    engines = [EmbeddedEngine(EngineOptions(role=role, **QUICK)) for role in Role]
    for engine in engines:
        await engine.start()
    listen = {"host": "127.0.0.1", "port": 0, "api_keys_file": str(write_keys(keys, ["tester"]))}
    admin = {"port": 0, "token": TOKEN}
    try:
        async with running(settings(engines[0].url, engines[1].url, listen=listen, admin=admin)) as app:
            yield app, engines
    finally:
        for engine in engines:
            await engine.stop()


async def document(app: App, path: str) -> dict[str, Any]:
    """One of the two documents as the operators' port hands it out, made strict, one path of each kind."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"http://127.0.0.1:{app.admin_port}{path}") as answer,
    ):
        told: dict[str, Any] = await answer.json()
    for schema in records(told):
        schema.setdefault("additionalProperties", False)
    # Paths that the document says the same of are rows of one kind: one of them tells, and all would take a minute.
    kinds = {json.dumps(each): path for path, each in reversed(told["paths"].items())}
    told["paths"] = {path: each for path, each in told["paths"].items() if path in kinds.values()}
    return told


def records(value: Any) -> Iterator[dict[str, Any]]:
    """Every object schema with named keys, but for those of bodies that the engines read."""
    if isinstance(value, dict):
        if value.get("type") == "object" and "properties" in value and "is read of it" not in value["description"]:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from records(each)


async def schemathesis(told: dict[str, Any], folder: Path, port: int, *options: str) -> str:
    """Run it on a document against a port; what it said where it found something, else nothing."""
    written = folder / "document.json"
    written.write_text(json.dumps(told))
    run = await asyncio.create_subprocess_exec(
        str(await asyncio.to_thread(installed, "clients") / "bin" / "st"),
        *("run", str(written), "--url", f"http://127.0.0.1:{port}", "--no-color", "--warnings", "off", *SAME, *options),
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "schema_checks", "PYTHONPATH": str(HERE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await asyncio.wait_for(run.communicate(), RUN_WITHIN_S)
    finally:
        if run.returncode is None:
            run.kill()
            await run.wait()
    return "" if run.returncode == 0 else said.decode()


async def test_the_clients_port_does_as_its_document_says(tmp_path: Path) -> None:
    async with locked(tmp_path / "keys") as (app, _):
        told = await document(app, "/openapi/clients.json")
        keyed = (
            "-H",
            f"Authorization: Bearer {key_of('tester')}",
            "--exclude-checks",
            ENGINES_OWN,
            "--max-examples",
            "3",
        )
        found = await schemathesis(told, tmp_path, app.port, *keyed)
    assert not found, found


async def test_the_clients_port_does_as_its_document_says_when_no_engine_lives(tmp_path: Path) -> None:
    async with locked(tmp_path / "keys") as (app, engines):
        told = await document(app, "/openapi/clients.json")
        for engine in engines:
            await engine.stop()
        told["paths"] = {path: told["paths"][path] for path in ONE_OF_EACH_SHAPE}
        keyed = ("-H", f"Authorization: Bearer {key_of('tester')}", "--max-examples", "2", "--phases", "fuzzing")
        checks = ("--exclude-checks", f"not_a_server_error,{ENGINES_OWN}")
        found = await schemathesis(told, tmp_path, app.port, *keyed, *checks)
    assert not found, found


async def test_the_operators_port_does_as_its_document_says(tmp_path: Path) -> None:
    async with locked(tmp_path / "keys") as (app, _):
        told = await document(app, "/openapi.json")
        told["paths"].pop("/stream", None)  # which has no end
        said = ("-H", f"Authorization: Bearer {TOKEN}", "--max-examples", "5")
        found = await schemathesis(told, tmp_path, app.admin_port, *said)
    assert not found, found


@pytest.mark.parametrize("path", ["/openapi.json", "/openapi/clients.json"])
async def test_no_document_holds_a_key(path: str, tmp_path: Path) -> None:
    async with locked(tmp_path / "keys") as (app, _):
        told = json.dumps(await document(app, path))
    assert TOKEN not in told
    assert key_of("tester") not in told
