"""The demo's settings follow its curve, and its engines' very speeds lie in the file that they name."""

import re
import shlex
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import aiohttp
import pytest
from fakes.proxy import running, url
from fakes.until import until

from proxy.config import override
from proxy.config.views import beside_defaults
from proxy.errors import ConfigError
from proxy.lab import engine_options
from proxy.lab.demo import Demo
from proxy.model import ROLES, Placement, Policy, Role

Make = Callable[..., Demo]


@pytest.fixture
def demo() -> Iterator[Make]:
    """Makes demos whose engines never start."""
    made: list[Demo] = []

    def make(curve: str | None = None, policy: str | None = None, time_scale: float = 1.0, **more: Placement) -> Demo:
        made.append(Demo(curve, policy, time_scale, **more))
        made[-1]._ports.update({role: 40000 + number for number, role in enumerate(ROLES)})
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_it_routes_by_the_speeds_of_its_own_engines(demo: Make) -> None:
    one = demo()
    rules = one.settings().rules()
    assert rules.effective_policy is Policy.MARGINAL
    assert rules.curves is not None
    (context,) = rules.curves.contexts
    for point in one.curve.points:
        for role in Role:
            curve = context.of(role)
            assert curve is not None
            assert curve.tok_s(point.concurrency) == pytest.approx(point.of(role), rel=1e-5)
    assert context.prefill_tok_s == (one.curve.prefill_tokens_per_s,) * 2


def test_slower_engines_have_slower_speeds_in_the_file(demo: Make) -> None:
    quick, slow = (demo(time_scale=scale).settings().rules().curves for scale in (1.0, 4.0))
    assert quick is not None and slow is not None
    assert quick.contexts[0].baseline is not None and slow.contexts[0].baseline is not None
    assert slow.contexts[0].baseline.tok_s(8) == pytest.approx(quick.contexts[0].baseline.tok_s(8) / 4, rel=1e-5)
    assert slow.contexts[0].prefill_tok_s[0] == pytest.approx((quick.contexts[0].prefill_tok_s[0] or 0.0) / 4)


def test_on_shared_gpus_one_engine_at_a_time_is_favoured(demo: Make) -> None:
    settings = demo(placement=Placement.SHARED).settings()
    assert settings.placement is Placement.SHARED
    assert settings.rules().effective_policy is Policy.CONSOLIDATE


def test_thresholds_lie_around_the_crossing_of_the_curve(demo: Make) -> None:
    settings = demo(policy="threshold").settings()
    assert (settings.routing.enter_at, settings.routing.leave_at) == (3, 6)


@pytest.mark.parametrize(("curve", "pin"), [("seed", "baseline"), ("amd_mi355x_kimi25_eagle3_bf16", "speculative")])
def test_what_is_pinned_is_the_faster_one(demo: Make, curve: str, pin: str) -> None:
    assert demo(curve, "pinned").settings().routing.pin == pin


def test_a_demo_that_pins_nothing_has_no_pin_in_its_configuration(demo: Make) -> None:
    told = demo("amd_mi355x_kimi25_eagle3_bf16", "auto")
    keys = [each["key"] for each in beside_defaults(told.settings())]
    assert "routing.curves_file" in keys and "routing.pin" not in keys


@pytest.mark.parametrize("policy", Policy)
def test_the_policy_asked_for_is_taken_on_every_curve(demo: Make, policy: Policy) -> None:
    placement = Placement.SHARED if policy is Policy.CONSOLIDATE else Placement.SEPARATE
    assert demo("seed", policy.value, placement=placement).settings().routing.policy == policy


def test_a_change_of_its_configuration_is_taken_over(demo: Make) -> None:
    one = demo()
    assert one.settings().routing.policy is Policy.AUTO
    (path,) = [path for path in one.settings().sources.marks if path.name == "crossover.yaml"]
    path.write_text(path.read_text().replace("policy: auto", "policy: overflow"))
    assert one.settings().routing.policy is Policy.OVERFLOW


