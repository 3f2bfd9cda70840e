"""Where requests go by measured curves, seen from outside, and what becomes of it when the file of curves changes."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fakes.curves import NAME, measured, one_sided, write
from fakes.raw import RawClient, Said, chat, request
from fakes.reloading import Crowd, Engine, Stage, staged
from fakes.speeds import Table, speed_curve
from fakes.until import until

from proxy.model import NO_DEMAND, Role
from proxy.routing.delays import delays
from proxy.routing.marginal import EXPECTED_TOKENS
from proxy.routing.outlook import outlook

SPECULATIVE, BASELINE = Role.SPECULATIVE.value, Role.BASELINE.value
ROLES_BASELINE_FIRST = (BASELINE, SPECULATIVE)  # of equal costs the first is taken
# Alone a request is faster on speculative; from three on the baseline makes more of all together.
OURS: Table = {1: 90, 2: 150, 4: 220, 12: 300}
THEIRS: Table = {1: 60, 2: 115, 4: 210, 12: 480}


def entries(table: Table) -> list[dict[str, float]]:
    return [{"in_flight": n, "tok_s": speed} for n, speed in table.items()]


def write_curves(folder: Path, speculative: Table, baseline: Table) -> None:
    speeds = {"speculative": entries(speculative), "baseline": entries(baseline)}
    write(folder, measured(contexts=[one_sided("unknown", ratio=[], **speeds)]))


def costs_told(decision: dict[str, Any]) -> dict[str, float]:
    return {role: decision["because"][f"{role}_cost_s"] for role in ROLES_BASELINE_FIRST}


@contextlib.asynccontextmanager
async def crowded(folder: Path, placement: str = "separate") -> AsyncIterator[tuple[Stage, Crowd]]:
    """Engines whose streams stay under way, and a proxy that follows the curves in the folder."""
    write_curves(folder, OURS, THEIRS)
    async with (
        Engine() as a,
        Engine(BASELINE) as b,
        contextlib.AsyncExitStack() as stack,
        staged(folder / "crossover.yaml", a, b) as stage,
    ):
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        stage.write(f"{stage.path.read_text()}placement: {placement}\n")
        assert (await stage.reload())[0] == 200
        crowd = Crowd(stage, stack)
        yield stage, crowd
        a.gate.set()
        b.gate.set()
        await crowd.all_end_well()
        await until(lambda: stage.app.desk.snapshot().in_flight == 0)


async def decisions(stage: Stage) -> list[dict[str, Any]]:
    async with stage.admin.get("/decisions") as answer:
        recent: list[dict[str, Any]] = (await answer.json())["decisions"]
        return recent


async def head(stage: Stage) -> Said:
    """The head of one more stream, whose client leaves with it."""
    async with RawClient(stage.app.port) as client:
        await client.send(request(body=chat(stream=True)))
        return await client.head()


async def test_each_request_goes_where_it_adds_the_least_delay(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd):
        await crowd.join(12)
        for told in await decisions(stage):
            costs = costs_told(told)
            assert told["role"] == min(ROLES_BASELINE_FIRST, key=lambda role: costs[role])
        assert crowd.went.count(BASELINE) > crowd.went.count(SPECULATIVE) > 0


async def test_the_costs_of_both_choices_are_told_to_the_client_and_to_the_operator(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd):
        await crowd.join(2)
        first = (await decisions(stage))[1]
        tables = delays(speed_curve(OURS)), delays(speed_curve(THEIRS))
        alone = [EXPECTED_TOKENS * side.added(0, 1) for side in outlook(*tables, NO_DEMAND)]
        assert list(costs_told(first).values()) == alone[::-1]
        said = await head(stage)
        told = (await decisions(stage))[0]
        because, costs = told["because"], costs_told(told)
        assert (because["policy"], told["reason"], because["extrapolated"]) == ("marginal", "cheaper", False)
        assert (said.header("x-crossover-because") or "").endswith(
            f", speculative_cost_s={costs[SPECULATIVE]:.4g}, baseline_cost_s={costs[BASELINE]:.4g}"
        )
        assert costs[SPECULATIVE] > alone[0], "beside another it costs more"
        assert await stage.metric('crossover_decisions_total{reason="cheaper",role="speculative"}') >= 1


async def test_a_changed_file_of_curves_changes_where_requests_go(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd):
        await crowd.join(1)
        write_curves(tmp_path, THEIRS, {n: 3 * speed for n, speed in OURS.items()})
        assert (await stage.reload())[0] == 200
        await crowd.join(2)
        assert crowd.went == [SPECULATIVE, BASELINE, BASELINE]


async def test_curves_that_are_taken_away_leave_the_policy_that_needs_none(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd):
        stage.change(routing={"policy": "auto", "curves_file": None})
        assert (await stage.reload())[0] == 200
        await crowd.join(3)
        assert crowd.went == [SPECULATIVE] * 3
        assert (await decisions(stage))[0]["because"]["speculative_cost_s"] is None


async def test_a_policy_that_needs_curves_is_refused_by_a_reload_that_names_none(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, crowd):
        stage.change(routing={"policy": "marginal"})
        status, said = await stage.reload()
        assert status == 422
        assert "without routing.curves_file" in str(said)
        await crowd.join(1)
        assert (await decisions(stage))[0]["because"]["policy"] == "marginal"


async def test_on_shared_gpus_all_go_to_the_backend_that_serves_the_demand_sooner(tmp_path: Path) -> None:
    async with crowded(tmp_path, "shared") as (stage, crowd):
        await crowd.join(6)
        assert crowd.went == [SPECULATIVE] * 6
        told = (await decisions(stage))[0]
        assert (told["reason"], told["because"]["policy"]) == ("regime", "consolidate")
        assert 0 < told["because"]["speculative_cost_s"] < told["because"]["baseline_cost_s"]


async def test_the_cost_is_told_for_as_long_an_answer_as_the_latest_of_its_route_were(tmp_path: Path) -> None:
    async with crowded(tmp_path) as (stage, _):
        assert (await stage.ask()).status == 200
        desk, route = stage.app.desk, "/v1/chat/completions"
        await until(lambda: desk.answers.expected(route) < EXPECTED_TOKENS, what="the usage of the answer")
        expected = desk.answers.expected(route)
        await stage.ask()
        second, first = (costs_told(told)[SPECULATIVE] for told in (await decisions(stage))[:2])
        assert second == pytest.approx(first * expected / EXPECTED_TOKENS, rel=0.01)
