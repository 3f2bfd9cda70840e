"""A start: it loads what serving needs and nothing else, garbage is collected once it is over, and a second one on the
same ports is refused."""

import resource
from pathlib import Path

import pytest
import yaml
from fakes.interpreter import printed
from fakes.process import Stage, rest, staged
from fakes.second_process import second_process
from fakes.until import until

# A whole start but for the sockets; it ends before a backend is looked at.
START = """
import sys
from proxy import __main__
from proxy.app import App
async def start(app):
    print(*sys.modules)
    raise SystemExit(0)
App.start = start
__main__.main(["serve", sys.argv[1]])
"""
# What the proxy is built upon, in an interpreter that does nothing with it.
BARE = "import aiohttp.web, pydantic"
# Measured 1.9 to 2.5, the latter without kept bytecode of our own.
MAX_RATIO = 4
UNWANTED = (
    *("proxy.check", "proxy.issue", "proxy.lab", "proxy.config.mends", "proxy.config.reference", "difflib"),
    *(
        "hypothesis",
        "pytest",
        "unittest",
        "multiprocessing",
        "sqlite3",
        "pdb",
        "cProfile",
        "tracemalloc",
        "pydantic.v1",
    ),
    *("xml", "curses", "readline", "getpass", "aiohttp.test_utils", "aiohttp.worker"),
)
RINGS = """
import gc, weakref
gc.disable()
from proxy import serve
class Ring:
    pass
def ring():
    one = Ring()
    one.itself = one
    return weakref.ref(one)
before = gc.get_freeze_count()
serve.collect_from_here()
seen = ring()
others = [ring() for _ in range(100_000)]
print(gc.get_freeze_count() - before > 10_000, seen() is None)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "crossover.yaml"
    urls = {"speculative": {"url": "http://127.0.0.1:1"}, "baseline": {"url": "http://127.0.0.1:2"}}
    path.write_text(yaml.safe_dump({"backends": urls}))
    return path


def test_a_start_loads_nothing_that_serving_does_not_need(config: Path) -> None:
    loaded = printed(START, config).split()
    assert "proxy.front" in loaded
    assert [name for name in UNWANTED if name in loaded] == []


def test_a_start_costs_little_beside_the_libraries_it_stands_on(config: Path) -> None:
    """CPU time of either, the least of three in turn: what others do on the machine only ever adds."""

    def cpu_s(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        printed(code, config)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    rounds = [(cpu_s(START), cpu_s(BARE)) for _ in range(3)]
    assert min(ours for ours, _ in rounds) < MAX_RATIO * min(bare for _, bare in rounds)


def test_what_the_start_made_is_left_alone_and_garbage_after_it_is_collected() -> None:
    assert printed(RINGS).split() == ["True", "True"]


# ---------------------------------------------------------------- a second process


@pytest.mark.parametrize("own", [{}, {"listen": 0}, {"admin": 0}], ids=["both ports", "admin port", "clients' port"])
async def test_a_second_process_is_refused_for_either_port_while_the_first_serves_on(
    tmp_path: Path, own: dict[str, int]
) -> None:
    """Both as processes of their own, as an operator starts them: the first has not a line to say about it."""
    async with staged(tmp_path) as stage:
        streams = await stage.streaming(3)
        lines = len(stage.process.lines)
        status, said = await second_process(beside(stage, tmp_path, own))
        assert (status, said.count("is taken by another Crossover"), "started" in said) == (1, 1, False)
        assert (await stage.quick()).status == 200
        stage.gate.opened.set()
        assert [(await rest(client))[1] for client in streams] == [True] * 3
        await until(lambda: len(stage.process.logged("request_settled")) == 4)
        told = [line["event"] for line in stage.process.lines[lines:]]
        assert told == ["request_settled"] * 4


def beside(stage: Stage, folder: Path, own: dict[str, int]) -> Path:
    """The first one's configuration with the ports that it has, but for those that the second has of its own."""
    ports = {"listen": stage.process.port, "admin": int(stage.process.admin.rpartition(":")[2]), **own}
    sections = {name: {"host": "127.0.0.1", "port": port} for name, port in ports.items()}
    path = folder / "second.yaml"
    path.write_text(yaml.safe_dump({**stage.values, **sections}))
    return path
