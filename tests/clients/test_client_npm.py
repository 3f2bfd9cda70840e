"""The `openai` npm SDK and node's own http work against the proxy as they are. What they do is in openai.mjs."""

import fcntl
import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
INSTALL_WITHIN_S = 120
RUN_WITHIN_S = 60
# What npm says where its registry cannot be reached; any other failure is one.
UNREACHABLE = re.compile(
    r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|network"
)
ROLES = ("speculative", "baseline")


def installed() -> bool:
    """Whether node_modules holds what the lock names."""
    wanted = json.loads((HERE / "package-lock.json").read_text())["packages"]["node_modules/openai"]["version"]
    found = HERE / "node_modules" / "openai" / "package.json"
    return found.exists() and json.loads(found.read_text())["version"] == wanted


@pytest.fixture(scope="session")
def node() -> str:
    """The node binary, with the SDK installed beside this file: once, also where several workers ask for it."""
    binaries = [shutil.which(name) for name in ("node", "npm")]
    if None in binaries:
        pytest.skip("node and npm are not both installed")
    with (HERE / "package-lock.json").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not installed():
            done = subprocess.run(
                [str(binaries[1]), "ci", "--no-audit", "--no-fund"],
                cwd=HERE,
                capture_output=True,
                text=True,
                timeout=INSTALL_WITHIN_S,
                check=False,
            )
            if done.returncode and UNREACHABLE.search(done.stderr):
                pytest.skip("npm cannot reach its registry, and node_modules is not there yet")
            assert done.returncode == 0, done.stderr
    return str(binaries[0])


@pytest.fixture(scope="module")
def seen(node: str, base: str) -> dict[str, Any]:
    """What every scene of openai.mjs saw."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: it refuses
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        done = subprocess.run(
            [node, "openai.mjs", base, dead],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=RUN_WITHIN_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_chat_answers_whole(seen: dict[str, Any]) -> None:
    whole = seen["whole"]
    assert whole["text"]
    assert whole["usage"]["completion_tokens"] <= 12
    assert whole["backend"] in ROLES
    assert whole["requestId"]


def test_chat_streams_and_ends_with_usage(seen: dict[str, Any]) -> None:
    streamed = seen["streamed"]
    assert streamed["text"]
    assert streamed["finish"] in ("stop", "length")
    assert streamed["usage"]["completion_tokens"] > 0


def test_two_choices_come_whole_and_streamed(seen: dict[str, Any]) -> None:
    assert seen["two"]["choices"] == 2
    assert all(seen["two"]["texts"])


def test_tools_are_called_whole_and_streamed(seen: dict[str, Any]) -> None:
    assert seen["tools"] == [{"finish": "tool_calls", "name": "find_weather", "asked": ["city", "days"]}] * 2


def test_the_other_routes_answer(seen: dict[str, Any]) -> None:
    others = seen["others"]
    assert others["listed"] == others["retrieved"]
    assert others["embeddings"] == 2
    assert others["completion"]
    assert others["answer"]


def test_leaving_a_stream_leaves_the_client_usable(seen: dict[str, Any]) -> None:
    assert seen["leaving"] == 1


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("bad", "BadRequestError", 400),
        ("unknown", "NotFoundError", 404),
        ("denied", "PermissionDeniedError", 403),
        ("busy", "RateLimitError", 429),
        ("failed", "InternalServerError", 500),
        ("broken", "InternalServerError", 502),
        ("full", "InternalServerError", 503),
        ("alone", "APIConnectionError", None),
    ],
)
def test_each_error_comes_as_its_class(seen: dict[str, Any], name: str, kind: str, status: int | None) -> None:
    error = seen["errors"][name]
    assert (error["kind"], error["status"]) == (kind, status)


def test_an_engine_that_dies_in_a_stream_is_an_api_error(seen: dict[str, Any]) -> None:
    assert seen["errors"]["died"]["kind"] == "APIError"


def test_nodes_own_http_takes_a_stream_for_complete_only_when_it_is(seen: dict[str, Any]) -> None:
    whole, died, cut = (seen["plain"][name] for name in ("whole", "died", "cut"))
    assert whole["complete"]
    assert whole["text"].endswith("data: [DONE]\n\n")
    assert not died["complete"]
    assert json.loads(died["text"].rstrip().rpartition("data: ")[2])["error"]["code"] == 502
    assert "[DONE]" not in died["text"]
    assert not cut["complete"]


def test_nodes_own_http_gets_heads_and_refusals(seen: dict[str, Any]) -> None:
    head, options = seen["plain"]["head"], seen["plain"]["options"]
    assert (head["status"], head["text"]) == (200, "")
    assert int(head["headers"]["content-length"]) > 0
    assert (options["status"], options["headers"]["allow"]) == (405, "POST")
    assert json.loads(options["text"])["error"]["code"] == "method_not_allowed"


def test_the_lock_names_no_host() -> None:
    assert not re.search(r"https?:|resolved", (HERE / "package-lock.json").read_text())
