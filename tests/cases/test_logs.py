"""H31: no prompt, key or forged line in a log or an error of ours; one request is one line that parses.

Every way of failing that there is, over a process of its own, is in flow/test_flow_secrets.py.
"""

import re
from pathlib import Path
from typing import Any, Literal

import orjson
import pytest
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange
from fakes.keys import write_keys
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.reloading import Engine
from fakes.reloading import staged as reloading
from fakes.stage import Stage, staged
from fakes.until import until

from proxy import logs

Style = Literal["json", "text"]
STYLES = pytest.mark.parametrize("style", ["json", "text"])
MARK = "MARKER"
CONTROLS = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]")
FREE: dict[str, Any] = {"circuit": {"max_failures": 1000}, "retries": {"max_ratio": 1.0, "reserve": 10_000}}
SECRETS = (
    f"authorization: Bearer {MARK}",
    f"x-api-key: {MARK}",
    f"api-key: {MARK}",
    f"cookie: a={MARK}",
    f"user-agent: {MARK}",
    f"x-{MARK}: 1",
)


def written(capture: Any) -> list[bytes]:
    out, err = capture.readouterr()
    assert err == b""
    return list(out.splitlines())


def configure(style: Style) -> None:
    """Everything that is ever logged, in one form."""
    logs.configure(style, "debug")


def of_event(lines: list[bytes], *events: str) -> list[bytes]:
    return [line for line in lines if any(event.encode() in line for event in events)]


ONE_REQUEST = ("request_settled", "request_refused", "question_answered", "request_failed")


def marked(sample: Sample, *, streams: bool) -> bytes:
    """A body of a dialect with the marker in every place that text may stand in."""
    words: dict[str, Any] = {
        "model": f"{MARK}-model\r\nx",
        "user": MARK,
        "system": MARK,
        "prompt": MARK,
        "input": MARK,
        "text": MARK,
        "tools": [{"type": "function", "function": {"name": MARK, "parameters": {MARK: 1}}}],
        "messages": [
            {"role": "system", "content": MARK},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{MARK}"}}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": f'{{"k":"{MARK}"}}'}}]},
        ],
    }
    return orjson.dumps({**orjson.loads(sample.body), **words, "stream": streams})


async def speaks(exchange: Exchange) -> None:
    """Answers, refuses or breaks off as the request says, with the marker wherever an engine may put it."""
    sample = next(each for each in SAMPLES if each.target == exchange.request.target.partition("?")[0])
    way = exchange.request.header("x-way")
    said = b"".join(sample.events).replace(b"w0", MARK.encode())
    if way == "reset":
        exchange.reset()
    elif way == "garbage":
        await exchange.send(b"MARKER \x1b[31m is no HTTP\r\n\r\n")
        exchange.writer.close()
    elif way in ("400", "422", "429", "500", "503"):
        await exchange.answer(b'{"error":{"message":"MARKER","code":"MARKER"}}', f"{way} MARKER", "x-a: MARKER")
    elif b'"stream":true' not in exchange.request.body:
        await exchange.answer(b'{"choices":[{"message":{"content":"MARKER"}}]}', "200 OK", "x-a: MARKER")
    else:
        await exchange.stream_head(sample.content_type)
        await exchange.chunk(said)
        if way == "cut":
            exchange.writer.close()
        elif way == "complains":
            await exchange.chunk(b'data: {"error":{"message":"MARKER","type":"MARKER","code":"MARKER"}}\n\n')
            await exchange.end()
        else:
            await exchange.chunk(sample.end)
            await exchange.end()


WAYS = ("answers", "reset", "garbage", "400", "422", "429", "500", "503", "cut", "complains")
# Those whose answer is ours: the engine had none.
OURS = ("reset", "garbage")


@STYLES
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)
async def test_h31_no_word_of_a_request_or_an_answer_is_logged_in_any_dialect(
    style: Style, sample: Sample, capfdbinary: Any
) -> None:
    async with staged(speaks, speaks, **FREE) as stage:
        configure(style)
        for way in WAYS:
            for streams in (True, False):
                body = marked(sample, streams=streams)
                lines = (*SECRETS, f"x-way: {way}", f"x-request-id: {MARK} and more words")
                said = await ask(stage.app.port, request(f"{sample.target}?key={MARK}", body, *lines))
                if way in OURS:
                    assert (said.status, MARK.encode() in said.body + str(said.headers).encode()) == (502, False)
        await until(lambda: len(stage.ended) == 2 * len(WAYS))
    out = written(capfdbinary)
    assert MARK.encode() not in b"\n".join(out)
    assert len(of_event(out, *ONE_REQUEST)) == 2 * len(WAYS)
    require_lines(out, style)


