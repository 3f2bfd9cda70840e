"""Clients send at their times and wait for nobody."""

import asyncio
import json
from dataclasses import asdict, replace
from time import monotonic

import orjson
from fakes.engine import Exchange, FakeEngine, stream
from pair.arrivals import Step, arrivals
from pair.drive import UNFINISHED, Clients, Job, read

from proxy.lab.loadcall import open_session
from proxy.lab.prompts import PromptKind

JOB = Job("http://127.0.0.1:1", "m", (Step(200.0, 0.1), Step(400.0, 0.1)), 20, 1, 1, "n", PromptKind.PROSE, 10.0, 0, 1)


async def sent(job: Job, engine: FakeEngine) -> list[dict[str, object]]:
    async with open_session() as session:
        clients = Clients(replace(job, url=engine.url), session)
        await clients.send_all(monotonic())
    return [orjson.loads(line) for line in clients.lines]


def test_a_job_is_read_as_it_was_written() -> None:
    assert read(json.dumps(asdict(JOB))) == JOB


def test_processes_share_the_requests_out_and_leave_none() -> None:
    parts = [replace(JOB, part=part, parts=3).mine() for part in range(3)]

    assert sorted(one for part in parts for one in part) == arrivals(JOB.steps, JOB.tokens, JOB.seed)
    assert all(parts)


async def test_every_request_is_sent_with_its_length_and_told_in_one_line() -> None:
    async with FakeEngine() as engine:
        lines = await sent(JOB, engine)
        asked = [orjson.loads(each.body) for each in engine.requests if each.method == "POST"]

    wanted = arrivals(JOB.steps, JOB.tokens, JOB.seed)
    assert sorted(each["max_tokens"] for each in asked) == sorted(one.tokens for one in wanted)
    assert all(each["ignore_eos"] and each["temperature"] == 0 for each in asked)
    assert sorted(line["index"] for line in lines) == [one.index for one in wanted]  # type: ignore[type-var]
    assert {line["error"] for line in lines} == {None}


async def test_requests_are_sent_though_none_before_them_is_answered() -> None:
    answer = asyncio.Event()
    most = 0

    async def held(exchange: Exchange) -> None:
        nonlocal most
        most += 1
        if most == len(JOB.mine()):
            answer.set()
        await answer.wait()
        await stream(exchange)

    async with FakeEngine(script=held) as engine:
        lines = await sent(JOB, engine)

    assert {line["error"] for line in lines} == {None}


async def test_an_answer_that_does_not_end_in_time_is_told_as_unfinished() -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.stream_head()
        await exchange.gone()

    async with FakeEngine(script=silent) as engine:
        lines = await sent(replace(JOB, drain_s=0.2), engine)

    assert len(lines) == len(JOB.mine())
    assert {line["error"] for line in lines} == {UNFINISHED}
