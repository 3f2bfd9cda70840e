"""Carrying a plan out on engine models: what is kept, what a cut costs, and that going on ends as a whole run would."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.lab import curves
from proxy.lab.calibration.campaign import HOPELESS, Campaign
from proxy.lab.calibration.deciding.aim import Aim
from proxy.lab.calibration.deciding.findings import conclude
from proxy.lab.calibration.record import Record, Run
from proxy.lab.calibration.values import Arm, Cell, Findings, Measurement, Span
from proxy.lab.calibration.virtual.stand import VirtualStand

AIM = Aim(concurrencies=(1, 4, 8, 16), budget_s=3600.0)


class Cut(VirtualStand):
    """A stand whose machine is switched off in the middle of the n-th cell."""

    left = 10**9

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        self.left -= 1
        if self.left < 0:
            raise asyncio.CancelledError
        return await super().measure(cell, span)


def stand(seed: int = 3, cells: int = 10**9) -> Cut:
    made = Cut(curves.find(curves.DEFAULT_CURVE), seed)
    made.left = cells
    return made


async def carried_out(folder: Path, place: Cut) -> Findings:
    """One run in a folder, whatever the folder holds; a cut is passed over."""
    record = Record(folder)
    facts = await place.facts()
    known = () if record.run is None else record.run.prefills
    record.begin(run := Run(AIM, facts, "2026-01-01T00:00:00Z", prefills=known))
    campaign = Campaign(AIM, place, facts, record.measurements, known)
    try:
        await campaign.carry_out(record.add, lambda found: record.note(replace(run, prefills=tuple(found))))
    except asyncio.CancelledError:
        assert not campaign.finished
    found = {"measured_at": "x", "spent_s": campaign.spent_s, "prefills": campaign.prefills}
    return conclude(AIM, facts, campaign.measurements, **found)  # type: ignore[arg-type]


@pytest.mark.parametrize("cells", [1, 17, 30])
async def test_a_run_cut_in_the_middle_goes_on_and_ends_with_the_verdict_of_a_whole_one(
    tmp_path: Path, cells: int
) -> None:
    whole = await carried_out(tmp_path / "whole", stand())
    before = await carried_out(tmp_path / "cut", stand(cells=cells))
    assert len(before.measurements) == cells
    after = await carried_out(tmp_path / "cut", stand(seed=4))
    assert after.measurements[:cells] == before.measurements
    assert after.main[0].verdict.kind is whole.main[0].verdict.kind
    one, other = after.main[0].verdict.crossings[0], whole.main[0].verdict.crossings[0]
    assert max(one.low, other.low) <= min(one.high, other.high)


async def test_the_time_of_an_earlier_run_counts_towards_the_budget(tmp_path: Path) -> None:
    before = await carried_out(tmp_path, stand(cells=12))
    after = await carried_out(tmp_path, stand(cells=0))
    assert after.spent_s == pytest.approx(sum(one.spent_s for one in (*before.measurements, *before.prefills)))
    assert after.prefills == before.prefills
    assert len(after.prefills) == 2


async def test_where_it_stands_is_told_while_it_runs() -> None:
    place = stand()
    campaign = Campaign(AIM, place, await place.facts())
    said = []
    await campaign.carry_out(lambda measurement: said.append(campaign.standing()))
    first = said[0]
    assert first.cell is not None
    assert (first.cell.concurrency, first.cell.arm, first.cells) == (1, Arm.SPECULATIVE, 1)
    assert all(0.0 < standing.spent_s <= standing.budget_s for standing in said)
    assert campaign.finished
    assert campaign.standing().cell is None


class Gone(VirtualStand):
    """A stand whose baseline dies after some cells."""

    left = 10

    async def measure(self, cell: Cell, span: Span) -> Measurement:
        measurement = await super().measure(cell, span)
        self.left -= 1
        gone = self.left < 0
        return replace(measurement, errors={"unreachable": 8}) if gone else measurement


async def test_a_run_is_given_up_when_nothing_can_be_used_any_more() -> None:
    place = Gone(curves.find(curves.DEFAULT_CURVE), 3)
    campaign = Campaign(AIM, place, await place.facts())
    await campaign.carry_out(lambda _: None)
    assert campaign.hopeless
    assert not campaign.finished
    assert len(campaign.measurements) == 10 + HOPELESS


async def test_a_cell_that_fails_now_and_then_ends_no_run() -> None:
    class Hiccups(Gone):
        turn = 0

        async def measure(self, cell: Cell, span: Span) -> Measurement:
            self.turn += 1
            self.left = self.turn % 2
            return await super().measure(cell, span)

    place = Hiccups(curves.find(curves.DEFAULT_CURVE), 3)
    campaign = Campaign(AIM, place, await place.facts())
    await campaign.carry_out(lambda _: None)
    assert campaign.finished
