"""`crossover explain`, `status` and `top` beside a running proxy: what they say is what happened."""

import asyncio
from typing import Any

import pytest
from fakes.engine import Exchange
from fakes.failing import fail
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.__main__ import main
from proxy.model import Role
from proxy.terminal.frame import frame
from proxy.terminal.port import Port
from proxy.terminal.top import text_of
from proxy.terminal.view import look


async def said(stage: Stage, capsys: pytest.CaptureFixture[str], command: str, *words: str) -> tuple[int, str]:
    """A command against the operators' port: its exit code, and all that it printed."""
    url = f"http://127.0.0.1:{stage.app.admin_port}"
    code = await asyncio.to_thread(main, [command, *words, url])
    told = capsys.readouterr()
    return code, " ".join((told.out + told.err).split())


async def asked(stage: Stage, request_id: str, **how: Any) -> None:
    ended = len(stage.ended)
    await stage.ask(f"x-request-id: {request_id}", **how)
    assert len(stage.ended) == ended + 1


async def test_a_request_that_went_well_is_explained_from_its_reason_to_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with staged(routing={"policy": "overflow", "leave_at": 9, "affinity": {"enabled": False}}) as stage:
        await asked(stage, "mine", stream=True)
        code, told = await said(stage, capsys, "explain", "mine")
    assert code == 0
    assert "asked /v1/chat/completions for 1 sequence as a stream" in told
    assert "It went to speculative: speculative had 0 sequences in flight, and gets up to 9 (leave_at)." in told
    assert "It ended well after" in told and "with status 200" in told


async def test_a_failover_is_explained_with_both_backends_and_the_failure(capsys: pytest.CaptureFixture[str]) -> None:
    async with staged(a=fail) as stage:
        await asked(stage, "moved")
        _, told = await said(stage, capsys, "explain", "moved")
    assert "It went to speculative" in told
    assert "Speculative failed it before the answer began (backend_broken), so it was sent to baseline." in told
    assert "It ended well" in told


async def test_a_request_that_no_backend_had_room_for_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    gate = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.answer(b"{}")

    async with staged(a=hold, b=hold, max_in_flight=1, queue={"max_waiting": 0}) as stage:
        running = [asyncio.create_task(stage.ask()) for _ in range(2)]
        await until(lambda: stage.in_flight == 2)
        await asked(stage, "refused")
        _, told = await said(stage, capsys, "explain", "refused")
        gate.set()
        await asyncio.gather(*running)
    assert "It was refused after" in told and "with status 429" in told
    assert "no backend had room and queue.max_waiting requests waited already (queue_full)" in told


async def test_why_the_other_backend_was_out_of_service_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with staged() as stage:
        stage.app.drain_backend(Role.SPECULATIVE, draining=True)
        await asked(stage, "drained")
        _, told = await said(stage, capsys, "explain", "drained")
        code, status = await said(stage, capsys, "status")
    assert "It went to baseline: speculative took nothing new: an operator drains it." in told
    assert code == 0
    assert "All requests go to baseline, since speculative is draining." in status


async def test_an_id_that_nobody_knows_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    async with staged() as stage:
        code, told = await said(stage, capsys, "explain", "nobody/..?#")
    assert code == 1
    assert told.startswith("no request of this id is remembered") and "log" in told


async def test_top_shows_what_was_decided_and_why() -> None:
    async with staged(routing={"policy": "overflow", "leave_at": 9, "affinity": {"enabled": False}}) as stage:
        await asked(stage, "a-request")
        view = await asyncio.to_thread(look, Port(f"http://127.0.0.1:{stage.app.admin_port}"))
    told = " ".join(" ".join(map(text_of, frame(view, 120, 40))).split())
    assert "a-reques speculative room 0+0" in told
    assert "New requests go to speculative" in told and "is up" in told
