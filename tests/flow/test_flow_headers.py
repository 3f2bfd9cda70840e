"""What of the headers crosses, both ways, as raw bytes (H22, H24, H28)."""

import gzip

import pytest
from fakes.engine import Exchange, FakeEngine, plain
from fakes.proxy import running, settings
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.stage import staged


async def sent(*lines: str, body: bytes = b"") -> dict[str, str]:
    """The headers that the engine saw, names in lower case."""
    async with staged() as stage:
        await ask(stage.app.port, request("/v1/chat/completions", body or chat(), *lines))
        return {name.lower(): value for name, value in stage.a.requests[0].headers}


async def answered(*lines: str, body: bytes = b"{}", status: str = "200 OK") -> Said:
    """What the client sees of an engine's answer with these header lines."""

    async def answer(exchange: Exchange) -> None:
        await exchange.head(status, f"content-length: {len(body)}", *lines)
        await exchange.send(body)

    async with staged(a=answer) as stage:
        return await stage.ask()


# ---------------------------------------------------------------- towards the engine


async def test_engine_sees_nothing_that_nobody_sent() -> None:
    async with staged() as stage:
        await ask(stage.app.port, request(body=chat()))
        names = sorted(name.lower() for name, _ in stage.a.requests[0].headers)
        assert names == ["content-length", "host", "x-crossover-attempt", "x-forwarded-for", "x-request-id"]


HOP = ("connection: close, X-Hop", "x-hop: 1", "keep-alive: 5", "te: trailers", "trailer: x-t", "proxy-connection: a")


@pytest.mark.parametrize("name", ["connection", "x-hop", "keep-alive", "te", "trailer", "proxy-connection"])
async def test_hop_by_hop_header_is_not_passed_to_the_engine(name: str) -> None:
    assert name not in await sent(*HOP)


async def test_proxy_credentials_are_not_passed_to_the_engine() -> None:
    assert "proxy-authorization" not in await sent("proxy-authorization: Basic abc")


async def test_host_is_the_engines() -> None:
    async with staged() as stage:
        await ask(stage.app.port, request("/v1/chat/completions", chat(), host="169.254.169.254"))
        hosts = [value for name, value in stage.a.requests[0].headers if name.lower() == "host"]
        assert hosts == [f"127.0.0.1:{stage.a.port}"]


async def test_forwarded_addresses_are_one_line_with_our_peer_at_its_end() -> None:
    async with staged() as stage:
        lines = ("x-forwarded-for: 10.0.0.1", "x-forwarded-for: 10.0.0.2, 10.0.0.3")
        await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines))
        hops = [value for name, value in stage.a.requests[0].headers if name.lower() == "x-forwarded-for"]
        assert hops == ["10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1"]


async def test_own_instructions_are_not_passed_to_the_engine() -> None:
    assert "x-crossover-backend" not in await sent("x-crossover-backend: baseline")


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/tokenize"])
async def test_body_of_no_bytes_is_told_to_the_engine_as_one(target: str) -> None:
    async with staged() as stage:
        for lines in (("content-length: 0",), ()):
            head = "\r\n".join((f"POST {target} HTTP/1.1", "host: x", *lines, "", ""))
            await ask(stage.app.port, head.encode())
        seen = [one.header("content-length") for one in (*stage.a.requests, *stage.b.requests)]
        assert seen == ["0", None]


@pytest.mark.parametrize("value", ["gzip", "identity", "zstd, br;q=0", ""])
async def test_accept_encoding_is_the_clients(value: str) -> None:
    assert (await sent(f"accept-encoding: {value}"))["accept-encoding"] == value


async def test_unknown_headers_pass_with_their_values() -> None:
    assert (await sent('X-Odd_Name: a  b;\tc="d" é'.encode().decode("latin-1")))["x-odd_name"].startswith("a  b;\tc=")


async def test_repeated_headers_stay_repeated() -> None:
    async with staged() as stage:
        await ask(stage.app.port, request("/v1/chat/completions", chat(), "x-a: 1", "x-a: 2"))
        assert [value for name, value in stage.a.requests[0].headers if name.lower() == "x-a"] == ["1", "2"]


