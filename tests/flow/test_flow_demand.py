"""Whose request counts as demand: not those that nobody serves, whoever gave them up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.curves import context, measured, write
from fakes.engine import Exchange, Script, either
from fakes.failing import fail, hang
from fakes.raw import RawClient, chat, request
from fakes.stage import Stage, staged
from fakes.until import until

from proxy.model import Outcome, Role


@contextlib.asynccontextmanager
async def counting(folder: Path, a: Script, b: Script, **more: int) -> AsyncIterator[Stage]:
    """Two engines on shared GPUs, with curves, so that demand is counted."""
    speeds = [{"in_flight": 1, "tok_s": 100}, {"in_flight": 64, "tok_s": 900}]
    bucket = context(
        speculative=speeds,
        baseline=[dict(each) for each in speeds],
        ratio=[],
        crossings=[],
        verdict="unknown",
        reason="few",
    )
    curves = write(folder, measured(placement="shared", contexts=[bucket]))
    routing = {"policy": "auto", "curves_file": str(curves), "allow_header": True}
    circuit = {"max_failures": 1000}
    async with staged(a, b, placement="shared", routing=routing, circuit=circuit, **more) as stage:  # type: ignore[arg-type]
        yield stage


async def busy(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"busy"}}', "503 Service Unavailable")


async def wrong(exchange: Exchange) -> None:
    await exchange.answer(b'{"error":{"message":"no such thing"}}', "400 Bad Request")


def asked(stage: Stage) -> float:
    return stage.app.desk.regime.demand.tok_s


async def test_a_burst_of_clients_that_leave_before_the_first_token_leaves_no_demand(tmp_path: Path) -> None:
    async with counting(tmp_path, hang, hang) as stage:
        for number in range(1, 6):
            async with RawClient(stage.app.port) as client:
                await client.send(request(body=chat(n=32)))
                await until(lambda: asked(stage) > 0.0, what="the demand of one who waits")
            await until(lambda number=number: len(stage.ended) == number, what="its end")
            assert asked(stage) == 0.0
        assert {facts.outcome for facts in stage.ended} == {Outcome.CLIENT_GONE_WAITING}


@pytest.mark.parametrize("fault", [busy, fail, wrong])
async def test_a_request_that_no_engine_serves_is_no_demand(tmp_path: Path, fault: Script) -> None:
    async with counting(tmp_path, fault, fault) as stage:
        assert (await stage.ask()).status >= 400
        await stage.ended_one()
        assert (len(stage.app.desk.ring) > 0, asked(stage)) == (True, 0.0)


@pytest.mark.parametrize("fault", [busy, fail])
async def test_a_request_that_the_other_engine_serves_is_demand_once(tmp_path: Path, fault: Script) -> None:
    async with counting(tmp_path, fault, either) as stage:
        said = await stage.ask("x-crossover-backend: speculative")
        assert (said.status, said.header("x-crossover-reason")) == (200, "failover")
        first = stage.app.desk.ring[0].decision.regime.demand.tok_s
        assert asked(stage) == pytest.approx(first, rel=0.2)


async def test_while_a_failed_request_waits_for_the_other_engine_it_is_demand(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def gated(exchange: Exchange) -> None:
        await gate.wait()
        await either(exchange)

    async with (
        counting(tmp_path, busy, gated) as stage,
        RawClient(stage.app.port) as client,
    ):
        await client.send(request("/v1/chat/completions", chat(), "x-crossover-backend: speculative"))
        await until(lambda: stage.app.desk.backend(Role.BASELINE).book.in_flight == 1, what="the second attempt")
        assert asked(stage) > 0.0
        client.leave()
        await until(lambda: stage.ended, what="its end")
        assert asked(stage) == 0.0
        gate.set()