@pytest.mark.parametrize(
    ("host", "url", "who"),
    [
        ("127.0.0.1", "http://127.0.0.1:1234;", "this machine alone; --host 0.0.0.0 lets others"),
        ("::1", "http://[::1]:1234;", "this machine alone"),
        ("0.0.0.0", "http://127.0.0.1:1234;", "Whoever reaches this machine may ask it"),
        ("::", "http://[::1]:1234;", "Whoever reaches this machine may ask it"),
        ("10.0.0.7", "http://10.0.0.7:1234;", "Whoever reaches this machine may ask it (--host 10.0.0.7)"),
    ],
)
def test_its_greeting_tells_where_it_is_asked_and_by_whom(demo: Make, host: str, url: str, who: str) -> None:
    told = StringIO()
    demo().greet(host, 1234, 5678, told)
    assert f"Crossover on {url}" in told.getvalue()
    assert who in told.getvalue()


def test_it_listens_for_this_machine_alone(demo: Make) -> None:
    assert demo().settings().listen.host == "127.0.0.1"


def test_its_folder_goes_with_it(demo: Make) -> None:
    one = demo()
    folders = {path.parent for path in one.settings().sources.marks}
    assert all(folder.is_dir() for folder in folders)
    one.remove()
    assert not any(folder.exists() for folder in folders)


def test_an_unknown_curve_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="seed"):
        Demo("nonesuch", None, 1.0)


def test_the_greeting_names_the_ports_the_verdict_and_the_files(demo: Make, capsys: pytest.CaptureFixture[str]) -> None:
    one = demo("seed", "overflow")
    one.settings()
    one.greet("127.0.0.1", 30000, 29000, sys.stdout)
    said = capsys.readouterr().out
    assert "http://127.0.0.1:30000" in said
    assert "open http://127.0.0.1:29000/" in said
    assert "never pays" in said
    assert "the rest on baseline" in said
    found = re.search(r"Configuration and speeds: (\S+)", said)
    assert found is not None
    assert (Path(found[1]) / "curves.yaml").is_file()


@pytest.mark.parametrize("placement", Placement)
async def test_both_engines_answer_and_a_decision_tells_what_each_would_have_cost(placement: Placement) -> None:
    demo = Demo(None, None, 0.05, placement)
    try:
        await demo.start()
        free = {"listen.host": "127.0.0.1", "listen.port": 0, "admin.port": 0}
        async with running(override(demo.settings(), free)) as app, aiohttp.ClientSession() as client:
            assert app.status()["warnings"] == [], "a demo greets with no warning of itself"
            for role in Role:
                asked = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
                wish = {"x-crossover-backend": role.value}
                async with client.post(url(app, "/v1/chat/completions"), json=asked, headers=wish) as answer:
                    assert (answer.status, answer.headers["x-crossover-backend"]) == (200, role.value)
            async with client.post(url(app, "/v1/chat/completions"), json=asked) as answer:
                told = answer.headers["x-crossover-because"]
                assert "speculative_cost_s=" in told and "baseline_cost_s=" in told
    finally:
        await demo.stop()


async def test_an_engine_that_dies_is_told_of_on_the_demos_terminal_and_one_that_is_stopped_is_not(
    capfd: pytest.CaptureFixture[str],
) -> None:
    demo = Demo(None, None, 0.05)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return "\n" in said

    try:
        await demo.start()
        killed = demo._engines[0]
        killed.send_signal(signal.SIGKILL)
        await until(told, what="a line on standard error")
    finally:
        await demo.stop()
    told()
    (line,) = said.splitlines()
    found = re.fullmatch(
        r"the (\w+) engine \(pid (\d+)\) has ended; restart the demo to have it back, or run (.+)", line
    )
    assert found is not None and int(found[2]) == killed.pid
    port = demo._ports[Role(found[1])]
    again = shlex.split(found[3])[2:]  # behind the program and `engine`
    parser = ArgumentParser()
    engine_options.add_arguments(parser)
    restarted = parser.parse_args(again)
    assert (restarted.role, restarted.curve, restarted.port) == (found[1], demo._name, port)
    assert (restarted.max_running_requests, restarted.time_scale) == (256, 0.05)
