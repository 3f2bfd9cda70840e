"""Measures a real pair: each engine alone and behind the proxy, in one run, as rows of a Markdown table.

Engines run on the processor, so beside tok/s stands what is not a matter of what else the machine does: tokens for each
second of processor time of the engines. What others took of the processor meanwhile is told with it. Not here: the pair
itself (real_pair.py).

    scripts/serve --real never --help       installs what it needs
    .venv/bin/python scripts/real_table.py crossover [--levels 1,2,4,8] [--rounds 3] [--tokens 24]
    .venv/bin/python scripts/real_table.py crossover --arms proxy --over '{"routing": {"leave_at": 8, "enter_at": 5}}'
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import aiohttp
from real_pair import MODEL_NAME, REGIMES, Pair

from proxy import config, logs
from proxy.app import App
from proxy.lab.loadcall import Shape, Target, call, open_session
from proxy.lab.prompts import PromptKind, choose
from proxy.model import Role

PROXY = "proxy"


class Arm(NamedTuple):
    """One way to the engines: which server is asked, and the role that the proxy is told to take."""

    name: str
    server: str
    asked: Role | None = None


# Those whose difference is the proxy stand beside each other.
ARMS = (
    Arm("speculative", "speculative"),
    Arm("speculative, through the proxy", PROXY, Role.SPECULATIVE),
    Arm("baseline", "baseline"),
    Arm("baseline, through the proxy", PROXY, Role.BASELINE),
    Arm(PROXY, PROXY),
)
# Requests of each worker, one after another: the first ones tell the proxy how many there are.
REQUESTS = 2
# The engines' own times are in ticks of this many a second.
TICKS_S = os.sysconf("SC_CLK_TCK")
# Quicker than one would have it in front of people, so that a level is over the change that it brings.
ROUTING = {"min_dwell_s": 1.0, "smoothing_s": 1.0}
HEAD = (
    "in flight",
    "arm",
    "tok/s",
    "tokens a second of processor time",
    "through / direct",
    "to speculative",
    "failed",
    "load",
    "others' cores",
)


@dataclass
class Row:
    """One arm at one level, over all rounds: output tok/s, tokens a second of processor time, where each worker's last
    request went, how many failed, the load average at the end of each round, and how many cores others had."""

    tok_s: list[float] = field(default_factory=list)
    tok_cpu_s: list[float] = field(default_factory=list)
    went: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    load: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)


class Ticks(NamedTuple):
    """Processor time until now, seconds: of the engines, of this process, and of all that runs on the machine."""

    engines_s: float
    own_s: float
    all_s: float


def main() -> int:
    """Measure one regime and print its rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--levels", default="1,2,4,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of each worker, one after another")
    parser.add_argument("--arms", default="", help="those whose name begins so; default: all")
    parser.add_argument("--over", type=json.loads, default={}, help="sections of the configuration, as JSON")
    options = parser.parse_args()
    with Pair(options.regime) as pair:
        asyncio.run(_measure(pair, options))
    return 0


def settings_of(pair: Pair, over: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration in front of the pair; `over` is laid over its sections, key by key."""
    said = pair.settings(listen={"host": "127.0.0.1", "port": 0}, admin={"port": 0}, log={"level": "error"})
    said["routing"] |= ROUTING
    for name, section in over.items():
        said[name] = said.get(name, {}) | section if isinstance(section, dict) else section
    return said


async def _measure(pair: Pair, options: argparse.Namespace) -> None:
    settings = config.from_mapping(settings_of(pair, options.over))
    app = App(settings, logs.configure("json", "error"), lambda: settings)
    await app.start()
    arms = [arm for arm in ARMS if arm.name.startswith(options.arms)]
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    try:
        async with open_session() as session:
            load = partial(_load, session, tokens=options.tokens, requests=options.requests, pids=pair.pids)
            urls = {**pair.urls, PROXY: f"http://127.0.0.1:{app.port}"}
            for level in map(int, options.levels.split(",")):
                rows = {arm: Row() for arm in arms}
                for role in pair.urls:
                    await load(urls, Arm(role, role), Row(), level)  # the prompts are read here, and known afterwards
                for number in range(options.rounds):
                    for arm in turn(arms, number):
                        await load(urls, arm, rows[arm], level)
                for arm, row in rows.items():
                    print(_line(level, arm, row, _direct(arm, rows)), flush=True)
    finally:
        await app.stop()


def turn(arms: Sequence[Arm], number: int) -> list[Arm]:
    """The order of one round: another one goes first each time, and every second round goes backwards, so that what
    drifts meanwhile is nobody's gain. Neighbours stay neighbours, but for the two ends."""
    first = 2 * number % len(arms)
    order = [*arms[first:], *arms[:first]]
    return order[::-1] if number % 2 else order


async def _load(
    session: aiohttp.ClientSession,
    urls: Mapping[str, str],
    arm: Arm,
    row: Row,
    level: int,
    *,
    tokens: int,
    requests: int,
    pids: Iterable[int],
) -> None:
    target = Target(urls[arm.server], MODEL_NAME)
    shape = Shape(tokens, more={"ignore_eos": True, "temperature": 0})

    async def work(worker: int) -> list[tuple[int, str | None]]:
        done = []
        for number in range(requests):
            messages = choose(PromptKind.PROSE, 1, worker * requests + number)
            sample = await call(session, target, shape, messages, asked=arm.asked)
            row.failed += sample.error is not None
            done.append((sample.completion_tokens or 0, sample.backend))
        return done

    began_s, before = monotonic(), _ticks(pids)
    workers = await asyncio.gather(*map(work, range(level)))
    took_s, after = monotonic() - began_s, _ticks(pids)
    used_s = after.engines_s - before.engines_s
    total = sum(count for worker in workers for count, _ in worker)
    row.tok_s.append(total / took_s)
    row.tok_cpu_s.append(total / max(used_s, 1e-3))
    row.went.update(worker[-1][1] or "-" for worker in workers)
    row.load.append(os.getloadavg()[0])
    row.others.append(max(0.0, after.all_s - before.all_s - used_s - (after.own_s - before.own_s)) / took_s)


def _ticks(pids: Iterable[int]) -> Ticks:
    """Idle and waiting are the fourth and fifth number of the machine's line; guests are in the first two already."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    busy = sum(int(one) for place, one in enumerate(first) if place not in (3, 4)) / TICKS_S
    return Ticks(sum(map(_cpu_s, pids)), _cpu_s(os.getpid()), busy)


def _cpu_s(pid: int) -> float:
    one = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(one[11]) + int(one[12])) / TICKS_S


def _direct(arm: Arm, rows: Mapping[Arm, Row]) -> Row | None:
    """The rounds without the proxy that an arm with it is held against; None where there are none."""
    return next((row for one, row in rows.items() if arm.asked and one.server == arm.asked.value), None)


def _line(level: int, arm: Arm, row: Row, direct: Row | None) -> str:
    total = sum(row.went.values())
    cells = (
        str(level),
        arm.name,
        spread(row.tok_s),
        spread(row.tok_cpu_s),
        "-" if direct is None else spread(ratios(row.tok_s, direct.tok_s), 2),
        f"{100 * row.went['speculative'] / total:.0f} %" if arm.server == PROXY and arm.asked is None else "-",
        str(row.failed),
        f"{statistics.median(row.load):.1f}",
        spread(row.others, 2),
    )
    return f"| {' | '.join(cells)} |"


def ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    """One by the other, round by round."""
    return [one / other for one, other in zip(ones, others, strict=True)]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The median, and the least and the most of it."""
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
