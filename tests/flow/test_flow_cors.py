"""Pages of listed origins may call from a browser and read every kind of answer; without a list nothing is said."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.engine import Exchange, FakeEngine, content, either
from fakes.keys import bearer, write_keys
from fakes.leaping import leaping
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.reloading import staged as reloading
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.protocol.allowlist import ROUTES, EngineKind
from proxy.protocol.cors import EXPOSED, MAX_AGE_S

PAGE, OTHER = "https://page.example", "https://other.example"
FROM_PAGE, FROM_OTHER = f"origin: {PAGE}", f"origin: {OTHER}"
PREFLIGHT = (FROM_PAGE, "access-control-request-method: POST")


@contextlib.asynccontextmanager
async def paged(*origins: str, **sections: Any) -> AsyncIterator[Stage]:
    listen = {"cors_origins": list(origins or (PAGE,)), **sections.pop("listen", {})}
    async with staged(listen=listen, **sections) as stage:
        yield stage


def told(said: Said) -> dict[str, list[str]]:
    """All that an answer says to browsers, by lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in said.headers:
        if name.lower().startswith("access-control-") or name.lower() == "vary":
            found.setdefault(name.lower(), []).append(value)
    return found


READABLE = {
    "access-control-allow-origin": [PAGE],
    "access-control-expose-headers": [", ".join(EXPOSED)],
    "vary": ["Origin"],
}


# ---------------------------------------------------------------- asked before


@pytest.mark.parametrize(
    "path", sorted({row.template.partition("{")[0] + "x" * ("{" in row.template) for row in ROUTES[EngineKind.SGLANG]})
)
async def test_a_preflight_is_answered_on_every_path_that_is_served(path: str) -> None:
    async with paged() as stage:
        said = await ask(stage.app.port, request(path, b"", *PREFLIGHT, method="OPTIONS"))
        assert said.status == 204
        assert told(said)["access-control-allow-origin"] == [PAGE]
        assert stage.a.requests == stage.b.requests == []


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_preflight_is_told_methods_its_headers_and_for_how_long(version: str) -> None:
    async with paged() as stage:
        names = "authorization, content-type,x-stainless-os"
        lines = (*PREFLIGHT, f"access-control-request-headers: {names}")
        data = request("/v1/chat/completions?a=b", b"", *lines, method="OPTIONS", version=version)
        said = await ask(stage.app.port, data)
        assert (said.status, said.body, said.header("content-length")) == (204, b"", None)
        assert told(said) == {
            "access-control-allow-origin": [PAGE],
            "access-control-expose-headers": [", ".join(EXPOSED)],
            "access-control-allow-methods": ["POST"],
            "access-control-allow-headers": [names],
            "access-control-max-age": [str(MAX_AGE_S)],
            "vary": ["Origin, Access-Control-Request-Method, Access-Control-Request-Headers"],
        }


