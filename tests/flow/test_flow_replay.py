"""The real proxy in front of two embedded engines, and its own log through the real command."""

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
from fakes.own_process import ROOT, own_process
from fakes.raw import RawClient, request

from proxy.lab.curves import DEFAULT_CURVE
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import ROLES

CLIENTS, EACH = 12, 20
LEAVE_AT = 3


def _chat(n: int) -> bytes:
    return orjson.dumps(
        {"model": "m", "max_tokens": 8 + n % 5, "messages": [{"role": "user", "content": "word " * (20 + n)}]}
    )


async def _client(port: int, seen: Counter[str]) -> None:
    async with RawClient(port) as client:
        for n in range(EACH):
            await client.send(request("/v1/chat/completions", _chat(n), "Content-Type: application/json"))
            said = await client.answer()
            assert said.status == 200
            seen[str(said.header("x-crossover-backend"))] += 1


async def _crossover(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", *argv),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    return out.decode()


async def test_a_proxy_s_own_log_is_replayed_with_what_it_saw(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        engines = {}
        for role in ROLES:
            engines[role] = EmbeddedEngine(EngineOptions(role=role, time_scale=0.02, health_latency_s=0.0))
            await engines[role].start()
            stack.push_async_callback(engines[role].stop)
        urls = [engines[role].url for role in ROLES]
        routing = {"policy": "overflow", "leave_at": LEAVE_AT}
        proxy = await stack.enter_async_context(own_process(tmp_path, *urls, routing=routing))
        await asyncio.gather(*(_client(proxy.port, seen) for _ in range(CLIENTS)))
    said = await _crossover(
        *("replay", str(tmp_path / "out"), "--curve", DEFAULT_CURVE),
        *("--policy", "overflow:2", "--json", str(tmp_path / "found.json")),
    )
    found = orjson.loads((tmp_path / "found.json").read_bytes())
    account = found["account"]
    assert account["kept"] == seen.total() == CLIENTS * EACH
    assert (account["estimated"], account["cut"], account["dropped"], account["left_out"]) == (0, 0, 0, {})
    assert account["skipped"]["other events"] > 0
    assert account["max_running"] == {"speculative": 48, "baseline": 2048}
    assert found["check"]["in_force"] == f"overflow:{LEAVE_AT}"
    assert f"as it is: overflow:{LEAVE_AT}" in said
    assert [row["way"] for row in found["rows"]] == [f"as it is: overflow:{LEAVE_AT}", "overflow:2"]
    assert set(seen) == set(ROLES)
    assert 0.0 < found["check"]["measured"]["share_speculative"] < 1.0
