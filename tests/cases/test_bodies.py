"""Bodies of any coding and any size pass with the label and the length that they came with (H22, H23)."""

from hashlib import sha256
from pathlib import Path

import orjson
import pytest
import yaml
from fakes.dialects import SAMPLES, Sample
from fakes.engine import Exchange, Script
from fakes.packing import CODINGS, chosen, packed
from fakes.raw import RawClient, Said, ask, chat, request
from fakes.sending import SSE, sends
from fakes.stage import staged

from proxy.config.settings import Listen
from proxy.model import Dialect, Outcome, Role

ROOT = Path(__file__).parents[2]
MIB = 1024 * 1024
DIALECT = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.dialect.value)

# ---------------------------------------------------------------- H22: answers

ACCEPTED = [None, "identity", *CODINGS, "br;q=0", "gzip;q=0.5, zstd", "br;q=0, gzip", "*", ""]
ACCEPT = pytest.mark.parametrize("accept", ACCEPTED, ids=repr)
KIND = pytest.mark.parametrize("kind", ["json", "chunked json", "sse"])
JSON_BODY = b'{"usage":{"prompt_tokens":5,"completion_tokens":3},"x":"' + b"x" * 500 + b'"}'
SSE_BODY = b"".join(SAMPLES[0].events) + SAMPLES[0].end


def negotiated(kind: str, status: str = "200 OK") -> Script:
    """Answers in the coding that the request accepts, as an engine with such a middleware does."""

    async def answer(exchange: Exchange) -> None:
        coding = chosen(exchange.request.header("accept-encoding"))
        body = packed(SSE_BODY if kind == "sse" else JSON_BODY, coding)
        lines = [f"content-encoding: {coding}", "vary: accept-encoding"] if coding else []
        lines.append(f"content-type: {SSE if kind == 'sse' else 'application/json'}")
        if kind == "json":
            await exchange.head(status, f"content-length: {len(body)}", *lines)
            return await exchange.send(body)
        await exchange.head(status, "transfer-encoding: chunked", *lines)
        await exchange.chunk(body[:20])
        await exchange.chunk(body[20:])
        return await exchange.end()

    return answer


def expected(kind: str, accept: str | None) -> tuple[bytes, str | None, str | None]:
    """Body, coding and length that the engine sends."""
    coding = chosen(accept)
    body = packed(SSE_BODY if kind == "sse" else JSON_BODY, coding)
    return body, coding, str(len(body)) if kind == "json" else None


def labelled(said: Said) -> tuple[bytes, str | None, str | None]:
    return said.body, said.header("content-encoding"), said.header("content-length")


@ACCEPT
@KIND
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_h22_body_coding_and_length_pass_together(accept: str | None, kind: str, version: str) -> None:
    lines = [] if accept is None else [f"accept-encoding: {accept}"]
    async with staged(a=negotiated(kind)) as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines, version=version))
        assert labelled(said) == expected(kind, accept)
        assert (await stage.ended_one()).outcome is Outcome.FINISHED


@ACCEPT
@pytest.mark.parametrize("role", ["speculative", "baseline"])
async def test_h22_engine_sees_exactly_the_clients_accept_encoding(accept: str | None, role: str) -> None:
    lines = [] if accept is None else [f"Accept-Encoding: {accept}"]
    async with staged(routing={"policy": "pinned", "pin": role}) as stage:
        await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines))
        (seen,) = (stage.a if role == "speculative" else stage.b).requests
        assert [value for name, value in seen.headers if name.lower() == "accept-encoding"] == (
            [] if accept is None else [accept]
        )


@ACCEPT
@pytest.mark.parametrize("role", Role)
async def test_h22_second_attempt_has_the_clients_accept_encoding(accept: str | None, role: Role) -> None:
    async def reset(exchange: Exchange) -> None:
        exchange.reset()

    lines = [] if accept is None else [f"Accept-Encoding: {accept}"]
    good = negotiated("json")
    first, second = (reset, good) if role is Role.SPECULATIVE else (good, reset)
    async with staged(a=first, b=second, routing={"policy": "pinned", "pin": role.value}) as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", chat(), *lines))
        assert (said.header("x-crossover-reason"), labelled(said)) == ("failover", expected("json", accept))
        for one in (*stage.a.requests, *stage.b.requests):
            assert [value for name, value in one.headers if name.lower() == "accept-encoding"] == (
                [] if accept is None else [accept]
            )


