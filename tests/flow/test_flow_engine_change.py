"""An engine that comes back as another one is told of; one that merely comes back is not."""

from pathlib import Path

import pytest
from fakes.curves import NAME, measured, write
from fakes.reloading import BASELINE, SPECULATIVE, Engine, Stage, staged
from fakes.until import until, until_told


class Versioned(Engine):
    """Says which version it is, and may become another while it is away."""

    version = "0.5.23"

    def _server_info(self) -> dict[str, object]:
        return {**super()._server_info(), "version": self.version}

    def _loads(self) -> dict[str, object]:
        return {**super()._loads(), "version": self.version}


async def lines(stage: Stage, name: str) -> list[str]:
    text = await (await stage.admin.get("/metrics")).text()
    return [line for line in text.splitlines() if line.startswith(name)]


async def come_back(stage: Stage, engine: Versioned, version: str) -> None:
    """Be away until that is noticed, and come back; until the proxy has asked what runs there."""
    backend = stage.app.desk.backends[0]
    await until(lambda: backend.facts is not None, what="the engine seen")
    await engine.close()
    await until(lambda: backend.health.up is False, what="the engine missed")
    asked, engine.version = engine.questions, version
    await engine.listen()
    await until(lambda: backend.health.up and engine.questions > asked + 3, what="the engine asked again")


async def test_another_version_is_told_with_its_age(tmp_path: Path) -> None:
    async with Versioned() as a, Versioned(BASELINE) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        assert await lines(stage, "crossover_engine_change_age_seconds{") == []
        await come_back(stage, a, "0.5.24")

        async def told() -> list[str]:
            return await lines(stage, "crossover_engine_change_age_seconds{")

        await until_told(told)
        assert [line.partition(" ")[0] for line in await told()] == [
            f'crossover_engine_change_age_seconds{{role="{SPECULATIVE}"}}'
        ]


async def test_a_restart_of_the_same_version_is_no_change(tmp_path: Path) -> None:
    async with Versioned() as a, Versioned(BASELINE) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        a.max_running_requests = 128  # another number, the same engine
        await come_back(stage, a, "0.5.23")
        await until(lambda: stage.app.desk.backends[0].max_in_flight == 128, what="what it says anew")
        assert await lines(stage, "crossover_engine_change_age_seconds{") == []


@pytest.mark.parametrize(("measured_with", "outdated"), [("0.5.23", "0.0"), ("0.5.22", "1.0")])
async def test_curves_of_another_version_are_told_to_be_outdated(
    measured_with: str, outdated: str, tmp_path: Path
) -> None:
    write(tmp_path, measured(engines={"speculative": measured_with}))
    async with Versioned() as a, Versioned(BASELINE) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        assert await lines(stage, "crossover_curves_outdated{") == [], "no curves, nothing to be outdated"
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        assert (await stage.reload())[0] == 200
        await until(lambda: all(each.facts for each in stage.app.desk.backends), what="both engines seen")
        told = await lines(stage, "crossover_curves_outdated{")
        assert told == [f'crossover_curves_outdated{{role="speculative"}} {outdated}'], "of the other none was noted"


async def test_what_speculation_gives_is_told_beside_curves(tmp_path: Path) -> None:
    write(tmp_path, measured())
    async with Versioned() as a, Versioned(BASELINE) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        assert await lines(stage, "crossover_speculation_gain_ratio{") == []
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        assert (await stage.reload())[0] == 200
        assert await lines(stage, "crossover_speculation_gain_ratio{") == [
            'crossover_speculation_gain_ratio{by="curves_file"} 1.25',
            'crossover_speculation_gain_ratio{by="learned"} 1.25',
        ]
