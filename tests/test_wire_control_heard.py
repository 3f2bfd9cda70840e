"""What the proxy's own questions to an engine came to is told to people: each cause has its own mend."""

import contextlib
import socket

import pytest
from fakes.engine import Exchange, FakeEngine
from fakes.unfreed import unfreed

from proxy.errors import UpstreamError
from proxy.wire.control import Control, Heard
from proxy.wire.names import Addresses, Names


async def heard(url: str, names: Names | None = None, within_s: float = 30.0) -> Heard:
    control = Control(url, api_key=None, connect_s=30, names=names)
    try:
        with contextlib.suppress(UpstreamError):
            await control.get("/ready", within_s=within_s)
    finally:
        await control.close()
    return control.heard


async def test_the_status_of_an_answer_is_heard() -> None:
    async def missing(exchange: Exchange) -> None:
        await exchange.answer(b"no", "404 Not Found")

    async with FakeEngine() as engine:
        engine._serve = missing  # type: ignore[method-assign]
        assert await heard(engine.url) == Heard(answered=404)


async def test_a_port_on_which_nobody_listens_refuses() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert await heard(url) == Heard(failure="connection refused")


async def test_nothing_of_a_question_that_nobody_hears_waits_for_the_garbage_collector() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        control = Control(f"http://127.0.0.1:{unused.getsockname()[1]}", api_key=None, connect_s=30)
        with unfreed() as found, contextlib.suppress(UpstreamError):
            await control.get("/ready", within_s=30)
        await control.close()
    assert not found


@pytest.mark.parametrize(
    ("number", "words"),
    [(socket.EAI_NONAME, "its name is not known"), (socket.EAI_AGAIN, "its name could not be looked up")],
)
async def test_a_name_without_an_address_is_not_known(number: int, words: str) -> None:
    async def machine(_host: str, _port: int) -> Addresses:
        raise socket.gaierror(number, "no")

    assert await heard("http://engine.test:1", Names(machine)) == Heard(failure=words)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "none within 0.05 s"),
        (b"", "the connection was broken off"),
        (b"SSH-2.0-x\r\n\r\n", "what is there does not speak HTTP"),
    ],
)
async def test_who_takes_the_connection_and_answers_nothing_is_told_so(said: bytes | None, words: str) -> None:
    async def odd(exchange: Exchange) -> None:
        if said is None:
            await exchange.gone()
        await exchange.send(said or b"")
        exchange.writer.close()

    async with FakeEngine() as engine:
        engine._serve = odd  # type: ignore[method-assign]
        assert await heard(engine.url, within_s=0.05 if said is None else 30.0) == Heard(failure=words)
