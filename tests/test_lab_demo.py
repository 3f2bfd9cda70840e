"""The demo's settings follow its curve."""

import pytest

from proxy.errors import ConfigError
from proxy.lab.demo import Demo


def _with_ports(demo: Demo) -> Demo:
    demo._ports.update({role: 40000 + number for number, role in enumerate(("speculative", "baseline"))})
    return demo


def test_thresholds_lie_around_the_crossing_of_the_curve() -> None:
    settings = _with_ports(Demo(None, None, 1.0)).settings()
    assert settings.routing.policy == "threshold"
    assert (settings.routing.enter_at, settings.routing.leave_at) == (3, 6)


def test_a_curve_on_which_speculation_never_pays_pins_the_baseline() -> None:
    settings = _with_ports(Demo("seed", None, 1.0)).settings()
    assert (settings.routing.policy, settings.routing.pin) == ("pinned", "baseline")


def test_a_curve_on_which_speculation_always_pays_pins_the_speculative() -> None:
    settings = _with_ports(Demo("amd_mi355x_kimi25_eagle3_bf16", None, 1.0)).settings()
    assert (settings.routing.policy, settings.routing.pin) == ("pinned", "speculative")


@pytest.mark.parametrize("policy", ["threshold", "overflow", "pinned"])
def test_the_policy_asked_for_is_taken_on_every_curve(policy: str) -> None:
    assert _with_ports(Demo("seed", policy, 1.0)).settings().routing.policy == policy


def test_an_unknown_curve_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="seed"):
        Demo("nonesuch", None, 1.0)


def test_the_greeting_names_the_ports_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    Demo("seed", "overflow", 1.0).greet(30000, 29000)
    said = capsys.readouterr().out
    assert "http://127.0.0.1:30000" in said
    assert "never pays" in said
    assert "the rest on baseline" in said