def require_lines(out: list[bytes], style: Style) -> None:
    """Each line is one event, whole and printable."""
    for line in out:
        assert not CONTROLS.search(line), line
        if style == "json":
            assert {"event", "level", "timestamp"} <= orjson.loads(line).keys()
        else:
            assert re.match(rb"\d{4}-\d\d-\d\dT\S+ \[\w+ *\] \w+", line), line


# ---------------------------------------------------------------- refusals of ours that have a client's words at hand

SESSIONS: dict[str, bytes] = {
    "/v1/responses": orjson.dumps({"model": "m", "input": "hi", "previous_response_id": f"resp_{MARK}"}),
    "/generate": orjson.dumps({"text": "hi", "session_params": {"id": MARK, "rid": MARK}}),
    "/v1/chat/completions": chat(session_params={"id": MARK, MARK: 1}),
}


@STYLES
@pytest.mark.parametrize("target", SESSIONS)
async def test_h31_session_that_no_rule_names_is_refused_without_its_name(
    style: Style, target: str, capfdbinary: Any
) -> None:
    async with staged() as stage:
        configure(style)
        said = await ask(stage.app.port, request(target, SESSIONS[target], *SECRETS))
        assert (said.status, b"session_unrouted" in said.body) == (400, True)
        require_silence(said)
        await until(lambda: stage.ended)
    require_one_line(written(capfdbinary), style)


@STYLES
@pytest.mark.parametrize("line", [f"Authorization: Bearer {MARK}", f"X-Api-Key: {MARK}", f"Authorization: {MARK}"])
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/messages", "/v1/models"])
async def test_h31_key_that_is_not_known_is_refused_without_a_letter_of_it(
    style: Style, line: str, target: str, tmp_path: Path, capfdbinary: Any
) -> None:
    write_keys(tmp_path / "keys", ["one"])
    async with staged(listen={"api_keys_file": str(tmp_path / "keys")}) as stage:
        configure(style)
        post = target != "/v1/models"
        data = request(target, chat(user=MARK) if post else b"", line, method="POST" if post else "GET")
        said = await ask(stage.app.port, data)
        assert said.status == 401
        require_silence(said)
    require_one_line(written(capfdbinary), style)


