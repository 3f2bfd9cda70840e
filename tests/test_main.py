"""The command line: what it takes, what it says, and the exit code: 0 clean, 1 failed, 2 bad usage."""

from pathlib import Path
from typing import Any

import pytest
from fakes.interpreter import printed, ran

from proxy import __version__, check, serve
from proxy.__main__ import main
from proxy.lab.calibration import extra
from proxy.lab.replay import command as replaying
from proxy.lab.simulation import command as simulation
from proxy.model import Placement
from proxy.terminal import explain, status


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `serve` was asked for, instead of serving."""
    asked: list[Any] = []
    monkeypatch.setattr(serve, "run", lambda options: asked.append(options) or 0)
    return asked


def usage_error(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"crossover {__version__}\n")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(
        command in said for command in ("serve", "check", "load", "engine", "curves", "status", "explain", "key")
    )


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ((), "COMMAND"),
        (("dance",), "dance"),
        (("check",), "CONFIG"),
        (("serve", "--port", "many"), "--port"),
        (("serve", "--log-level", "loud"), "--log-level"),
        (("serve", "--unknown"), "--unknown"),
        (("serve", "a.yaml", "b.yaml"), "b.yaml"),
        (("serve", "a.yaml", "--curve", "seed"), "without CONFIG"),
        (("serve", "a.yaml", "--time-scale", "2"), "without CONFIG"),
        (("key",), "NAME"),
        (("explain",), "REQUEST_ID"),
        (("explain", "http://127.0.0.1:29000", "an-id"), "write `crossover explain REQUEST_ID URL`"),
        (("explain", "an-id", "127.0.0.1:29000"), "give the address like http://127.0.0.1:29000"),
        (("status", "127.0.0.1:41900"), "give the address like http://127.0.0.1:29000, not '127.0.0.1:41900'"),
        (("top", "localhost:29000"), "give the address like http://127.0.0.1:29000"),
        (("load", "--concurrency"), "usage: crossover load"),
        (("engine", "--role", "fastest"), "--role"),
        (("serve", "--placement", "both"), "--placement: 'both' is no placement; mend: separate or shared"),
        (("serve", "--policy", "best"), "(choose from"),
        (("serve", "--port", "many"), "--port: 'many' is no port; mend: write one from 0 (a free one) to 65535"),
        (("serve", "--port", "99999"), "--port: '99999' is no port; mend: write one from 0 (a free one) to 65535"),
        (("serve", "--admin-port", "-1"), "--admin-port: '-1' is no port"),
        (("engine", "--port", "65536"), "--port: '65536' is no port; mend: write one from 0 (a free one) to 65535"),
        (("engine", "--port", "x"), "--port: 'x' is no port"),
        (("serve", "--time-scale", "slow"), "'slow' is not a number; mend: write one, such as 0.5"),
        (("serve", "--time-scale", "0"), "'0' is not a number above 0; mend: write one, such as 0.5 or 2"),
        (("serve", "--time-scale", "nan"), "'nan' is not a number above 0"),
        (("engine", "--seed", "x"), "--seed: 'x' is not a whole number"),
        (("engine", "--health-latency-s", "x"), "--health-latency-s: 'x' is not a number"),
        (("top", "--count", "x"), "--count: 'x' is not a whole number"),
    ],
)
def test_bad_usage_is_told_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], told: str
) -> None:
    assert told in usage_error(capsys, *argv)


def test_serve_takes_a_file_and_what_overrides_it(served: list[Any]) -> None:
    assert main(["serve", "c.yaml", "--host", "::1", "--port", "1", "--admin-port", "2", "--log-level", "debug"]) == 0
    [options] = served
    assert (options.config, options.host, options.port) == (Path("c.yaml"), "::1", 1)
    assert (options.admin_port, options.log_format, options.log_level) == (2, None, "debug")


def test_serve_without_a_file_takes_the_demos_options(served: list[Any]) -> None:
    assert main(["serve", "--curve", "seed", "--policy", "pinned", "--time-scale", "2", "--placement", "shared"]) == 0
    [options] = served
    assert options.placement is Placement.SHARED
    assert (options.config, options.curve, options.policy, options.time_scale) == (None, "seed", "pinned", 2.0)


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(check, "run", lambda _: code)
    assert main(["check", "c.yaml"]) == code


@pytest.mark.parametrize(("module", "argv"), [(simulation, ["simulate"]), (replaying, ["replay", "a.log", "c.yaml"])])
def test_whoever_stops_a_simulation_gets_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: Any, argv: list[str]
) -> None:
    def run(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run", run)
    assert main(argv) == 130
    assert capsys.readouterr().err == "\nstopped\n"


@pytest.mark.parametrize(("command", "named"), [("status", []), ("explain", ["an-id"])])
def test_the_default_operators_port_is_asked(monkeypatch: pytest.MonkeyPatch, command: str, named: list[str]) -> None:
    asked: list[Any] = []
    for module in (status, explain):
        monkeypatch.setattr(module, "run", lambda options: asked.append(options) or 0)
    assert main([command, *named]) == 0
    assert main([command, *named, "https://x:1", "--token-file", "t", "--ca", "ca.pem", "--json"]) == 0
    plainly, fully = asked
    assert (plainly.url, plainly.token_file, plainly.ca, plainly.json) == ("http://127.0.0.1:29000", None, None, False)
    assert (fully.url, fully.token_file, fully.ca, fully.json) == ("https://x:1", Path("t"), Path("ca.pem"), True)
    assert getattr(fully, "request_id", None) == (named[0] if named else None)


def test_those_who_only_serve_load_no_laboratory() -> None:
    """Start-up time and memory are the operator's."""
    code = "import sys; from proxy.__main__ import _parser; _parser(['serve']); import proxy.serve; "
    code += "print([name for name in sys.modules if name.startswith(('proxy.lab', 'proxy.terminal'))])"
    assert printed(code).strip() == "[]"


def test_the_module_is_the_command() -> None:
    said = ran("-m", "proxy", "check", "missing.yaml")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == "missing.yaml: cannot be read (No such file or directory); mend: check the path\n"


@pytest.mark.parametrize("command", ["simulate", "replay"])
def test_a_command_whose_packages_are_missing_names_them_and_the_mend(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extra, "find_spec", lambda name: None if name == "scipy" else name)
    assert main([command, "anything"]) == 1
    said = capsys.readouterr().err
    assert "not installed: scipy" in said
    assert "scripts/calibrate" in said
