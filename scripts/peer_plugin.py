"""A pytest plugin under which other projects' tests run against any address, and that writes down what came of each.

Runs in .venv-peers, so it imports the standard library and what those tests need. What they would start, or import of
their own project, is replaced by stand-ins: vLLM's RemoteOpenAIServer and sglang-router's fixtures point at TARGET.
Not here: which tests (peer_suites.py).
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

TARGET = os.environ.get("TARGET", "").rstrip("/")
MODEL = os.environ.get("TARGET_MODEL", "")
OUTCOMES = Path(os.environ.get("OUTCOMES", "outcomes.json"))
# Packages that the tests name and that weigh gigabytes, or start engines.
ABSENT = ("vllm", "torch", "smg_client", "transformers")
WITHIN_S = 120.0
MARKERS = (
    "engine gpu model gateway workers e2e slow skip_for_runtime nightly vendor thread_unsafe skip_for_backend serial"
)

_outcomes: dict[str, str] = {}


class _Nothing(Exception):
    """What can be made, called, asked for any attribute, raised and caught, and does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> "_Nothing":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "_Nothing":
        return self


class _Anything(types.ModuleType):
    """A module that has every name: a class of its own that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (_Nothing,), {})


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages that are not there."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _renamed(request: httpx.Request) -> None:
    """Ask for the model that is served: these tests name their own."""
    try:
        body = json.loads(request.content)
    except ValueError:
        return
    if not isinstance(body, dict) or "model" not in body:
        return
    content = json.dumps(body | {"model": MODEL}).encode()
    request.stream, request._content = httpx.ByteStream(content), content
    request.headers["content-length"] = str(len(content))


async def _renamed_later(request: httpx.Request) -> None:
    _renamed(request)


class RemoteOpenAIServer:
    """In place of vLLM's: starts nothing, and is at TARGET."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, *_: object, **__: object) -> None:
        self.url_root = TARGET
        self.host, self.port = TARGET.removeprefix("http://").split(":")

    def __enter__(self) -> "RemoteOpenAIServer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def url_for(self, *parts: str) -> str:
        return "/".join((self.url_root, *parts))

    def get_client(self, **more: Any) -> openai.OpenAI:
        asking = httpx.Client(event_hooks={"request": [_renamed]}, timeout=WITHIN_S)
        return openai.OpenAI(base_url=self.url_for("v1"), api_key="x", max_retries=0, http_client=asking, **more)

    def get_async_client(self, **more: Any) -> openai.AsyncOpenAI:
        asking = httpx.AsyncClient(event_hooks={"request": [_renamed_later]}, timeout=WITHIN_S)
        return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key="x", max_retries=0, http_client=asking, **more)


@pytest.fixture(scope="class")
def setup_backend(request: pytest.FixtureRequest) -> tuple[str, str, openai.OpenAI, types.SimpleNamespace]:
    """In place of sglang-router's: backend, model, client and gateway."""
    client = openai.OpenAI(base_url=f"{TARGET}/v1", api_key="x", max_retries=0, timeout=WITHIN_S)
    return getattr(request, "param", "http"), MODEL, client, types.SimpleNamespace(base_url=TARGET)


def pytest_configure(config: pytest.Config) -> None:
    """Put the stand-ins where the tests look for them, before they are read."""
    for marker in MARKERS.split():
        config.addinivalue_line("markers", f"{marker}: of another project")
    sys.meta_path.append(_Absent())
    tests, utils = types.ModuleType("tests"), types.ModuleType("tests.utils")
    utils.__dict__.update(RemoteOpenAIServer=RemoteOpenAIServer, VLLM_PATH=Path())
    sys.modules.update({"tests": tests, "tests.utils": utils})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst word on each test, and where one failed: at another place it is another failure."""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _outcomes[report.nodeid] = "failed" if crash is None else f"failed at {Path(crash.path).name}:{crash.lineno}"
    elif report.when == "call" or report.skipped:
        _outcomes.setdefault(report.nodeid, report.outcome)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish() -> Iterator[None]:
    """Write down what came of each."""
    yield
    OUTCOMES.write_text(json.dumps(_outcomes, indent=1, sort_keys=True))