@ACCEPT
async def test_h22_model_list_passes_with_its_label(accept: str | None) -> None:
    """A question, not a generation: it goes another way through the proxy."""
    lines = [] if accept is None else [f"accept-encoding: {accept}"]
    async with staged(a=negotiated("json"), b=negotiated("json")) as stage:
        said = await ask(stage.app.port, request("/v1/models", b"", *lines, method="GET"))
        assert labelled(said) == expected("json", accept)


@pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error", "503 Service Unavailable"])
@pytest.mark.parametrize("coding", CODINGS)
async def test_h22_packed_error_of_an_engine_passes_with_its_label(coding: str, status: str) -> None:
    """Also one that was kept while the other engine was tried in vain."""
    refuse = negotiated("json", status)
    async with staged(a=refuse) as stage:
        await stage.b.close()
        line = f"accept-encoding: {coding}"
        said = await ask(stage.app.port, request("/v1/chat/completions", chat(), line))
        assert (said.status, labelled(said)) == (int(status[:3]), expected("json", coding))


async def test_h22_error_of_our_own_is_plain_whatever_is_accepted() -> None:
    async with staged(listen={"max_body_bytes": 1024}) as stage:
        said = await ask(stage.app.port, request("/v1/chat/completions", b"x" * 2000, "accept-encoding: gzip, br"))
        assert (said.header("content-encoding"), list(said.json)) == (None, ["error"])


async def test_h22_packed_argument_list_does_not_carry_keys_past_the_guard() -> None:
    async def arguments(exchange: Exchange) -> None:
        listed = orjson.dumps({"model_path": "m", "api_key": "engine-key"})
        await exchange.answer(packed(listed, "gzip"), "200 OK", "content-encoding: gzip")

    async with staged(a=arguments, b=arguments) as stage:
        said = await ask(stage.app.port, request("/get_server_info", b"", "accept-encoding: gzip", method="GET"))
        assert said.status == 403


# ---------------------------------------------------------------- H22: requests


@DIALECT
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_h22_packed_request_passes_and_weighs_one(sample: Sample, coding: str, chunked: bool) -> None:
    """What is in it is not ours to unpack: sixteen answers asked for count as one."""
    body = packed(orjson.dumps({**orjson.loads(sample.body), "n": 16, "sampling_params": {"n": 16}}), coding)
    async with staged(a=sends(*sample.events, sample.end, content_type=sample.content_type)) as stage:
        said = await uploaded(stage.app.port, body, sample.target, f"content-encoding: {coding}", chunked=chunked)
        seen = stage.a.requests[0]
        assert (seen.body, seen.header("content-encoding")) == (body, coding)
        assert (said.whole, (await stage.ended_one()).traits.weight) == (True, 1)


async def uploaded(
    port: int, body: bytes, target: str = "/v1/chat/completions", *lines: str, chunked: bool, version: str = "1.1"
) -> Said:
    """The answer to a body that is written whole before anything is read, as many clients do."""
    async with RawClient(port) as client:
        await upload(client, body, target, *lines, chunked=chunked, version=version)
        return await client.answer()


async def upload(client: RawClient, body: bytes, target: str, *lines: str, chunked: bool, version: str = "1.1") -> None:
    if not chunked:
        return await client.send(request(target, body, *lines, version=version))
    head = "\r\n".join((f"POST {target} HTTP/1.1", "host: x", "transfer-encoding: chunked", *lines, "", ""))
    await client.send(head.encode())
    for start in range(0, len(body), 65536):
        piece = body[start : start + 65536]
        await client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    return await client.send(b"0\r\n\r\n")


# ---------------------------------------------------------------- H23: sizes

SIZES = (1, 1024, 65536, MIB, 2 * MIB + 1, 10 * MIB, 40 * MIB)
CHUNKED = pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])


