"""The `anthropic` SDK, langchain-openai and litellm work against the proxy as they are. What they do is in sdks.py."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.environments import installed

HERE = Path(__file__).resolve().parent
# They take half a minute to import on a busy machine, and the first time some minutes to be compiled.
RUN_WITHIN_S = 240
# Nobody but the proxy is to be asked.
QUIET = {"LANGSMITH_TRACING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@pytest.fixture(scope="module", params=["anthropic", "langchain", "litellm"])
def seen(request: pytest.FixtureRequest, base: str) -> dict[str, Any]:
    """What one SDK saw in every scene."""
    python = installed("clients") / "bin" / "python"
    done = subprocess.run(
        [python, HERE / "sdks.py", request.param, base],
        capture_output=True,
        text=True,
        timeout=RUN_WITHIN_S,
        env=os.environ | QUIET,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_answers_come_whole_with_their_usage(seen: dict[str, Any]) -> None:
    assert seen["whole"]
    assert 0 < seen["usage"] <= 12


def test_answers_stream_to_their_end_with_their_usage(seen: dict[str, Any]) -> None:
    assert seen["streamed"]
    assert 0 < seen["streamed_usage"] <= 12
    assert seen["finish"] in ("stop", "length", "end_turn", "max_tokens")


def test_a_tool_is_called_whole_and_streamed(seen: dict[str, Any]) -> None:
    assert [seen["tool"], seen["tool_streamed"]] == [["find_weather", ["city", "days"]]] * 2


def test_leaving_a_stream_leaves_the_client_usable(seen: dict[str, Any]) -> None:
    assert seen["left"]
    assert seen["after"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bad", "BadRequestError"),
        ("busy", "RateLimitError"),
        ("failed", "InternalServerError"),
        ("broken", "APIStatusError"),
        ("full", "APIStatusError"),
        ("died", "APIError"),
    ],
)
def test_each_error_comes_as_the_class_that_people_catch(seen: dict[str, Any], name: str, kind: str) -> None:
    assert kind in seen["errors"][name]