async def test_packed_request_body_is_passed_as_it_is() -> None:
    packed = gzip.compress(chat())
    async with staged() as stage:
        await ask(stage.app.port, request("/v1/chat/completions", packed, "content-encoding: gzip"))
        seen = stage.a.requests[0]
        assert (seen.body, seen.header("content-encoding")) == (packed, "gzip")


# ---------------------------------------------------------------- keys


async def keyed(*lines: str) -> dict[str, str]:
    """The headers that an engine with a key of its own saw."""
    async with FakeEngine() as a, FakeEngine(role="baseline") as b:
        chosen = settings(
            a.url,
            b.url,
            backends={"speculative": {"url": a.url, "api_key": "engine-key"}, "baseline": {"url": b.url}},
        )
        async with running(chosen) as app:
            await ask(app.port, request("/v1/chat/completions", chat(), *lines))
        return {name.lower(): value for name, value in a.requests[0].headers}


@pytest.mark.parametrize("line", ["authorization: Bearer client-key", "x-api-key: client-key"])
async def test_clients_key_passes_when_the_engine_has_none(line: str) -> None:
    name, _, value = line.partition(": ")
    assert (await sent(line))[name] == value


async def test_clients_key_is_replaced_when_the_engine_has_its_own() -> None:
    assert (await keyed("authorization: Bearer client-key"))["authorization"] == "Bearer engine-key"


@pytest.mark.parametrize("line", ["authorization: Bearer client-key", "x-api-key: client-key"])
async def test_clients_key_does_not_reach_an_engine_with_its_own(line: str) -> None:
    assert not any("client-key" in value for value in (await keyed(line)).values())


async def test_engines_key_does_not_reach_the_other_engine() -> None:
    async def fail(exchange: Exchange) -> None:
        exchange.reset()

    async with FakeEngine(script=fail) as a, FakeEngine(role="baseline") as b:
        chosen = settings(
            a.url,
            b.url,
            backends={"speculative": {"url": a.url, "api_key": "engine-key"}, "baseline": {"url": b.url}},
        )
        async with running(chosen) as app:
            await ask(app.port, request(body=chat()))
        assert b.requests[0].header("authorization") is None


# ---------------------------------------------------------------- towards the client


@pytest.mark.parametrize("name", ["keep-alive", "x-hop", "proxy-authenticate", "upgrade", "trailer"])
async def test_hop_by_hop_header_is_not_passed_to_the_client(name: str) -> None:
    said = await answered(
        "connection: keep-alive, X-Hop", "x-hop: 1", "keep-alive: timeout=5", "proxy-authenticate: x", "trailer: x-t"
    )
    assert said.header(name) is None


@pytest.mark.parametrize("location", ["https://elsewhere.example/v1/x?a=%2F", "/v1/chat/completions/"])
async def test_redirect_passes_with_its_location(location: str) -> None:
    said = await answered(f"location: {location}", status="307 Temporary Redirect")
    assert (said.status, said.header("location")) == (307, location)


async def test_redirect_is_not_followed() -> None:
    async with FakeEngine() as elsewhere:

        async def away(exchange: Exchange) -> None:
            await exchange.answer(b"", "307 Temporary Redirect", f"location: {elsewhere.url}/v1/chat/completions")

        async with staged(a=away) as stage:
            await stage.ask()
        assert not elsewhere.requests


async def test_repeated_answer_headers_stay_repeated() -> None:
    said = await answered("set-cookie: a=1", "set-cookie: b=2")
    assert [value for name, value in said.headers if name.lower() == "set-cookie"] == ["a=1", "b=2"]


async def test_packed_answer_is_passed_as_it_is() -> None:
    packed = gzip.compress(b'{"usage":{}}')
    said = await answered("content-encoding: gzip", "content-type: application/json", body=packed)
    assert (said.body, said.header("content-encoding"), said.whole) == (packed, "gzip", True)


async def test_packed_stream_is_passed_as_it_is() -> None:
    packed = gzip.compress(b"data: [DONE]\n\n")

    async def answer(exchange: Exchange) -> None:
        await exchange.head(
            "200 OK", "content-type: text/event-stream", "content-encoding: gzip", "transfer-encoding: chunked"
        )
        await exchange.chunk(packed)
        await exchange.end()

    async with staged(a=answer) as stage:
        said = await stage.ask(stream=True)
        assert (said.body, said.whole) == (packed, True)