async def test_a_preflight_needs_no_key_and_the_request_behind_it_does(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys", ["alpha"])
    async with paged(listen={"api_keys_file": str(keys)}) as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", b"", *PREFLIGHT, method="OPTIONS"))
        assert said.status == 204
        refused = await stage.ask(FROM_PAGE)
        assert (refused.status, told(refused)) == (401, READABLE)
        assert (await stage.ask(FROM_PAGE, bearer("alpha"))).status == 200


@pytest.mark.parametrize(
    ("target", "lines", "status"),
    [
        ("/v1/chat/completions", (FROM_OTHER, PREFLIGHT[1]), 405),
        ("/v1/chat/completions", ("origin: null", PREFLIGHT[1]), 405),
        ("/v1/chat/completions", (FROM_PAGE,), 405),
        ("/v1/chat/completions", (PREFLIGHT[1],), 405),
        ("/nothing", PREFLIGHT, 404),
        ("/flush_cache", PREFLIGHT, 403),
        ("//evil", PREFLIGHT, 404),
    ],
)
async def test_what_is_no_preflight_of_a_listed_page_is_refused_as_ever(
    target: str, lines: tuple[str, ...], status: int
) -> None:
    async with paged() as stage:
        said = await ask(stage.app.port, request(target, b"", *lines, method="OPTIONS"))
        assert said.status == status
        assert "access-control-allow-methods" not in told(said)


@pytest.mark.parametrize(
    ("path", "methods"), [("/health", "GET, HEAD"), ("/v1/models", "GET, HEAD"), ("/generate", "POST, PUT")]
)
async def test_a_preflight_is_told_the_methods_of_its_path(path: str, methods: str) -> None:
    async with paged() as stage:
        said = await ask(stage.app.port, request(path, b"", *PREFLIGHT, method="OPTIONS"))
        assert told(said)["access-control-allow-methods"] == [methods]


async def test_with_two_kinds_of_engines_only_what_both_serve_is_promised() -> None:
    async with paged() as stage:
        stage.app.door.engines = tuple(EngineKind)
        for path, status in (("/v1/chat/completions", 204), ("/generate", 405), ("/pooling", 404)):
            assert (await ask(stage.app.port, request(path, b"", *PREFLIGHT, method="OPTIONS"))).status == status


# ---------------------------------------------------------------- every kind of answer


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_an_answer_may_be_read_by_the_page(streamed: bool, version: str) -> None:
    async with paged() as stage:
        data = request("/v1/chat/completions", chat(stream=streamed), FROM_PAGE, version=version)
        said = await ask(stage.app.port, data)
        assert (said.status, told(said)) == (200, READABLE)


KINDS = {
    "question": (request("/v1/models", b"", FROM_PAGE, method="GET"), 200),
    "head": (request("/ready", b"", FROM_PAGE, method="HEAD"), 200),
    "alive": (request("/healthz", b"", FROM_PAGE, method="GET"), 200),
    "ready": (request("/ready", b"", FROM_PAGE, method="GET"), 200),
    "unclean": (request("/v1/%zz", b"", FROM_PAGE, method="GET"), 400),
    "operator's": (request("/flush_cache", b"", FROM_PAGE), 403),
    "unknown": (request("/nothing", b"", FROM_PAGE, method="GET"), 404),
    "method": (request("/v1/models", b"", FROM_PAGE, method="DELETE"), 405),
    "too large": (request("/v1/chat/completions", b"x" * 2000, FROM_PAGE), 413),
    "upgrade": (request("/v1/models", b"", FROM_PAGE, "connection: upgrade", "upgrade: websocket", method="GET"), 501),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_answers_of_our_own_may_be_read_by_the_page(kind: str) -> None:
    data, status = KINDS[kind]
    async with paged(listen={"max_body_bytes": 1024}) as stage:
        said = await ask(stage.app.port, data, bodiless=kind == "head")
        assert (said.status, told(said)) == (status, READABLE)


async def fail(exchange: Exchange) -> None:
    await exchange.answer(b'{"error": 1}', "500 Internal Server Error")


async def refuse(exchange: Exchange) -> None:
    await exchange.answer(b'{"error": 1}', "422 Unprocessable Entity")


async def reset(exchange: Exchange) -> None:
    exchange.reset()


async def busy(exchange: Exchange) -> None:
    await exchange.answer(b"", "503 Service Unavailable", "retry-after: 3")


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


@pytest.mark.parametrize(("script", "status"), [(fail, 500), (refuse, 422), (reset, 502), (busy, 503), (hang, 504)])
@leaping
async def test_failures_of_engines_may_be_read_by_the_page(script: Any, status: int) -> None:
    async with paged(timeouts={"first_byte_s": 0.2, "connect_s": 0.2}) as stage:
        stage.a.script = stage.b.script = script
        for streamed in (False, True):
            said = await stage.ask(FROM_PAGE, stream=streamed)
            assert (said.status, told(said)) == (status, READABLE)


async def test_a_page_is_told_when_to_come_again() -> None:
    async with paged(queue={"max_waiting": 0}, max_in_flight=1) as stage:
        stage.a.script = stage.b.script = hang
        async with RawClient(stage.app.port) as one, RawClient(stage.app.port) as two:
            for client in (one, two):
                await client.send(request(body=chat()))
            await until(lambda: stage.a.open + stage.b.open == 2)
            said = await stage.ask(FROM_PAGE)
        assert (said.status, told(said)) == (429, READABLE)
        assert said.header("retry-after")
        assert "retry-after" in EXPOSED


async def test_a_stream_that_breaks_was_readable_from_its_head_on() -> None:
    async def die(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.event(content("one"))
        exchange.reset()

    async with paged() as stage:
        stage.a.script = stage.b.script = die
        said = await stage.ask(FROM_PAGE, stream=True)
        assert (said.status, said.whole, told(said)) == (200, False, READABLE)


async def test_what_is_no_http_says_nothing_to_a_page_that_is_not_known() -> None:
    async with paged() as stage:
        said = await ask(stage.app.port, b"GET / HTTP/1.1\r\nhost: x\r\nno colon\r\n\r\n")
        assert (said.status, told(said)) == (400, {"vary": ["Origin"]})


# ---------------------------------------------------------------- which pages


@pytest.mark.parametrize("lines", [(FROM_OTHER,), ("origin: null",), (f"origin: {PAGE}.evil",), ()])
async def test_a_page_that_is_not_listed_is_served_and_told_nothing(lines: tuple[str, ...]) -> None:
    async with paged() as stage:
        said = await stage.ask(*lines)
        assert (said.status, told(said)) == (200, {"vary": ["Origin"]})


async def test_each_of_several_pages_is_told_its_own_origin() -> None:
    async with paged(PAGE, OTHER) as stage:
        for line, origin in ((FROM_PAGE, PAGE), (FROM_OTHER, OTHER)):
            assert told(await stage.ask(line))["access-control-allow-origin"] == [origin]


@pytest.mark.parametrize("lines", [(FROM_OTHER,), ()])
async def test_any_page_may_be_let_in(lines: tuple[str, ...]) -> None:
    async with paged("*") as stage:
        said = await stage.ask(*lines)
        assert told(said) == {
            "access-control-allow-origin": ["*"],
            "access-control-expose-headers": [", ".join(EXPOSED)],
        }
        preflight = await ask(stage.app.port, request("/v1/models", b"", *PREFLIGHT, method="OPTIONS"))
        assert (preflight.status, told(preflight)["access-control-allow-origin"]) == (204, ["*"])


# ---------------------------------------------------------------- an engine that speaks to browsers itself

THEIRS = (
    *("Access-Control-Allow-Origin: *", "access-control-allow-credentials: true", "Access-Control-Expose-Headers: x-a"),
    *("Access-Control-Max-Age: 9", "Vary: Accept-Encoding"),
)


async def outspoken(exchange: Exchange) -> None:
    if exchange.request.header("x-stream"):
        await exchange.head("200 OK", "content-type: text/event-stream", "transfer-encoding: chunked", *THEIRS)
        await exchange.event(content("one", finish_reason="stop"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end()
    else:
        await exchange.answer(b"{}", "200 OK", *THEIRS)


@pytest.mark.parametrize("lines", [(), ("x-stream: 1",)])
@pytest.mark.parametrize("page", [FROM_PAGE, FROM_OTHER])
async def test_an_engines_own_word_gives_way_to_ours(lines: tuple[str, ...], page: str) -> None:
    async with paged() as stage:
        stage.a.script = outspoken
        said = told(await stage.ask(page, *lines, stream=bool(lines)))
        assert said.pop("vary") == ["Accept-Encoding", "Origin"]
        assert said == ({name: READABLE[name] for name in READABLE if name != "vary"} if page == FROM_PAGE else {})


@pytest.mark.parametrize("lines", [(), ("x-stream: 1",)])
async def test_an_engines_own_word_passes_untouched_when_ours_is_off(lines: tuple[str, ...]) -> None:
    async with staged(a=outspoken) as stage:
        said = await stage.ask(FROM_PAGE, *lines, stream=bool(lines))
        for line in THEIRS:
            name, _, value = line.partition(": ")
            assert (name, value) in said.headers


# ---------------------------------------------------------------- off, and turned on


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_list_no_answer_says_anything(kind: str) -> None:
    data, status = KINDS[kind]
    async with staged(a=either, listen={"max_body_bytes": 1024}) as stage:
        said = await ask(stage.app.port, data, bodiless=kind == "head")
        assert (said.status, told(said)) == (status, {})


async def test_without_a_list_a_preflight_is_refused() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", b"", *PREFLIGHT, method="OPTIONS"))
        assert (said.status, said.header("allow"), told(said)) == (405, "POST", {})


async def test_a_list_is_taken_over_by_a_reload(tmp_path: Path) -> None:
    async with FakeEngine() as a, FakeEngine(role="baseline") as b, reloading(tmp_path / "c.yaml", a, b) as stage:
        assert told(await stage.ask(FROM_PAGE)) == {}
        stage.change(listen={"cors_origins": [PAGE]})
        assert (await stage.reload())[1]["changes"] == [f"listen.cors_origins: [] -> ['{PAGE}']"]
        assert told(await stage.ask(FROM_PAGE)) == READABLE
