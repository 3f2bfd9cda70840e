"""What life plays on: the proxy and two embedded engines as an operator starts them, in processes and in real time; or
all of them in one loop whose clock leaps, where no machine is too slow."""

import asyncio
import contextlib
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import aiohttp
from bench.life_play import Played, Unlike, play
from bench.life_scene import MAX_IN_FLIGHT, Scene
from bench.processes import ENVIRONMENT, ROOT, free_port, prepared
from fakes.leaping import LeapingSocketLoop
from fakes.proxy import running
from fakes.until import until_told

from proxy import config
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.realtime import Gpus
from proxy.lab.simulation.arrivals import Offer
from proxy.model import ROLES, Placement, Role

UP_WITHIN_S = 30.0


def leapt(scene: Scene, offers: Sequence[Offer], seed: int) -> tuple[Played, Path]:
    """Play on a clock that leaps; what was seen, and the configuration file in a folder of its own, the caller's to
    remove. Raises Unlike."""
    with asyncio.Runner(loop_factory=LeapingSocketLoop) as runner:
        return runner.run(_leapt(scene, offers, seed))


async def _leapt(scene: Scene, offers: Sequence[Offer], seed: int) -> tuple[Played, Path]:
    clock = asyncio.get_running_loop().time
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(patch("proxy.app.time", SimpleNamespace(monotonic=clock, time=time.time)))
        urls = {}
        gpus = Gpus() if scene.placement is Placement.SHARED else None
        for role in ROLES:
            options = EngineOptions(
                curve=scene.curve,
                role=role,
                seed=seed,
                time_scale=scene.slower,
                max_running_requests=MAX_IN_FLIGHT,
                health_latency_s=0.0,
            )
            engine = EmbeddedEngine(options, gpus)
            await engine.start()
            stack.push_async_callback(engine.stop)
            urls[role] = engine.url
        path = scene.write(Path(tempfile.mkdtemp(prefix="crossover-life-")), urls, (0, 0))
        app = await stack.enter_async_context(running(config.load(path, {})))
        return await play(f"http://127.0.0.1:{app.port}", offers), path


async def lived(scene: Scene, offers: Sequence[Offer], seed: int) -> tuple[Played, Path]:
    """Play in real time on processes, otherwise as `leapt`."""
    async with contextlib.AsyncExitStack() as stack:
        urls = await stack.enter_async_context(_engines(scene, seed))
        ports = (free_port(), free_port())
        path = scene.write(Path(tempfile.mkdtemp(prefix="crossover-life-")), urls, ports)
        proxy = await stack.enter_async_context(_process("serve", str(path)))
        url = f"http://127.0.0.1:{ports[0]}"
        await _until_up(url, proxy)
        return await play(url, offers), path


@contextlib.asynccontextmanager
async def _engines(scene: Scene, seed: int) -> AsyncIterator[Mapping[Role, str]]:
    asked = ("--curve", scene.curve, "--time-scale", f"{scene.slower:g}", "--seed", str(seed), "--die-with-parent")
    asked += ("--max-running-requests", str(MAX_IN_FLIGHT))
    ports: list[int] = []
    async with contextlib.AsyncExitStack() as stack:
        shared = scene.placement is Placement.SHARED
        for kind in [("--shared",)] if shared else [("--role", role.value) for role in ROLES]:
            process = await stack.enter_async_context(_process("engine", *asked, *kind))
            assert process.stdout is not None
            ports += [int(word) for word in (await process.stdout.readline()).split()[1:]]
        yield {role: f"http://127.0.0.1:{port}" for role, port in zip(ROLES, ports, strict=True)}


@contextlib.asynccontextmanager
async def _process(*command: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *prepared((sys.executable, "-P", "-m", "proxy", *command)),
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _until_up(url: str, proxy: Process) -> None:
    async with aiohttp.ClientSession() as session:
        await until_told(lambda: _is_up(session, url, proxy), UP_WITHIN_S)


async def _is_up(session: aiohttp.ClientSession, url: str, proxy: Process) -> bool:
    if proxy.returncode is not None:
        raise Unlike("the proxy did not start")
    with contextlib.suppress(aiohttp.ClientError):
        async with session.get(f"{url}/v1/models") as answer:
            return answer.status == 200
    return False
