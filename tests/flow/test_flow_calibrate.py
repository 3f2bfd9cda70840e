"""`crossover calibrate` from its command line to its files, over real sockets to two embedded engines."""

import argparse
import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from fakes.leaping import leaping
from fakes.stage import staged

from proxy import config
from proxy.config.curves_file import read_curves
from proxy.lab.calibration import command
from proxy.lab.calibration.record import CELLS_FILE, REQUESTS_FILE
from proxy.lab.calibration.report import plots
from proxy.lab.curves import DEFAULT_CURVE
from proxy.lab.embedded import EmbeddedEngine, EngineOptions
from proxy.lab.interrupt import EXIT_INTERRUPTED
from proxy.model import ROLES, Policy, Role
from proxy.routing.verdict import VerdictKind
from proxy.tasks import running

ALWAYS = "amd_mi355x_kimi25_eagle3_bf16"
FEW = ("--concurrency", "1,2,4,16", "--max-tokens", "64", "--context", "256")


@asynccontextmanager
async def two_engines(folder: Path, curve: str, **more: object) -> AsyncIterator[Path]:
    """Both engines, and a configuration in front of them."""
    engines = {
        role: EmbeddedEngine(EngineOptions(curve=curve, role=role, health_latency_s=0.0, **more))  # type: ignore[arg-type]
        for role in ROLES
    }
    for engine in engines.values():
        await engine.start()
    try:
        lines = [f"  {role}: {{url: '{engine.url}'}}" for role, engine in engines.items()]
        file = folder / "crossover.yaml"
        file.write_text("\n".join(["backends:", *lines, "placement: separate", ""]))
        yield file
    finally:
        for engine in engines.values():
            await engine.stop()


