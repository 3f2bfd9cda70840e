"""The operators' port asked from outside: its token, its certificate, and what is said when something is wrong."""

import asyncio
from pathlib import Path

import orjson
import pytest
from fakes.background import in_background
from fakes.engine import FakeEngine
from fakes.operators import STATUS, operators
from fakes.proxy import running, settings

from proxy.protocol.client_keys import line_for
from proxy.terminal import port, status
from proxy.terminal.port import TOKEN_VARIABLE, Port, Unanswered


def test_status_prints_what_a_running_proxy_tells(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    chosen = settings("http://127.0.0.1:1", "http://127.0.0.1:2")
    with in_background(running(chosen)) as app:
        assert status.show(f"http://127.0.0.1:{app.admin_port}/", as_json=True) == 1  # it has no backend
    told = orjson.loads(capsys.readouterr().out)
    assert (told["phase"], told["ready"]) == ("serving", False)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "not a url", "ftp://127.0.0.1:1"])
def test_status_says_when_nobody_answers(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert status.show(url) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "is this its admin port?" in said.err


async def test_status_says_when_something_else_answers(capsys: pytest.CaptureFixture[str]) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail ready\r\n")
        writer.close()

    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as server, FakeEngine() as engine:
        for number in (server.sockets[0].getsockname()[1], engine.port):
            engine.script = lambda exchange: exchange.answer(b"{}", "404 Not Found")
            assert await asyncio.to_thread(status.show, f"http://127.0.0.1:{number}") == 1
            assert "is this its admin port?" in capsys.readouterr().err


def test_a_token_file_that_is_not_there_is_named_and_counts_from_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nosuch"
    assert status.show("http://127.0.0.1:1", missing) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"no status: --token-file names no regular file ({missing}); mend: ")
    assert "configuration" not in said


def test_a_wrong_token_is_told_apart_from_a_missing_one_by_where_it_came_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    wrong = tmp_path / "token"
    wrong.write_text("not-this-one\n")
    chosen = settings("http://127.0.0.1:1", "http://127.0.0.1:2", admin={"token": "a-token-of-operators"})
    with in_background(running(chosen)) as app:
        url = f"http://127.0.0.1:{app.admin_port}"
        assert status.show(url) == status.show(url, wrong) == 1
        monkeypatch.setenv(TOKEN_VARIABLE, "nor-this")
        assert status.show(url) == 1
    missing, of_file, of_variable = capsys.readouterr().err.splitlines()
    assert "give --token-file" in missing
    assert f"the token of --token-file {wrong} is wrong" in of_file
    assert f"the token of {TOKEN_VARIABLE} is wrong" in of_variable


def test_the_clients_port_is_known_as_the_wrong_one_with_and_without_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token-of-operators")
    keys = tmp_path / "keys"
    keys.write_text(line_for("alpha", "crossover_x"))
    for listen in ({}, {"api_keys_file": str(keys)}):
        chosen = settings("http://127.0.0.1:1", "http://127.0.0.1:2", listen=listen)
        with in_background(running(chosen)) as app:
            assert status.show(f"http://127.0.0.1:{app.port}") == 1
        said = capsys.readouterr().err
        assert "is this its admin port?" in said
        assert "token" not in said


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff\xfe"])
def test_an_answer_that_is_no_object_is_not_a_crossovers(body: bytes) -> None:
    with operators(status=(200, body)) as scene, pytest.raises(Unanswered, match="is this its admin port"):
        Port(scene.url).json("/status")


def test_an_answer_that_is_larger_than_any_of_a_proxys_is_told_and_not_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = orjson.dumps(STATUS)
    with operators(status=(200, body)) as scene:
        monkeypatch.setattr(port, "MAX_ANSWER_BYTES", len(body))
        assert status.show(scene.url) == 0
        monkeypatch.setattr(port, "MAX_ANSWER_BYTES", len(body) - 1)
        assert status.show(scene.url) == 1
    assert f"answers with more than {len(body) - 1:,} bytes; is this its admin port?" in capsys.readouterr().err


def test_what_the_proxy_itself_says_is_wrong_is_kept() -> None:
    with operators(thing=(404, {"error": "nobody knows"})) as scene, pytest.raises(Unanswered) as refused:
        Port(scene.url).text("/thing")
    assert (refused.value.status, refused.value.told) == (404, "nobody knows")


def test_a_file_of_authorities_that_is_none_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("")
    for file in (empty, tmp_path / "missing"):
        with pytest.raises(Unanswered, match=r"--ca .*mend: name a PEM file"):
            Port("https://127.0.0.1:1", ca_file=file)


def test_words_of_others_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 \x1b[2J\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async def ask() -> None:
        async with await asyncio.start_server(answers, "127.0.0.1", 0) as server:
            await asyncio.to_thread(status.show, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")

    asyncio.run(ask())
    said = capsys.readouterr().err
    assert "404" in said and "\x1b" not in said


def test_a_port_that_is_asked_by_a_foreign_name_tells_the_mend(capsys: pytest.CaptureFixture[str]) -> None:
    with operators(status=(421, {"error": "use the address, or set admin.token"})) as scene:
        assert status.show(scene.url) == 1
    assert "use the address, or set admin.token" in capsys.readouterr().err