def image(size_bytes: int) -> bytes:
    """A chat body of this size with one image in it; below a hundred bytes, digits."""
    begin = b'{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
    end = b'"}}]}],"n":2}'
    filling = size_bytes - len(begin) - len(end)
    return b"1" * size_bytes if filling < 0 else begin + b"iVBORw0K" * (filling // 8) + b"A" * (filling % 8) + end


@CHUNKED
@pytest.mark.parametrize("size_bytes", SIZES)
async def test_h23_request_of_any_size_reaches_the_engine(size_bytes: int, chunked: bool) -> None:
    body = image(size_bytes)
    async with staged() as stage:
        said = await uploaded(stage.app.port, body, chunked=chunked)
        assert said.status == 200
        assert sha256(stage.a.requests[0].body).digest() == sha256(body).digest()


def test_h23_limit_is_at_least_64_mib_and_stands_in_the_yaml() -> None:
    example = yaml.safe_load((ROOT / "config" / "crossover.yaml").read_text())
    assert example["listen"]["max_body_bytes"] == Listen().max_body_bytes >= 64 * MIB


@CHUNKED
async def test_h23_body_of_just_the_limit_passes_and_one_byte_more_does_not(chunked: bool) -> None:
    async with staged(listen={"max_body_bytes": MIB}) as stage:
        said = [await uploaded(stage.app.port, image(MIB + more), chunked=chunked) for more in (0, 1)]
        assert [answer.status for answer in said] == [200, 413]


@CHUNKED
@pytest.mark.parametrize("times", [2, 20])
@pytest.mark.parametrize("target", [sample.target for sample in SAMPLES] + ["/v1/tokenize"])
async def test_h23_larger_body_gets_413_though_it_is_written_whole_first(
    target: str, times: int, chunked: bool
) -> None:
    """An answer, not a reset, which costs the client the answer; then the connection is closed or serves the next."""
    async with staged(listen={"max_body_bytes": MIB}) as stage, RawClient(stage.app.port) as client:
        await upload(client, b"x" * times * MIB, target, chunked=chunked)
        said = await client.answer()
        assert (said.status, said.whole) == (413, True)
        assert not stage.a.requests and not stage.b.requests
        if said.header("connection") == "close":
            assert await client.rest() == b""
        else:
            await client.send(request(body=chat()))
            assert (await client.answer()).status == 200


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@DIALECT
async def test_h23_413_has_its_dialects_body(sample: Sample, version: str) -> None:
    async with staged(listen={"max_body_bytes": 1024}) as stage:
        said = await uploaded(stage.app.port, b"x" * 2000, sample.target, chunked=False, version=version)
        error = said.json["error"]
        text = error if isinstance(error, str) else error["message"]  # type: ignore[index]
        assert "listen.max_body_bytes" in text
        if sample.dialect not in (Dialect.OLLAMA, Dialect.MESSAGES):
            assert sorted(error) == ["code", "message", "param", "type"]  # type: ignore[call-overload]


async def test_h23_413_comes_before_the_body_where_the_client_waits_for_leave_to_send_it() -> None:
    async with staged(listen={"max_body_bytes": 1024}) as stage, RawClient(stage.app.port) as client:
        lines = ("POST /v1/completions HTTP/1.1", "host: x", "content-length: 2000", "expect: 100-continue", "", "")
        await client.send("\r\n".join(lines).encode())
        said = await client.answer()
        assert (said.status, said.header("connection")) == (413, "close")


@CHUNKED
async def test_h23_413_is_logged_and_counted(chunked: bool, capsys: pytest.CaptureFixture[str]) -> None:
    async with staged(listen={"max_body_bytes": 1024}, log={"level": "info"}) as stage:
        await uploaded(stage.app.port, b"x" * 2000, chunked=chunked)
        await stage.ended_one()
        value = stage.app.metrics.registry.get_sample_value
        assert value("crossover_refusals_total", {"code": "body_too_large"}) == 1
        lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines() if "request_settled" in line]
        assert [(line["status"], line["failure"]) for line in lines] == [(413, "body_too_large")]


@DIALECT
async def test_h23_stream_goes_on_behind_a_line_too_long_to_read(sample: Sample) -> None:
    long = sample.events[0].replace(b"w0", b"w" * 3 * MIB)
    pieces = [long[at : at + 65536] for at in range(0, len(long), 65536)]
    pieces += [*sample.events, sample.end]
    async with staged(a=sends(*pieces, content_type=sample.content_type)) as stage:
        said = await ask(stage.app.port, request(sample.target, sample.body))
        ended = await stage.ended_one()
        assert (said.body, said.whole, ended.outcome) == (b"".join(pieces), True, Outcome.FINISHED)
