"""Who may come in: with a keys file every path but the health ones asks for a client's key, which goes no further."""

import asyncio
import contextlib
import hmac
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
import yaml
from fakes.engine import Exchange, FakeEngine, stream
from fakes.keys import MARK, bearer, key_of, write_keys
from fakes.proxy import url
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.reloading import BASELINE, SPECULATIVE, Crowd, Engine
from fakes.reloading import staged as reloading
from fakes.stage import Stage, staged
from fakes.until import until, until_told
from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from proxy import tasks
from proxy.app import App
from proxy.protocol.allowlist import LIVENESS_PATHS, READINESS_PATHS
from proxy.protocol.client_keys import line_for
from proxy.wire.reload import watch

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("alpha", "beta", "gamma")
WRONG = f"authorization: Bearer crossover_{MARK}-wrong"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", NAMES)


@contextlib.asynccontextmanager
async def keyed(keys: Path, **sections: Any) -> AsyncIterator[Stage]:
    listen = {"api_keys_file": str(keys), **sections.pop("listen", {})}
    async with staged(listen=listen, **sections) as stage:
        yield stage


def samples(app: App, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one family by their label values."""
    families = text_string_to_metric_families(app.metrics.exposition().decode())
    found = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in found}


def require_refused(said: Said) -> None:
    """A 401 in the OpenAI shape that tells how to come in."""
    assert (said.status, said.header("www-authenticate")) == (401, "Bearer")
    assert said.header("x-request-id")
    error: Any = said.json["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert MARK not in str(error)


# ---------------------------------------------------------------- who comes in


@pytest.mark.parametrize(
    "header", ["authorization: Bearer {}", "Authorization: bearer {}", "x-api-key: {}", "API-Key: {}"]
)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_with_its_key_is_served_and_no_engine_sees_the_key(
    keys: Path, header: str, streamed: bool, version: str
) -> None:
    async with keyed(keys) as stage:
        lines = (header.format(key_of("beta")), f"cookie: session={MARK}", "x-other: kept")
        data = request("/v1/chat/completions", chat(stream=streamed), *lines, version=version)
        said = await ask(stage.app.port, data)
        assert (said.status, said.whole) == (200, True)
        [seen] = stage.a.requests
        assert seen.header("x-other") == "kept"
        assert MARK not in str(seen.headers)
        assert (await stage.ended_one()).client_name == "beta"


async def test_the_engines_own_key_takes_the_place_of_the_clients(keys: Path) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        backends = {"speculative": {"url": a.url, "api_key": "engine-key"}, "baseline": {"url": b.url}}
        async with keyed(keys, backends=backends) as stage:
            lines = (bearer("alpha"), f"x-api-key: {MARK}", f"api-key: {MARK}")
            assert (await stage.ask(*lines)).status == 200
        assert a.requests[0].header("authorization") == "Bearer engine-key"
        assert MARK not in str(a.requests[0].headers)


async def test_a_question_is_answered_and_its_key_goes_no_further(keys: Path) -> None:
    async with keyed(keys) as stage:
        asked = request("/v1/models", b"", bearer("alpha"), f"cookie: {MARK}", method="GET")
        assert (await ask(stage.app.port, asked)).status == 200
        assert MARK not in str(stage.b.requests[0].headers)


async def test_without_a_keys_file_a_clients_key_goes_on_to_the_engine() -> None:
    async with staged() as stage:
        assert (await stage.ask("authorization: Bearer mine", "api-key: mine", "cookie: mine")).status == 200
        [seen] = stage.a.requests
        assert [seen.header(name) for name in ("authorization", "api-key", "cookie")] == ["Bearer mine", "mine", "mine"]
        assert (await stage.ended_one()).client_name is None


async def test_one_right_key_among_wrong_ones_is_enough(keys: Path) -> None:
    async with keyed(keys) as stage:
        assert (await stage.ask(WRONG, f"x-api-key: {key_of('gamma')}")).status == 200
        assert (await stage.ended_one()).client_name == "gamma"


# ---------------------------------------------------------------- who does not

NO_KEY = {
    "none": (),
    "wrong": (WRONG,),
    "cut": (f"{bearer('alpha')[:-1]}",),
    "longer": (f"{bearer('alpha')}x",),
    "a name": ("authorization: Bearer alpha",),
    "another scheme": (f"authorization: Basic {key_of('alpha')}",),
    "no scheme": (f"authorization: {key_of('alpha')}",),
    "empty": ("authorization: Bearer ", "x-api-key: ", "api-key:"),
    "another header": (f"x-key: {key_of('alpha')}", f"cookie: authorization={key_of('alpha')}"),
    "the second of two": (WRONG, bearer("alpha")),
    "bytes that are no text": ("x-api-key: \udcff\udcfe",),
}


@pytest.mark.parametrize("name", NO_KEY)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_nobody_else_is_served_and_no_engine_sees_them(keys: Path, name: str, version: str) -> None:
    async with keyed(keys) as stage:
        head = request("/v1/chat/completions", chat(stream=True), version=version)
        lines = "".join(f"{line}\r\n" for line in NO_KEY[name]).encode("utf-8", "surrogateescape")
        require_refused(await ask(stage.app.port, head.replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n", 1)))
        assert stage.a.requests == stage.b.requests == []
        assert samples(stage.app, "crossover_refusals_total") == {("invalid_api_key",): 1}
        assert samples(stage.app, "crossover_client_requests_total") == {}


async def test_the_digest_in_the_file_is_no_key(keys: Path) -> None:
    digest = line_for("gamma", key_of("gamma")).split()[1]
    async with keyed(keys) as stage:
        require_refused(await stage.ask(f"x-api-key: {digest}"))


@pytest.mark.parametrize(
    ("method", "target", "lines"),
    [
        ("GET", "/v1/models", ()),
        ("HEAD", "/v1/models", ()),
        ("POST", "/v1/tokenize", ()),
        ("GET", "/nothing", ()),
        ("POST", "/flush_cache", ()),
        ("GET", "//evil", ()),
        ("GET", "/metrics", ()),
        ("GET", "/v1/realtime", ()),
        ("POST", "/health", ()),
        ("OPTIONS", "/v1/chat/completions", ("origin: https://page.example", "access-control-request-method: POST")),
        ("POST", "/v1/chat/completions", ("connection: upgrade", "upgrade: websocket")),
    ],
)
async def test_the_key_is_asked_for_before_anything_is_said(
    keys: Path, method: str, target: str, lines: tuple[str, ...]
) -> None:
    async with keyed(keys) as stage:
        said = await ask(stage.app.port, request(target, b"", *lines, method=method), bodiless=method == "HEAD")
        assert (said.status, said.header("www-authenticate")) == (401, "Bearer")
        assert stage.a.requests == stage.b.requests == []


@pytest.mark.parametrize("path", sorted(LIVENESS_PATHS | READINESS_PATHS))
async def test_health_is_told_without_a_key(keys: Path, path: str) -> None:
    async with keyed(keys) as stage:
        assert (await ask(stage.app.port, request(path, method="GET"))).status == 200


async def test_a_refusal_on_messages_has_anthropics_shape(keys: Path) -> None:
    async with keyed(keys) as stage:
        said = await ask(stage.app.port, request("/v1/messages", b"{}", f"x-api-key: {MARK}"))
        assert (said.status, said.json["type"]) == (401, "error")
        error: Any = said.json["error"]
        assert (error["type"], set(error)) == ("authentication_error", {"type", "message"})


async def test_the_openai_client_raises_its_own_error_and_works_with_the_key(keys: Path) -> None:
    async with keyed(keys) as stage:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        async with AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key="wrong", max_retries=0) as client:
            for streamed in (False, True):
                with pytest.raises(openai.AuthenticationError) as caught:
                    await client.chat.completions.create(**asked, stream=streamed)
                assert (caught.value.code, caught.value.status_code) == ("invalid_api_key", 401)
        async with AsyncOpenAI(base_url=url(stage.app, "/v1"), api_key=key_of("alpha"), max_retries=0) as client:
            assert (await client.chat.completions.create(**asked)).choices[0].message.content == "hello"
            words = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
            assert len(words) > 1


@pytest.mark.parametrize("key", [key_of("alpha"), key_of("gamma"), "wrong"])
async def test_a_key_is_compared_with_every_clients_to_the_end(
    keys: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """As many comparisons of whole digests for a right key as for a wrong one, so that time tells nothing."""
    honest, compared = hmac.compare_digest, list[int]()

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(len(one))
        return honest(one, other)

    async with keyed(keys) as stage:
        monkeypatch.setattr(hmac, "compare_digest", compare)
        await stage.ask(f"api-key: {key}")
    assert compared == [32] * len(NAMES)


# ---------------------------------------------------------------- the body of one who may not come in


@pytest.mark.parametrize("length", ["content-length: 1000", "transfer-encoding: chunked"])
async def test_a_body_that_is_still_to_come_is_not_waited_for_and_nothing_after_it_is_served(
    keys: Path, length: str
) -> None:
    async with keyed(keys) as stage, RawClient(stage.app.port) as client:
        await client.send(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{length}\r\n\r\n".encode())
        said = await client.answer()
        require_refused(said)
        assert said.header("connection") == "close"
        rest = b"x" * 1000 if "1000" in length else b"1\r\nx\r\n0\r\n\r\n"
        await client.send(rest + request("/health", method="GET"))
        assert await client.rest() == b""


async def test_a_body_is_not_asked_for(keys: Path) -> None:
    async with keyed(keys) as stage, RawClient(stage.app.port) as client:
        await client.send(request("/v1/chat/completions", chat(), "expect: 100-continue").partition(b"\r\n\r\n")[0])
        await client.send(b"\r\n\r\n")
        said = await client.answer()
        assert (said.status, said.header("connection")) == (401, "close")


async def test_a_body_that_has_come_leaves_the_connection_usable(keys: Path) -> None:
    async with keyed(keys) as stage, RawClient(stage.app.port) as client:
        await client.send(request(body=chat()))
        require_refused(await client.answer())
        await client.send(request("/v1/chat/completions", chat(), bearer("alpha")))
        assert (await client.answer()).status == 200


# ---------------------------------------------------------------- what is told of a client


async def test_logs_and_metrics_have_the_clients_name_and_nobodys_key(keys: Path, capfdbinary: Any) -> None:
    async def broken(exchange: Exchange) -> None:
        await exchange.answer(b"{}", "500 Internal Server Error")

    async with keyed(keys, log={"level": "debug"}) as stage:
        for name in ("alpha", "beta", "beta"):
            assert (await stage.ask(bearer(name), stream=name == "beta")).status == 200
        assert (await ask(stage.app.port, request("/v1/models", b"", bearer("gamma"), method="GET"))).status == 200
        told = [await stage.ask(WRONG), await stage.ask(f"x-api-key: {MARK}", target="/nothing")]
        told.append(await ask(stage.app.port, request("/nothing", b"", bearer("alpha"), method="GET")))
        told.append(await ask(stage.app.port, request("/flush_cache", b"", bearer("alpha"))))
        stage.a.script = stage.b.script = broken
        told.append(await stage.ask(bearer("alpha")))
        await stage.a.close()
        await stage.b.close()
        told.append(await stage.ask(bearer("gamma")))
        assert [said.status for said in told] == [401, 401, 404, 403, 500, 502]
        metrics = stage.app.metrics.exposition()
        counted = samples(stage.app, "crossover_client_requests_total")
        await stage.a.listen()
        await stage.b.listen()
    assert counted == {
        ("alpha", "finished"): 1,
        ("beta", "finished"): 2,
        ("alpha", "failed_before_commit"): 1,
        ("gamma", "failed_before_commit"): 1,
    }
    out = capfdbinary.readouterr()
    assert MARK.encode() not in out.out + out.err + metrics
    assert MARK not in str(told)
    lines = [orjson.loads(line) for line in out.out.splitlines()]
    named = [line.get("client_name") for line in lines if line["event"] in ("request_settled", "question_answered")]
    assert named == ["alpha", "beta", "beta", "gamma", "alpha", "gamma"]


async def test_without_a_keys_file_requests_are_counted_under_no_name() -> None:
    async with staged() as stage:
        await stage.ask(bearer("alpha"))
        assert samples(stage.app, "crossover_client_requests_total") == {("none", "finished"): 1}


# ---------------------------------------------------------------- the file changes


async def test_a_key_that_is_removed_under_a_running_stream_lets_nobody_in_and_cuts_nothing(
    keys: Path, tmp_path: Path
) -> None:
    async with (
        Engine() as a,
        Engine(BASELINE) as b,
        contextlib.AsyncExitStack() as stack,
        reloading(tmp_path / "crossover.yaml", a, b) as stage,
    ):
        stage.change(listen={"api_keys_file": "keys"})
        status, said = await stage.reload()
        assert (status, said["changes"]) == (
            200,
            ["listen.api_keys_file: None -> keys", f"clients: None -> {list(NAMES)}"],
        )
        crowd = Crowd(stage, stack)
        await crowd.join(5, bearer("alpha"))
        write_keys(keys, ("beta", "delta"))
        assert (await stage.reload())[1]["changes"] == [
            f"clients: {list(NAMES)} -> ['beta', 'delta']",
            f"listen.api_keys_file: {keys} read anew",
        ]
        require_refused(await stage.ask(bearer("alpha")))
        assert (await stage.ask(bearer("delta"))).status == 200
        a.gate.set()
        await crowd.all_end_well()
        counted = samples(stage.app, "crossover_client_requests_total")
        assert counted == {("alpha", "finished"): 5, ("delta", "finished"): 1}


async def test_a_key_that_was_for_the_proxy_goes_to_no_engine_when_keys_are_turned_off_while_it_waits(
    keys: Path, tmp_path: Path
) -> None:
    async with (
        Engine(limit=1) as a,
        Engine(BASELINE, limit=1) as b,
        contextlib.AsyncExitStack() as stack,
        reloading(tmp_path / "crossover.yaml", a, b) as stage,
    ):
        stage.change(listen={"api_keys_file": "keys"})
        assert (await stage.reload())[0] == 200
        crowd = Crowd(stage, stack)
        await crowd.join(2, bearer("alpha"))
        waits = asyncio.ensure_future(stage.ask(bearer("beta")))
        await until(lambda: stage.app.admission.waiting == 1)
        stage.change()
        assert (await stage.reload())[0] == 200
        a.gate.set()
        b.gate.set()
        assert (await waits).status == 200
        assert MARK not in str([each.headers for each in (*a.requests, *b.requests)])
        await crowd.all_end_well()


@contextlib.asynccontextmanager
async def watched(app: App) -> AsyncIterator[None]:
    watcher = tasks.spawn(watch(lambda: app.files, app.disk, app.reload, every_s=0.01), name="watch")
    try:
        yield
    finally:
        await tasks.end(watcher)


def spoil(path: Path) -> None:
    path.write_text(f"alpha {MARK}\n\nbeta x y\n")


async def test_a_wrong_keys_file_changes_nothing_until_it_is_mended(keys: Path, tmp_path: Path) -> None:
    async with Engine() as a, Engine(BASELINE) as b, reloading(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(listen={"api_keys_file": "keys"})
        assert (await stage.reload())[0] == 200
        spoil(keys)
        status, said = await stage.reload()
        assert status == 422
        assert [problem.split(": ")[0] for problem in said["problems"]] == [f"{keys}:1:1", f"{keys}:3:1"]
        assert MARK not in str(said)
        assert (await stage.ask(bearer("gamma"))).status == 200
        async with watched(stage.app):
            write_keys(keys, ("delta",))
            await until_told(lambda: _status_is(stage.app, 200, bearer("delta")))
        require_refused(await stage.ask(bearer("gamma")))


async def test_a_keys_file_that_comes_after_the_configuration_that_names_it_is_noticed(
    tmp_path: Path,
) -> None:
    async with Engine() as a, Engine(BASELINE) as b, reloading(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(listen={"api_keys_file": "late"})
        status, said = await stage.reload()
        assert status == 422
        assert "listen.api_keys_file: names no regular file" in said["problems"][0]
        async with watched(stage.app):
            write_keys(tmp_path / "late", NAMES)
            await until_told(lambda: _status_is(stage.app, 401))
        assert (await stage.ask(bearer("alpha"))).status == 200


async def test_every_file_that_a_reload_names_is_watched_from_then_on(keys: Path, tmp_path: Path) -> None:
    """The clients' keys, the operators' token and an engine's key, each changed alone."""
    for name in ("token", "engine"):
        put(tmp_path / name, "first")
    async with Engine() as a, Engine(BASELINE) as b, reloading(tmp_path / "crossover.yaml", a, b) as stage:
        backends = {SPECULATIVE: {"url": a.url, "api_key_file": "engine"}}
        stage.change(listen={"api_keys_file": "keys"}, admin={"token_file": "token"}, backends=backends)
        assert (await stage.reload())[0] == 200
        async with watched(stage.app):
            write_keys(keys, ("delta",))
            await until_told(lambda: _status_is(stage.app, 200, bearer("delta")))
            put(tmp_path / "token", "second")
            await until(lambda: stage.app.token() == "second")
            put(tmp_path / "engine", "second")
            await until_told(lambda: _engine_gets(stage.app, a, "Bearer second"))


def put(path: Path, text: str) -> None:
    path.write_text(text)


async def _engine_gets(app: App, engine: FakeEngine, key: str) -> bool:
    await _status_is(app, 200, bearer("delta"))
    return engine.requests[-1].header("authorization") == key


async def _status_is(app: App, status: int, *lines: str) -> bool:
    return (await ask(app.port, request("/v1/chat/completions", chat(), *lines))).status == status


# ---------------------------------------------------------------- as an operator starts it


def written(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "crossover.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


async def test_a_served_proxy_takes_a_changed_keys_file_over_by_itself(keys: Path, tmp_path: Path) -> None:
    async with FakeEngine(script=stream) as a, FakeEngine(role="baseline") as b:
        sections = {"listen": {"host": "127.0.0.1", "port": 0, "api_keys_file": "keys"}, "admin": {"port": 0}}
        backends = {"speculative": {"url": a.url}, "baseline": {"url": b.url}}
        config = written(tmp_path, {**sections, "backends": backends, "timeouts": {"settle_s": 0}})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "serve", str(config)), cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            line: dict[str, Any] = {}
            async with asyncio.timeout(60):
                while line.get("event") != "started":
                    line = orjson.loads(await process.stdout.readline())
            asked = request("/v1/chat/completions", chat(stream=True), bearer("alpha"))
            assert (await ask(line["port"], asked)).status == 200
            write_keys(keys, ("beta",))
            await until_told(lambda: _refused(line["port"], asked))
        finally:
            process.terminate()
            await process.communicate()


async def _refused(port: int, data: bytes) -> bool:
    return (await ask(port, data)).status == 401
