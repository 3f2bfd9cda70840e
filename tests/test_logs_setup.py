"""One line a request that tells the decision's numbers, and never a word of what was asked, answered or kept secret."""

import asyncio
import contextlib
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.proxy import running, settings
from fakes.raw import ask, chat, request
from fakes.until import until
from hypothesis import given
from hypothesis import strategies as st

from proxy import logs, tasks
from proxy.model import (
    Because,
    Change,
    ChangeKind,
    Decision,
    Outcome,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Usage,
)

ROOT = Path(__file__).parents[1]
Style = Literal["json", "text"]
BECAUSE = Because(Policy.THRESHOLD, 1, 2, 3.14159, 5, 9, Role.SPECULATIVE)
FACTS = RequestFacts(
    request_id="id-1",
    route="/v1/chat/completions",
    method="POST",
    outcome=Outcome.FINISHED,
    status=200,
    decision=Decision(Role.SPECULATIVE, Reason.REGIME, Regime(), BECAUSE),
    traits=Traits(weight=2, stream=True, model="secret", prompt_bytes=77),
    duration_s=1.23456789,
    ttft_s=0.1,
    usage=Usage(10, 20, 0),
    client="127.0.0.1",
)

# ---------------------------------------------------------------- the line of a request


def test_a_request_is_one_line_of_json_with_the_numbers_of_its_decision(capfdbinary: Any) -> None:
    logs.request_settled(logs.configure("json", "info"), FACTS)
    out, err = capfdbinary.readouterr()
    line = orjson.loads(out)
    assert (out.count(b"\n"), err) == (1, b"")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line.pop("timestamp"))
    assert line == {
        "event": "request_settled",
        "level": "info",
        "request_id": "id-1",
        "client": "127.0.0.1",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "outcome": "finished",
        "weight": 2,
        "stream": True,
        "body_bytes": 77,
        "attempts": 1,
        "role": "speculative",
        "reason": "regime",
        "policy": "threshold",
        "regime": "speculative",
        "speculative_in_flight": 1,
        "baseline_in_flight": 2,
        "smoothed": 3.14,
        "enter_at": 5,
        "leave_at": 9,
        "duration_s": 1.234568,
        "queue_s": 0.0,
        "overhead_s": 0.0,
        "ttft_s": 0.1,
        "prompt_tokens": 10,
        "completion_tokens": 20,
    }


def test_a_client_with_a_key_is_told_by_its_name() -> None:
    assert logs.request_fields(FACTS._replace(client_name="alpha"))["client_name"] == "alpha"
    assert "client_name" not in logs.request_fields(FACTS)


def test_fields_that_say_nothing_are_left_out() -> None:
    fields = logs.request_fields(FACTS._replace(decision=None, ttft_s=None, usage=Usage(), client=None))
    assert (
        not {"role", "reason", "ttft_s", "tpot_s", "prompt_tokens", "client", "failure", "first_failure"}
        & fields.keys()
    )


@given(st.text() | st.sampled_from(["\ud800", "a\x7f", "\u2028", "caf\u00e9", '"\\']))
def test_a_model_name_is_never_logged_and_any_value_stays_on_its_line(words: str) -> None:
    facts = FACTS._replace(route=words, failure=words, traits=Traits(model="a model of the client"))
    line = logs.request_line(facts, datetime.now(UTC))
    event = orjson.loads(line)
    assert "a model of the client" not in str(event)
    assert all(value.isprintable() for value in event.values() if isinstance(value, str))
    assert len(line.decode().splitlines()) == 1


@pytest.mark.parametrize("style", ["json", "text"])
def test_control_characters_are_written_as_escapes(style: Style, capfdbinary: Any) -> None:
    log = logs.configure(style, "info")
    log.info("engine_seen", model="a\r\nb\x1b[31m\u2028\udcff", notes=["c\nd\x07", "\ud800"])
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", out)