@STYLES
@pytest.mark.parametrize("where", ["relay.carry", "informer.answer", "door._find"])
async def test_h31_fault_of_ours_is_told_without_the_words_that_it_quotes(
    style: Style, where: str, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote its message did not know what a prompt is; its kind and its place are enough to find it."""

    def stumble(*_: object, **__: object) -> None:
        raise ValueError(f"cannot read {MARK}")

    async with staged() as stage:
        configure(style)
        part, _, name = where.partition(".")
        monkeypatch.setattr(getattr(stage.app, part), name, stumble)
        post = where != "informer.answer"
        target = f"/v1/chat/completions?{MARK}" if post else f"/v1/models/{MARK}"
        said = await ask(
            stage.app.port, request(target, chat(user=MARK) if post else b"", method="POST" if post else "GET")
        )
        assert said.status == 500
        require_silence(said)
    out = written(capfdbinary)
    require_one_line(out, style)
    assert b"ValueError" in b"\n".join(out)


def require_silence(said: Said) -> None:
    assert MARK.encode() not in said.body + str(said.headers).encode()


def require_one_line(out: list[bytes], style: Style) -> None:
    assert MARK.encode() not in b"\n".join(out)
    assert len(of_event(out, *ONE_REQUEST)) == 1
    require_lines(out, style)


# ---------------------------------------------------------------- forged lines

FORGED: dict[str, bytes] = {
    "line end in the path": request("/v1/%0d%0aFAKE", method="GET"),
    "line end in a model's path": request("/v1/models/%0d%0aFAKE", method="GET"),
    "twice encoded": request("/v1/models/%250d%250aFAKE", method="GET"),
    "unicode line end": request("/v1/models/%e2%80%a8FAKE", method="GET"),
    "escape in the path": request("/v1/%1b[31mFAKE", method="GET"),
    "escape in a query": request("/v1/models?a=%1b%0aFAKE", method="GET"),
    "escape in a header": request("/v1/chat/completions", chat(), "x-a: a\x1b[31mFAKE"),
    "delete in a header": request("/v1/chat/completions", chat(), "x-a: a\x7fFAKE"),
    "escape in the id": request("/v1/chat/completions", chat(), "x-request-id: a\x1b[31mFAKE"),
    "delete in the id": request("/v1/chat/completions", chat(), "x-request-id: a\x7fFAKE"),
    "json in the id": request("/v1/chat/completions", chat(), 'x-request-id: "}{"event":"FAKE"} x'),
    "newline in the model": request("/v1/chat/completions", chat(model="m\r\nFAKE\x1b[31m\x7f\u2028")),
    "newline in the model of a question": request("/tokenize", b'{"model":"m\\r\\nFAKE","prompt":"x"}'),
    "newline in the role asked for": request("/v1/chat/completions", chat(), "x-crossover-backend: a\tFAKE"),
    "method": b"FAKE\x1b / HTTP/1.1\r\nhost: x\r\n\r\n",
    "forwarded address": request("/v1/chat/completions", chat(), "x-forwarded-for: FAKE\x1b[31m"),
}


@STYLES
@pytest.mark.parametrize("forgery", FORGED)
async def test_h31_one_request_is_one_line_whatever_stands_in_it(style: Style, forgery: str, capfdbinary: Any) -> None:
    async with staged(health={"interval_s": 300}) as stage:
        configure(style)
        said = await ask(stage.app.port, FORGED[forgery])
        await until(lambda: not stage.app.relay.trips)
    out = written(capfdbinary)
    assert len(of_event(out, *ONE_REQUEST)) == 1
    assert b"FAKE" not in b"\n".join(out)
    if said.status >= 400:
        assert b"FAKE" not in said.body + str(said.headers).encode()
    require_lines(out, style)


@STYLES
async def test_h31_words_of_an_engine_that_speaks_of_itself_stay_on_their_line(style: Style, capfdbinary: Any) -> None:
    """Its model and version are logged when it is seen: they are its own, and may hold anything."""
    evil = "m\r\n\x1b[31m\x7f\u2028FAKE"

    class Odd(Engine):
        def _server_info(self) -> dict[str, object]:
            return {**super()._server_info(), "served_model_name": evil, "version": evil}

    async with Odd() as a, Odd("baseline") as b:
        configure(style)
        async with staged() as stage:
            configure(style)
            values = {"speculative": {"url": a.url}, "baseline": {"url": b.url}}
            await adopt(stage, values)
            await until(lambda: all(each.facts for each in stage.app.desk.backends), what="the engines seen")
    out = written(capfdbinary)
    told = of_event(out, "engine_seen")
    assert len(told) >= 2
    assert all(line.count(b"FAKE") <= 2 and CONTROLS.search(line) is None for line in out)
    assert not [line for line in out if line.startswith(b"FAKE")]


async def adopt(stage: Stage, backends: dict[str, dict[str, str]]) -> None:
    """Take over other backends, as a reload does."""
    values = {**stage.app.settings.model_dump(mode="json", exclude={"backends"}), "backends": backends}
    stage.app._source = lambda: type(stage.app.settings).model_validate(values)
    accepted, problems = await stage.app.reload()
    assert accepted, problems


# ---------------------------------------------------------------- what operators write


@STYLES
async def test_h31_secrets_in_a_broken_configuration_are_not_logged_or_told(
    style: Style, tmp_path: Path, capfdbinary: Any
) -> None:
    broken = (
        "backends: {speculative: {url: 'http://h:1', api_key: MARKER words}}",
        "backends: {speculative: {url: 'http://user:MARKER@h:1'}}",
        "api_key: MARKER",
        "backends: {speculative: {url: 'http://h:1', api_key: [MARKER]}}",
        "backends: {speculative: {api_key: MARKER",
    )
    async with Engine() as a, Engine("baseline") as b, reloading(tmp_path / "crossover.yaml", a, b) as stage:
        configure(style)
        for text in broken:
            stage.write(text + "\n")
            status, said = await stage.reload()
            assert (status, said["reloaded"]) == (422, False)
            assert MARK not in str(said), text
    out = written(capfdbinary)
    assert len(of_event(out, "config_rejected")) == len(broken)
    assert MARK.encode() not in b"\n".join(out)
    require_lines(out, style)


@STYLES
async def test_h31_client_that_leaves_is_one_line_without_a_word_of_its_prompt(style: Style, capfdbinary: Any) -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.gone()

    async with staged(silent, silent) as stage:
        configure(style)
        for whole in (True, False):
            async with RawClient(stage.app.port) as client:
                data = request("/v1/chat/completions", marked(SAMPLES[0], streams=True), *SECRETS)
                await client.send(data if whole else data[:-10])
                await until(lambda: stage.app.relay.trips, what="the request at the relay")
                client.leave(reset=True)
            await until(lambda: not stage.app.relay.trips)
    out = written(capfdbinary)
    assert len(of_event(out, "client_gone_waiting")) == 2
    assert MARK.encode() not in b"\n".join(out)
    require_lines(out, style)
