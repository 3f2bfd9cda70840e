"""A second `crossover serve` beside a running proxy, on the same configuration: what it says and how it ends."""

import asyncio
import sys
from pathlib import Path

import yaml
from fakes.stage import Stage

ROOT = Path(__file__).parents[2]


def written(path: Path, stage: Stage, **ports: int) -> Path:
    """The configuration of the running proxy as a file, with the ports that it really has."""
    values = {
        "listen": {"host": "127.0.0.1", "port": ports.get("listen", stage.app.port)},
        "admin": {"host": "127.0.0.1", "port": ports.get("admin", stage.app.admin_port)},
        "backends": {"speculative": {"url": stage.a.url}, "baseline": {"url": stage.b.url}},
    }
    path.write_text(yaml.safe_dump(values))
    return path


async def second_process(path: Path, *options: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", str(path), *options),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(100):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode()
