"""docs/logs.md tells every event that the product can log, with its fields; the schema holds every request's line."""

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_logs_requests import AT, FACTS, FULL

from proxy import logs
from proxy.logs import acts, requests
from proxy.model import ChangeKind, Costs, RequestFacts, Traits
from proxy.routing.harm import Cause, Suspension
from proxy.routing.out import Out

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from docs_logs import EVENTS  # noqa: E402 - it is no package

LEVELS = ("debug", "info", "warning", "error")
SCHEMA = json.loads((ROOT / "docs" / "request_settled.schema.json").read_text())
# What says the name of its event otherwise than by a word of its own, and is looked at by hand below.
BY_HAND = {"proxy/logs/setup.py", "proxy/logs/acts.py", "proxy/logs/requests.py"}


# ---------------------------------------------------------------- what the code says


def calls() -> Iterator[tuple[str, ast.Call, ast.AST]]:
    """Each call that writes a line, with the file and the function that it is in. The laboratory logs nothing."""
    seen: set[ast.AST] = set()  # a function within another is found in both
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("proxy/lab/"):
            continue
        for scope in ast.walk(ast.parse(path.read_text())):
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(scope):
                    if isinstance(node, ast.Call) and writes_a_line(node) and node not in seen:
                        seen.add(node)
                        yield name, node, scope


def writes_a_line(node: ast.Call) -> bool:
    by = node.func
    return (
        isinstance(by, ast.Attribute)
        and by.attr in LEVELS
        and ast.unparse(by.value).split(".")[-1].strip("_")
        in (
            "logger",
            "log",
        )
    )


def fields_of(node: ast.Call, scope: ast.AST) -> set[str]:
    """The fields that a call gives; `**named` are the keys of the dicts that the function calls so."""
    found: set[str] = set()
    for keyword in node.keywords:
        if keyword.arg == "exc_info":
            found |= {"error", "trace"}
        elif keyword.arg is not None:
            found.add(keyword.arg)
        else:
            found |= keys_of(ast.unparse(keyword.value), scope)
    return found


def keys_of(name: str, scope: ast.AST) -> set[str]:
    given = [
        each.value for each in ast.walk(scope) if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name
    ]
    dicts = [each for value in given for each in ast.walk(value) if isinstance(each, ast.Dict)]
    assert dicts, f"what is {name}?"
    return {key.value for each in dicts for key in each.keys if isinstance(key, ast.Constant)}


@cache  # it reads the whole product
def logged() -> Mapping[str, set[str]]:
    """Each event that the product can log, with its fields."""
    found: dict[str, set[str]] = {}
    for name, node, scope in calls():
        if name in BY_HAND and not isinstance(node.args[0], ast.Constant):
            continue
        event = ast.literal_eval(node.args[0])
        found.setdefault(event, set()).update(fields_of(node, scope))
    for kind in ChangeKind:
        found[kind.value] = {"role", "before", "after"}
    found[ChangeKind.LEARNING.value] |= set(Suspension(Cause.COST, None, "", 1.0, 1.0, 1, 1, 1.0).numbers())
    found["log_lines_dropped"] = {"lines"}
    found[acts.EVENT] = {"act", "via"} | audited()
    found[requests.EVENT] = set(SCHEMA["properties"]) - {"event", "level", "timestamp"}
    found["question_answered"].add("sample")  # by logs/keep.py
    return found


def audited() -> set[str]:
    """The fields of the acts: what every caller of `audit` gives."""
    found = set()
    for path in ("admin.py", "serve.py"):
        for node in ast.walk(ast.parse((ROOT / "proxy" / path).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("logs.audit", "self._audit"):
                found |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
    return found


def test_every_event_that_can_be_logged_is_told_and_no_other() -> None:
    assert sorted(event.name for event in EVENTS) == sorted(logged())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_every_field_of_an_event_is_told_and_no_other(event: Any) -> None:
    assert sorted(field.name for field in event.fields) == sorted(logged()[event.name])


def test_the_calls_that_were_found_are_those_that_there_are() -> None:
    """A call written in another way would be missed: as many are found as the text has."""
    texts = [path.read_text() for path in (ROOT / "proxy").rglob("*.py") if "lab" not in path.parts]
    written = sum(text.count(f"{name}.{level}(") for text in texts for level in LEVELS for name in ("logger", "log"))
    assert len(list(calls())) == written


# ---------------------------------------------------------------- the line of a request

KINDS = {"string": str, "integer": int, "number": int | float, "boolean": bool}


def problems(line: dict[str, Any]) -> Iterator[str]:
    """What of the schema a line does not keep: the part of JSON Schema that it is written in."""
    known = SCHEMA["properties"]
    assert not SCHEMA["additionalProperties"]
    yield from (f"{name} is missing" for name in SCHEMA["required"] if name not in line)
    for name, value in line.items():
        if name not in known:
            yield f"{name} is not in the schema"
            continue
        rule = known[name]
        if not isinstance(value, KINDS[rule["type"]]) or (rule["type"] != "boolean" and isinstance(value, bool)):
            yield f"{name} is no {rule['type']}: {value!r}"
        elif value not in rule.get("enum", [value]):
            yield f"{name} is {value!r}"
        elif "minimum" in rule and value < rule["minimum"]:
            yield f"{name} is below {rule['minimum']}"


@given(facts=FACTS, share=st.none() | st.floats(0, 1))
def test_every_line_of_a_request_keeps_the_schema(facts: RequestFacts, share: float | None) -> None:
    assert list(problems(orjson.loads(logs.request_line(facts, AT, share)))) == []


def test_every_field_of_the_schema_comes_in_some_line() -> None:
    decision = FULL.decision
    assert decision is not None
    because = decision.because._replace(
        costs=Costs(1.0, 2.0, True, 3),
        speculative_cached=512,
        baseline_cached=512,
        learned=True,
        speculative_out=Out.DOWN,
        baseline_out=Out.FULL,
    )
    facts = FULL._replace(
        decision=decision._replace(because=because),
        traits=Traits(stream=True, constrained=True, session=True, max_tokens=9),
        backend_out=Out.DOWN,
        silent_s=19.0,
    )
    line = orjson.loads(logs.request_line(facts, AT, 0.5))
    assert line.keys() == SCHEMA["properties"].keys()


def test_what_is_required_is_there_when_nothing_else_is() -> None:
    bare = RequestFacts("id", "/v1/chat/completions", "POST", FULL.outcome, 200, None, Traits())
    assert orjson.loads(logs.request_line(bare, AT)).keys() == set(SCHEMA["required"])


@pytest.mark.parametrize(
    "wrong",
    [{"status": "200"}, {"outcome": "fine"}, {"duration_s": -1}, {"weight": True}, {"prompt": "x"}, {"stream": 1}],
    ids=str,
)
def test_a_line_that_is_wrong_is_told_to_be(wrong: dict[str, Any]) -> None:
    assert len(list(problems({**orjson.loads(logs.request_line(FULL, AT)), **wrong}))) == 1
