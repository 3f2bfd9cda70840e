"""The command around a calibration: what it takes up, what it refuses, and that no end of it leaves a folder stuck."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.cells import Bench, crossing_at
from fakes.leaping import leaping
from fakes.until import until

from proxy.errors import ConfigError
from proxy.lab.calibration import command, report
from proxy.lab.calibration.campaign import Campaign
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.record import Record, Run
from proxy.lab.calibration.report import plots
from proxy.lab.calibration.stand import arm
from proxy.lab.calibration.stand.engine_word import ArmTarget
from proxy.lab.calibration.stand.http import open_stand
from proxy.lab.calibration.values import Arm, ArmFacts
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.model import ROLES
from proxy.protocol.allowlist import EngineKind

ROOT = Path(__file__).resolve().parent.parent

# No time for another cell: what is in the folder is all there will be.
AIM = Aim(concurrencies=(1, 4, 16), budget_s=1.0)
ASKED = ("--concurrency", "1,4,16", "--budget", "1s")


class Box:
    """Two engines, a configuration in front of them, and a folder for results."""

    def __init__(self, place: Path, facts: Mapping[Arm, ArmFacts]) -> None:
        self.config = place / "crossover.yaml"
        self.folder = place / "found"
        self.facts = facts

    def begun(self, **changes: object) -> None:
        """As a run that was cut left it; `changes` are what its engines said otherwise."""
        record = Record(self.folder)
        told = {arm: replace(one, **changes) for arm, one in self.facts.items()}  # type: ignore[arg-type]
        record.begin(Run(AIM, told, "2026-01-01T00:00:00Z"))
        for one in Bench(crossing_at(6.0)).carry_out(replace(AIM, budget_s=1e5), at_most=18):
            record.add(one)

    async def run(self, *more: str) -> int:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        return await command.run(parser.parse_args([str(self.config), "--out", str(self.folder), *ASKED, *more]))


@asynccontextmanager
async def box(place: Path) -> AsyncIterator[Box]:
    # Fifty times faster than life, for the run that is a process of its own.
    engines = {role: EmbeddedEngine(EngineOptions(role=role, time_scale=0.02)) for role in ROLES}
    for engine in engines.values():
        await engine.start()
    targets = {Arm(role.value): ArmTarget(engine.url, EngineKind.SGLANG) for role, engine in engines.items()}
    try:
        async with open_stand(targets) as stand:
            found = Box(place, await stand.facts())
        urls = "\n".join(f"  {role}: {{url: '{engine.url}'}}" for role, engine in engines.items())
        found.config.write_text(f"backends:\n{urls}\n")
        yield found
    finally:
        for engine in engines.values():
            await engine.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command times itself by the loop, whose clock leaps where nothing is another process; and no pictures are
    drawn, which take longer than all else."""
    monkeypatch.setattr(command, "monotonic", lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(plots, "draw", lambda *_: ())


@leaping
async def test_what_an_engine_tells_that_cannot_be_is_said_at_once_and_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arm, "_is_count", lambda *_: False)
    async with box(tmp_path) as one:
        one.begun()
        assert await one.run() == 0
    said = capsys.readouterr().err
    written = (one.folder / "report.html").read_text()
    for each in (Arm.SPECULATIVE, Arm.BASELINE):
        assert f"the {each} engine at http" in said and f"the {each} engine at http" in written
    assert said.count("characters a token are assumed") == 2


@leaping
async def test_a_run_that_ended_as_it_wrote_its_results_writes_them_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    async with box(tmp_path) as one:
        one.begun()
        with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="killed"):
            broken.setattr(report, "write", killed)
            await one.run()
        assert await one.run() == 0
        assert (one.folder / "report.html").exists()
        assert await one.run() == 1, "finished now"


@leaping
@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [({"kv_tokens": 7}, True), ({"url": "http://127.0.0.1:1"}, True), ({"version": "0.1"}, False)],
)
async def test_engines_that_were_started_again_are_the_same_and_other_ones_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], goes_on: bool
) -> None:
    async with box(tmp_path) as one:
        one.begun(**changes)
        assert await one.run() == (0 if goes_on else 1)
    assert ("the engines are not those" in capsys.readouterr().err) is not goes_on


@leaping
async def test_a_disk_that_takes_no_results_is_told_and_the_run_is_not_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with box(tmp_path) as one:
        one.begun()
        (one.folder / "report.html").symlink_to("/dev/full")
        assert await one.run() == 1
        assert "No space left" in capsys.readouterr().err
        (one.folder / "report.html").unlink()
        assert await one.run() == 0


@leaping
async def test_a_disk_that_takes_no_cell_ends_the_run_without_a_traceback(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def full(self: Campaign, *keep: object) -> None:
        raise ConfigError("--out: No space left on device")

    monkeypatch.setattr(Campaign, "carry_out", full)
    async with box(tmp_path) as one:
        assert await one.run() == 1
    assert capsys.readouterr().err == "crossover calibrate: --out: No space left on device\n"
    assert not caplog.records


async def test_a_reader_that_leaves_after_the_first_line_stops_nothing(tmp_path: Path) -> None:
    async with box(tmp_path) as one:
        one.begun()
        arguments = ("-m", "proxy", "calibrate", str(one.config), "--out", str(one.folder), *ASKED)
        reading, writing = os.pipe()
        os.close(reading)
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, stdout=writing, stderr=asyncio.subprocess.PIPE
        )
        os.close(writing)
        _, said = await process.communicate()
        assert (process.returncode, b"BrokenPipe" in said) == (0, False)
        assert Record(one.folder).run is not None
        assert Record(one.folder).run.finished  # type: ignore[union-attr]


@leaping
async def test_engines_that_are_away_cost_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    async with box(tmp_path) as one:
        one.begun()
    assert await one.run("--again") == 1
    assert len(Record(one.folder).measurements) == 18


@leaping
@pytest.mark.parametrize("twice", [("--context", "1k,1024"), ("--prompts", "mixed,prose,mixed")])
async def test_what_is_asked_for_twice_is_asked_for_once(tmp_path: Path, twice: tuple[str, str]) -> None:
    async with box(tmp_path) as one:
        one.begun()
        assert await one.run(*twice) == 0


@leaping
async def test_a_budget_that_holds_no_cell_is_named_as_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with box(tmp_path) as one:
        assert await one.run() == 1
    assert "--budget 1s" in capsys.readouterr().err


async def test_an_interrupt_before_the_first_cell_is_no_failure_of_the_program(tmp_path: Path) -> None:
    asked: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    config = tmp_path / "crossover.yaml"
    urls = {role: f"http://127.0.0.{1 + place}:{port}" for place, role in enumerate(ROLES)}
    config.write_text("backends:\n" + "\n".join(f"  {role}: {{url: '{url}'}}" for role, url in urls.items()) + "\n")
    arguments = ("-m", "proxy", "calibrate", str(config), "--out", str(tmp_path / "found"))
    async with silent:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        try:
            # On a machine that has never drawn anything, what draws looks for fonts first.
            await until(lambda: bool(asked), within_s=60.0, what="its first question")
            process.send_signal(signal.SIGINT)
            _, said = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            for writer in asked:
                writer.close()
    assert b"Traceback" not in said
    assert process.returncode == 130
