"""Measures a real pair: each engine alone and both behind the proxy, in one run, as rows of a Markdown table.

Engines run on the processor, so beside tok/s stands what is not a matter of what else the machine does: tokens for each
second of processor time of the engines. Not here: the pair itself (real_pair.py).

    scripts/serve --real never --help       installs what it needs
    .venv/bin/python scripts/real_table.py crossover [--levels 1,2,4,8] [--rounds 3] [--tokens 24]
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import aiohttp
from real_pair import MODEL_NAME, REGIMES, Pair

from proxy import config, logs
from proxy.app import App
from proxy.lab.loadcall import Shape, Target, call, open_session
from proxy.lab.prompts import PromptKind, choose

PROXY = "proxy"
ARMS = ("speculative", "baseline", PROXY)
# Requests of each worker, one after another: the first ones tell the proxy how many there are.
REQUESTS = 2
# The engines' own times are in ticks of this many a second.
TICKS_S = os.sysconf("SC_CLK_TCK")
# Quicker than one would have it in front of people, so that a level is over the change that it brings.
ROUTING = {"min_dwell_s": 1.0, "smoothing_s": 1.0}


@dataclass
class Row:
    """One arm at one level, over all rounds: output tok/s, tokens a second of processor time, where each worker's last
    request went, and how many failed."""

    tok_s: list[float] = field(default_factory=list)
    tok_cpu_s: list[float] = field(default_factory=list)
    went: Counter[str] = field(default_factory=Counter)
    failed: int = 0


def main() -> int:
    """Measure one regime and print its rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--levels", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    with Pair(options.regime) as pair:
        asyncio.run(_measure(pair, options))
    return 0


async def _measure(pair: Pair, options: argparse.Namespace) -> None:
    said = pair.settings(listen={"host": "127.0.0.1", "port": 0}, admin={"port": 0}, log={"level": "error"})
    said["routing"] |= ROUTING
    settings = config.from_mapping(said)
    app = App(settings, logs.configure("json", "error"), lambda: settings)
    await app.start()
    try:
        async with open_session() as session:
            load = partial(_load, tokens=options.tokens, pids=pair.pids)
            urls = {**pair.urls, PROXY: f"http://127.0.0.1:{app.port}"}
            for level in map(int, options.levels.split(",")):
                rows = {arm: Row() for arm in ARMS}
                for arm in ARMS:
                    await load(session, urls[arm], Row(), level)  # the prompts are read here, and known afterwards
                for number in range(options.rounds):
                    # Each arm goes first in turn: what drifts meanwhile is nobody's gain.
                    for arm in (*ARMS[number % 3 :], *ARMS[: number % 3]):
                        await load(session, urls[arm], rows[arm], level)
                for arm, row in rows.items():
                    print(_line(level, arm, row), flush=True)
    finally:
        await app.stop()


async def _load(
    session: aiohttp.ClientSession, url: str, row: Row, level: int, *, tokens: int, pids: Iterable[int]
) -> None:
    target = Target(url, MODEL_NAME)
    shape = Shape(tokens, more={"ignore_eos": True, "temperature": 0})

    async def work(worker: int) -> list[tuple[int, str | None]]:
        done = []
        for number in range(REQUESTS):
            messages = choose(PromptKind.PROSE, 1, worker * REQUESTS + number)
            sample = await call(session, target, shape, messages)
            row.failed += sample.error is not None
            done.append((sample.completion_tokens or 0, sample.backend))
        return done

    began_s, cpu_s = monotonic(), _cpu_s(pids)
    workers = await asyncio.gather(*map(work, range(level)))
    took_s, used_s = monotonic() - began_s, _cpu_s(pids) - cpu_s
    total = sum(count for worker in workers for count, _ in worker)
    row.tok_s.append(total / took_s)
    row.tok_cpu_s.append(total / max(used_s, 1e-3))
    row.went.update(worker[-1][1] or "-" for worker in workers)


def _cpu_s(pids: Iterable[int]) -> float:
    fields = (Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids)
    return sum((int(one[11]) + int(one[12])) / TICKS_S for one in fields)


def _line(level: int, arm: str, row: Row) -> str:
    total = sum(row.went.values())
    share = f"{100 * row.went['speculative'] / total:.0f} %" if arm == PROXY else "-"
    cells = (str(level), arm, _spread(row.tok_s), _spread(row.tok_cpu_s), share, str(row.failed))
    return f"| {' | '.join(cells)} |"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