def parsed(file: Path | None, out: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([*([str(file)] if file else []), "--out", str(out), *words])


@pytest.fixture
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command times itself by the leaping clock."""
    monkeypatch.setattr(command, "monotonic", lambda: asyncio.get_running_loop().time())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pictures prove nothing: they take as long as all that is measured."""
    monkeypatch.setattr(plots, "draw", lambda *_: ())


@leaping
@pytest.mark.parametrize(
    ("curve", "kind"),
    [
        (DEFAULT_CURVE, VerdictKind.CROSSOVER_AT),
        ("seed", VerdictKind.NEVER_SPECULATE),
        (ALWAYS, VerdictKind.ALWAYS_SPECULATE),
    ],
)
async def test_a_quick_run_tells_the_verdict_of_its_curve(
    tmp_path: Path, by_the_loop: None, capsys: pytest.CaptureFixture[str], curve: str, kind: VerdictKind
) -> None:
    out = tmp_path / "out"
    async with two_engines(tmp_path, curve) as file:
        assert await command.run(parsed(file, out, "--quick", *FEW)) == 0
    curves, problems = read_curves(out / "curves.yaml")
    assert problems == []
    assert curves is not None
    (context,) = curves.contexts
    assert context.verdict.kind is kind
    said = capsys.readouterr().out
    assert str(out / "report.html") in said
    assert {"report.html", "report.md", "proposal.yaml", "proposal.diff", CELLS_FILE} <= {p.name for p in out.iterdir()}
    assert running() == 0


@leaping
async def test_proposal_and_speeds_are_taken_by_the_proxy_and_requests_are_kept_without_prompts(
    tmp_path: Path, by_the_loop: None, undrawn: None
) -> None:
    async with two_engines(tmp_path, DEFAULT_CURVE) as file:
        assert await command.run(parsed(file, tmp_path, "--quick", *FEW)) == 0
        (tmp_path / "proposed.yaml").write_text(file.read_text() + (tmp_path / "proposal.yaml").read_text())
        settings = config.load(tmp_path / "proposed.yaml", {})
    assert settings.sources.curves is not None
    assert settings.rules().effective_policy is Policy.MARGINAL
    lines = [orjson.loads(line) for line in (tmp_path / REQUESTS_FILE).read_bytes().splitlines()]
    cells = [orjson.loads(line)["cell"] for line in (tmp_path / CELLS_FILE).read_bytes().splitlines()]
    assert {(line["arm"], line["concurrency"]) for line in lines} == {(c["arm"], c["concurrency"]) for c in cells}
    assert all("messages" not in line and "prompt" not in line for line in lines)


@leaping
async def test_a_run_stopped_by_a_signal_writes_what_it_has_and_goes_on_when_asked_again(
    tmp_path: Path, by_the_loop: None, undrawn: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ("--budget", "5m", *FEW)
    async with two_engines(tmp_path, DEFAULT_CURVE) as file:
        stopping = asyncio.get_running_loop().call_later(90.0, os.kill, os.getpid(), signal.SIGTERM)
        assert await command.run(parsed(file, out, *words)) == EXIT_INTERRUPTED
        stopping.cancel()
        first = (out / CELLS_FILE).read_bytes()
        assert "stopped early" in (out / "report.md").read_text()
        capsys.readouterr()
        assert await command.run(parsed(file, out, *words)) == 0
        assert "going on with" in capsys.readouterr().err
        assert (out / CELLS_FILE).read_bytes().startswith(first)
        curves, _ = read_curves(out / "curves.yaml")
        assert curves is not None
        (crossing,) = curves.contexts[0].verdict.crossings
        assert crossing.low <= 5.97 <= crossing.high
        # A finished run is not gone over again, unless asked for more.
        assert await command.run(parsed(file, out, *words)) == 1
        assert "--again" in capsys.readouterr().err


@leaping
async def test_a_folder_of_another_run_or_other_engines_is_refused(
    tmp_path: Path, by_the_loop: None, undrawn: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    async with two_engines(tmp_path, DEFAULT_CURVE) as file:
        assert await command.run(parsed(file, out, "--quick", *FEW)) == 0
        assert await command.run(parsed(file, out, "--quick", *FEW, "--max-tokens", "32")) == 1
        assert "other options" in capsys.readouterr().err
    async with two_engines(tmp_path, DEFAULT_CURVE, version="9.9.9") as file:
        assert await command.run(parsed(file, out, "--quick", *FEW)) == 1
        assert "the engines are not those" in capsys.readouterr().err
        assert await command.run(parsed(file, out, "--quick", *FEW, "--again")) == 0


@leaping
async def test_an_engine_that_is_not_there_is_told_before_anything_is_measured(
    tmp_path: Path, by_the_loop: None, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [f"  {role}: {{url: 'http://127.0.0.1:{port}'}}" for port, role in enumerate(ROLES, start=1)]
    (tmp_path / "crossover.yaml").write_text("\n".join(["backends:", *urls, ""]))
    assert await command.run(parsed(tmp_path / "crossover.yaml", tmp_path / "out")) == 1
    said = capsys.readouterr().err
    assert "speculative" in said
    assert "127.0.0.1:1" in said


def test_options_that_cannot_be_are_refused_with_the_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--budget", "soon"], ["--context", "many"], ["--prompts", "poems"], ["--arms", "fast"]):
        with pytest.raises(SystemExit):
            parsed(None, tmp_path, *words)
    assert capsys.readouterr().err.count("none of") == 2


def test_the_roles_are_the_arms() -> None:
    assert {role.value for role in Role} <= {arm.value for arm in command.Arm}


async def test_a_crossover_proxy_is_not_taken_for_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with staged() as stage:
        urls = {"speculative": f"http://127.0.0.1:{stage.app.port}", "baseline": "http://127.0.0.1:1"}
        lines = [f"  {role}: {{url: '{url}'}}" for role, url in urls.items()]
        (tmp_path / "crossover.yaml").write_text("\n".join(["backends:", *lines, ""]))
        assert await command.run(parsed(tmp_path / "crossover.yaml", tmp_path / "out")) == 1
    assert "is a Crossover proxy and not an engine" in capsys.readouterr().err