@pytest.mark.parametrize("name", ["date", "server"])
async def test_header_that_servers_add_is_there_once(name: str) -> None:
    said = await answered("date: Mon, 01 Jan 2024 00:00:00 GMT", "server: uvicorn")
    assert [key.lower() for key, _ in said.headers].count(name) == 1


async def test_server_is_the_engines() -> None:
    assert (await answered("server: uvicorn")).header("server") == "uvicorn"


async def test_error_of_ours_does_not_tell_what_it_runs_on() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, request("/v1/unheard-of", method="GET"))
        assert "aiohttp" not in (said.header("server") or "")


async def test_engines_own_stamps_give_way_to_ours() -> None:
    said = await answered("x-crossover-backend: baseline", "x-request-id: theirs")
    assert [value for name, value in said.headers if name.lower() == "x-crossover-backend"] == ["speculative"]


@pytest.mark.parametrize(
    "name",
    ["x-request-id", "x-crossover-backend", "x-crossover-reason", "x-crossover-in-flight", "x-crossover-because"],
)
async def test_answer_is_stamped(name: str) -> None:
    assert (await answered()).header(name)


async def test_answer_without_a_body_has_none() -> None:
    async def empty(exchange: Exchange) -> None:
        await exchange.head("204 No Content")

    async with staged(a=empty) as stage, RawClient(stage.app.port) as client:
        for _ in range(2):
            await client.send(request(body=chat()))
            said = await client.answer()
            assert (said.status, said.header("transfer-encoding"), said.body) == (204, None, b"")


async def test_interim_answers_of_an_engine_are_passed_over() -> None:
    async def hints(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n")
        await plain(exchange)

    async with staged(a=hints) as stage:
        assert (await stage.ask()).status == 200


async def test_answer_of_an_old_engine_is_passed() -> None:
    async def old(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{}")
        exchange.writer.close()

    async with staged(a=old) as stage:
        said = await stage.ask()
        assert (said.status, said.body, said.whole) == (200, b"{}", True)


# ---------------------------------------------------------------- bytes that are not ASCII

LATIN = b"x-name: Jos\xe9\r\n"
UTF8 = b"x-name: Jos\xc3\xa9\r\n"


def with_line(line: bytes) -> bytes:
    head, _, body = request(body=chat()).partition(b"\r\n\r\n")
    return head + b"\r\n" + line + b"\r\n" + body


@pytest.mark.parametrize("line", [LATIN, UTF8], ids=["latin", "utf8"])
async def test_request_with_a_header_beyond_ascii_is_served(line: bytes) -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, with_line(line))
        assert (said.status, said.header("x-crossover-reason")) == (200, "room")


@pytest.mark.parametrize(("line", "value"), [(LATIN, "Jos\xe9"), (UTF8, "Jos\xc3\xa9")], ids=["latin", "utf8"])
async def test_request_header_beyond_ascii_passes_unchanged(line: bytes, value: str) -> None:
    async with staged() as stage:
        await ask(stage.app.port, with_line(line))
        assert stage.a.requests[0].header("x-name") == value


@pytest.mark.parametrize("line", [LATIN, UTF8], ids=["latin", "utf8"])
async def test_answer_with_a_header_beyond_ascii_is_passed(line: bytes) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + line + b"\r\n{}")

    async with staged(a=answer) as stage:
        said = await stage.ask()
        assert (said.status, said.body, said.header("x-crossover-reason")) == (200, b"{}", "room")


@pytest.mark.parametrize(("line", "value"), [(LATIN, "Jos\xe9"), (UTF8, "Jos\xc3\xa9")], ids=["latin", "utf8"])
async def test_answer_header_beyond_ascii_passes_unchanged(line: bytes, value: str) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + line + b"\r\n{}")

    async with staged(a=answer) as stage:
        assert (await stage.ask()).header("x-name") == value


async def test_request_id_beyond_ascii_is_replaced() -> None:
    async with staged() as stage:
        said = await ask(stage.app.port, with_line(b"x-request-id: \xe9\r\n"))
        assert (said.header("x-request-id") or "").isascii()
