"""What is learned is told on the operators' port, kept over a restart, and turned off by the configuration."""

import json
from pathlib import Path

import pytest
from fakes.curves import NAME
from fakes.reloading import Engine, Stage, staged
from test_flow_curves import OURS, THEIRS, write_curves

from proxy.model import BASELINE, SPECULATIVE
from proxy.routing.deviation import MIN_SEEN
from proxy.routing.evidence import Seen
from proxy.routing.harm import Cause, Suspension


def teach(stage: Stage, ln_ratio: float) -> None:
    """Let the speculative engine have been seen at another speed than measured, ten times."""
    learning = stage.app.desk.learning
    assert learning is not None
    now_s = stage.app.desk.clock()
    for _ in range(10):
        learning.learner.sides[SPECULATIVE].belief.observe(0, Seen(4.0, 0.0, 0.02, 0.001), ln_ratio, now_s)
    learning.learner.turn(now_s)


async def shown(stage: Stage, path: str) -> dict[str, object]:
    async with stage.admin.get(path) as answer:
        told: dict[str, object] = await answer.json()
        return told


async def test_operators_see_what_was_learned(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        assert (await stage.reload())[0] == 200
        teach(stage, 0.4)
        told = (await shown(stage, "/curves"))["learned"]
        assert isinstance(told, dict)
        assert told["backends"]["speculative"][0]["ratio"] == pytest.approx(1.49, abs=0.01)
        status = (await shown(stage, "/status"))["learning"]
        assert isinstance(status, dict)
        assert (status["suspensions"], status["probes"]) == (0, 0)
        assert "too little yet" in status["sentence"]
        async with stage.admin.get("/metrics") as answer:
            text = await answer.text()
        assert 'crossover_learned_ratio{role="speculative"}' in text
        assert "crossover_learning_suspended 0.0" in text
        assert "\ncrossover_learning_suspension_answers " not in text
        learning = stage.app.desk.learning
        assert learning is not None
        learning.harm.suspend(Suspension(Cause.DOUBT, None, "moments", 0.03, 0.01, 5, 0, 0.0), stage.app.desk.clock())
        status = (await shown(stage, "/status"))["learning"]
        assert isinstance(status, dict)
        assert "did harm" in status["sentence"]
        assert (status["last_suspension"]["predicted_s"], status["last_suspension"]["answers"]) == (0.03, 5)
        async with stage.admin.get("/metrics") as answer:
            text = await answer.text()
        assert 'crossover_learning_suspension_seconds{of="predicted"} 0.03' in text
        assert 'crossover_learning_suspension_seconds{of="seen"} 0.01' in text
        assert "crossover_learning_suspension_answers 5.0" in text


async def test_what_was_learned_is_said_once_enough_was_seen(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        assert (await stage.reload())[0] == 200
        learning = stage.app.desk.learning
        assert learning is not None
        side = learning.learner.sides[SPECULATIVE]
        side.seen, side.trust.earned = MIN_SEEN, True
        teach(stage, 0.4)
        learning.turn(stage.app.desk.rules, stage.app.desk.backends, stage.app.desk.clock() + 10.0)
        status = (await shown(stage, "/status"))["learning"]
        assert isinstance(status, dict)
        assert status["sentence"].startswith("Learned from live traffic: speculative takes 49 % longer for a token")
        assert status["sentence"].endswith("of baseline too little has been seen yet.")


async def test_what_the_policy_does_not_look_at_is_told_as_nothing(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"policy": "auto", "curves_file": NAME})
        assert (await stage.reload())[0] == 200
        status = await shown(stage, "/status")
        assert status["policy"] == "marginal"
        assert [status[name] for name in ("regime", "regime_age_s", "enter_at", "leave_at")] == [None] * 4
        stage.change(routing={"policy": "threshold"})
        assert (await stage.reload())[0] == 200
        status = await shown(stage, "/status")
        assert status["regime"] == "speculative" and status["enter_at"] < status["leave_at"]


async def test_what_was_learned_is_written_at_the_end(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"policy": "auto", "curves_file": NAME, "learn": {"state_file": "learned.json"}})
        assert (await stage.reload())[0] == 200
        teach(stage, 0.4)
    state = json.loads((tmp_path / "learned.json").read_text())
    assert len(state["backends"]["speculative"]) == 1


async def test_a_file_that_cannot_be_written_is_a_warning_in_the_status(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        learn = {"state_file": "missing/learned.json"}
        stage.change(routing={"policy": "auto", "curves_file": NAME, "learn": learn})
        assert (await stage.reload())[0] == 200
        await stage.app._learned.write()
        (warning,) = (await shown(stage, "/status"))["warnings"]
        assert warning["code"] == "state_file"
        assert f"{tmp_path / 'missing' / 'learned.json'}: what was learned cannot be written" in warning["message"]
        stage.change(routing={"policy": "auto", "curves_file": NAME, "learn": {"state_file": "learned.json"}})
        assert (await stage.reload())[0] == 200
        assert (await shown(stage, "/status"))["warnings"] == []


async def test_nothing_is_learned_where_it_is_turned_off(tmp_path: Path) -> None:
    write_curves(tmp_path, OURS, THEIRS)
    async with Engine() as a, Engine(BASELINE.value) as b, staged(tmp_path / "crossover.yaml", a, b) as stage:
        stage.change(routing={"policy": "auto", "curves_file": NAME, "learn": False})
        assert (await stage.reload())[0] == 200
        assert stage.app.desk.learning is None
        assert (await shown(stage, "/curves"))["learned"] is None
        assert (await shown(stage, "/status"))["learning"] is None