def test_text_is_for_people_and_without_colours_where_nobody_looks(capfdbinary: Any) -> None:
    logs.request_settled(logs.configure("text", "info"), FACTS)
    out = capfdbinary.readouterr().out.decode()
    assert "request_settled" in out
    assert "reason=regime" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(("level", "lines"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_not_written(level: str, lines: int, capfdbinary: Any) -> None:
    log = logs.configure("json", level)
    for write in (log.debug, log.info, log.warning, log.error):
        write("something_happened")
    assert capfdbinary.readouterr().out.count(b"\n") == lines


def test_a_change_is_a_line_under_its_own_name(capfdbinary: Any) -> None:
    logs.changed(logs.configure("json", "info"), Change(ChangeKind.CIRCUIT, Role.BASELINE, "closed", "open"))
    line = orjson.loads(capfdbinary.readouterr().out)
    assert (line["event"], line["role"], line["before"], line["after"]) == (
        "circuit_changed",
        "baseline",
        "closed",
        "open",
    )


def test_a_suspension_of_learning_tells_its_numbers(capfdbinary: Any) -> None:
    numbers = {"cause": "doubt", "predicted_s": 0.03, "seen_s": 0.01, "answers": 5}
    change = Change(ChangeKind.LEARNING, Role.SPECULATIVE, "learned", "measured", numbers)
    logs.changed(logs.configure("json", "info"), change)
    line = orjson.loads(capfdbinary.readouterr().out)
    assert (line["event"], line["level"], line["role"]) == ("learning_suspended", "warning", "speculative")
    assert numbers.items() <= line.items()


@pytest.mark.parametrize("style", ["json", "text"])
def test_an_output_that_nobody_reads_loses_lines_and_breaks_nothing(
    style: Style, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", output)
    log = logs.configure(style, "info")
    for _ in range(1000):
        logs.request_settled(log, FACTS)
    with contextlib.suppress(BrokenPipeError):
        output.close()
    logs.request_settled(log, FACTS)


# ---------------------------------------------------------------- failures of our own


def stumble(secret: str) -> None:
    """Fails with a secret in the message, in a cause, and in a variable."""
    try:
        raise KeyError(secret)
    except KeyError as error:
        raise ValueError(f"cannot use {secret}") from error


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_failure_is_logged_as_type_and_place_without_its_words(style: Style, capfdbinary: Any) -> None:
    log = logs.configure(style, "debug")
    with pytest.raises(ValueError, match="CANARY") as caught:
        stumble("CANARY")
    log.error("request_failed", exc_info=caught.value)
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 1
    assert b"ValueError" in out
    assert b"test_logs_setup.stumble:" in out
    assert b"CANARY" not in out


@pytest.mark.parametrize("style", ["json", "text"])
async def test_a_defect_in_the_way_of_a_request_tells_nobody_what_was_asked(style: Style, capfdbinary: Any) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        app.door._logger = app._front.log = logs.configure(style, "debug")

        def fail(*_: object) -> None:
            stumble("CANARY")

        app.relay.admission.at_once = fail  # type: ignore[method-assign,assignment]
        said = await ask(app.port, request(body=chat(user="CANARY")))
    out, err = capfdbinary.readouterr()
    assert said.status == 500
    assert said.header("connection") == "close"
    assert b"request_failed" in out
    assert b"ValueError" in out
    assert b"CANARY" not in out + err + said.body


async def test_a_task_that_fails_unawaited_is_logged_by_its_name(capfdbinary: Any) -> None:
    async def fail() -> None:
        stumble("CANARY")

    asyncio.get_running_loop().set_exception_handler(logs.loop_failed(logs.configure("json", "info")))
    task = tasks.spawn(fail(), name="engine poll")
    await until(task.done)
    await asyncio.sleep(0)
    line = orjson.loads(capfdbinary.readouterr().out)
    assert (line["event"], line["task"], line["error"]) == ("task_failed", "engine poll", "ValueError")
    assert "CANARY" not in str(line)


# ---------------------------------------------------------------- ids, and lines at the door


@pytest.mark.parametrize(
    "forged", ["two words", "x" * 129, "caf\u00e9", "a\tb", "", '{"level":"error"} \x7f'], ids=repr
)
async def test_a_forged_request_id_is_replaced(forged: str) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        said = await ask(app.port, request("/v1/chat/completions", chat(), f"x-request-id: {forged}"))
        sent = _sent(a, b)
    assert said.status in (200, 400)
    if said.status == 200:
        assert re.fullmatch(r"[0-9a-f]{32}", said.header("x-request-id") or "")
        assert sent == said.header("x-request-id")


async def test_a_good_request_id_is_kept_all_the_way() -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, running(settings(a.url, b.url)) as app:
        said = await ask(app.port, request("/v1/chat/completions", chat(), "x-request-id: mine-7"))
        assert (said.header("x-request-id"), _sent(a, b)) == ("mine-7", "mine-7")
        assert [record.request_id for record in app.desk.ring] == ["mine-7"]


def _sent(*engines: FakeEngine) -> str | None:
    """The request id that an engine got."""
    return next((one.header("x-request-id") for engine in engines for one in engine.requests), None)


async def test_a_question_and_a_refusal_are_a_line_each(capfdbinary: Any) -> None:
    async with (
        FakeEngine(script=_models) as a,
        FakeEngine(script=_models, role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "info"})) as app,
    ):
        await ask(app.port, request("/v1/models", b"", "x-request-id: q", method="GET"))
        await ask(app.port, request("/nothing", b"", "x-request-id: r", method="GET"))
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["event"] in ("question_answered", "request_refused")]
    assert [(line["event"], line["status"], line["request_id"]) for line in told] == [
        ("question_answered", 200, "q"),
        ("request_refused", 404, "r"),
    ]
    assert told[0]["route"] == "/v1/models"
    assert told[1]["code"] == "unknown_route"


async def test_a_request_that_moved_tells_why_it_left_its_first_backend(capfdbinary: Any) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    async with (
        FakeEngine(script=reset) as a,
        FakeEngine(role="baseline") as b,
        running(settings(a.url, b.url, log={"level": "info"})) as app,
    ):
        for _ in range(2):
            assert (await ask(app.port, request(body=chat()))).status == 200
        await b.close()
        b.script = reset
        await b.listen()
        assert (await ask(app.port, request(body=chat()))).status == 502
    lines = [orjson.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    told = [line for line in lines if line["event"] == "request_settled"]
    assert [(line.get("first_failure"), line.get("failure"), line["reason"]) for line in told] == [
        ("backend_broken", None, "failover"),
        ("backend_broken", None, "failover"),
        ("backend_broken", "backend_broken", "failover"),
    ]


async def _models(exchange: Exchange) -> None:
    await exchange.answer(b'{"data":[]}')
