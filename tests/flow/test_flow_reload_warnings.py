"""What is told of two engines that disagree is of those that are in use: a reload may move them, or bring others."""

from pathlib import Path

from fakes.reloading import BASELINE, SPECULATIVE, Engine, Stage, staged
from fakes.until import until

SWAPPED = ["speculative_does_not_speculate", "baseline_speculates"]


def warned(stage: Stage) -> list[str]:
    return [each["code"] for each in stage.app.status()["warnings"]]


def noted(stage: Stage) -> list[object]:
    return [entry.numbers["code"] for entry in stage.app.watch.journal.entries if entry.kind == "disagreement"]


async def moved(stage: Stage, speculative: Engine, baseline: Engine) -> None:
    stage.change(backends={SPECULATIVE: {"url": speculative.url}, BASELINE: {"url": baseline.url}})
    assert (await stage.reload())[0] == 200


async def test_urls_that_are_swapped_by_mistake_are_warned_of_until_they_are_swapped_back(tmp_path: Path) -> None:
    """Both engines had said what they are before, and nothing asks them again."""
    async with Engine() as a, Engine(BASELINE) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        assert warned(stage) == []
        await moved(stage, b, a)
        assert (warned(stage), noted(stage)) == (SWAPPED, SWAPPED)
        stage.change(backends={SPECULATIVE: {"url": b.url}, BASELINE: {"url": a.url}}, routing={"leave_at": 61})
        assert (await stage.reload())[0] == 200
        assert (warned(stage), noted(stage)) == (SWAPPED, SWAPPED), "as before, and told once"
        await moved(stage, a, b)
        assert warned(stage) == []


async def test_what_was_wrong_with_an_engine_is_not_told_of_the_one_in_its_place(tmp_path: Path) -> None:
    async with (
        Engine() as a,
        Engine() as wrong,
        Engine(BASELINE) as right,
        staged(tmp_path / "crossover.yaml", a, wrong) as stage,
    ):
        assert warned(stage) == ["baseline_speculates"]
        await moved(stage, a, right)
        assert warned(stage) == []
        await until(lambda: stage.app.desk.backend(stage.app.desk.backends[1].role).facts is not None)
        assert warned(stage) == []
        await moved(stage, a, wrong)
        await until(lambda: warned(stage) == ["baseline_speculates"], what="the one that speculates is back")
