"""The command line. Parses, then hands over; every command's work is elsewhere and imported only when asked for."""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proxy import __version__
from proxy.errors import ConfigError
from proxy.model import Placement, Policy
from proxy.ports import port_number

OK, FAILED = 0, 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 clean, 1 configuration or start-up error (2 bad usage, by argparse)."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        options = asked(argv)
    except ConfigError as error:  # an optional package is missing, without which options cannot even be explained
        print(error.message, file=sys.stderr)  # noqa: T201 - before there is a logger
        return FAILED
    code: int = options.run(options)
    return code


def asked(argv: Sequence[str]) -> argparse.Namespace:
    """What a command line asks for. Bad usage ends the process with exit code 2, and what is allowed on standard error.
    Raises ConfigError where an optional package is missing."""
    options = _parser(argv[:1]).parse_args(argv)
    if options.run is _serve and options.config is not None and _of_the_demo(options):
        options.refuse("--curve, --policy, --placement and --time-scale are for the demo without CONFIG; leave one out")
    return options


class _Parser(argparse.ArgumentParser):
    """One that says what is allowed in place of a number, for each option of each command."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.register("type", int, _whole)
        self.register("type", float, _number)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; mend: write one, such as 8") from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; mend: write one, such as 0.5") from error


def _above_zero(text: str) -> float:
    if not 0.0 < (number := _number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0; mend: write one, such as 0.5 or 2")
    return number


def _placement(text: str) -> Placement:
    try:
        return Placement(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no placement; mend: {' or '.join(Placement)}") from error


def _parser(first: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(prog="crossover", description="One endpoint, two engines, measured.")
    parser.add_argument("--version", action="version", version=f"crossover {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_check(commands)
    _add_lab(commands, first)
    _add_terminal(commands, first)
    _add_key(commands)
    return parser


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="serve; without CONFIG in front of two embedded engines")
    serve.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="YAML file; see config/crossover.yaml")
    serve.add_argument("--host", help="overrides listen.host; the demo's is 127.0.0.1, this machine alone")
    serve.add_argument("--port", type=port_number, help="overrides listen.port")
    serve.add_argument("--admin-port", type=port_number, help="overrides admin.port")
    serve.add_argument("--log-format", choices=("json", "text"), help="overrides log.format")
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="overrides log.level")
    demo = serve.add_argument_group("without CONFIG: the demo")
    demo.add_argument("--curve", metavar="NAME", help="a published curve, or a file of that form")
    demo.add_argument("--policy", choices=tuple(policy.value for policy in Policy), help="default: auto")
    demo.add_argument(
        "--placement",
        type=_placement,
        choices=tuple(map(str, Placement)),
        default=Placement.SEPARATE,
        help="shared: same GPUs",
    )
    demo.add_argument(
        "--time-scale", type=_above_zero, default=1.0, metavar="X", help="engines X times slower than the curve"
    )
    serve.set_defaults(run=_serve, refuse=serve.error)


def _add_check(commands: Any) -> None:
    check = commands.add_parser("check", help="check a configuration and look at its backends, without serving")
    check.add_argument("config", type=Path, metavar="CONFIG")
    check.add_argument("--offline", action="store_true", help="do not ask the backends anything")
    check.set_defaults(run=_check)


def _add_lab(commands: Any, first: Sequence[str]) -> None:
    load = commands.add_parser("load", help="measure an endpoint under closed-loop or Poisson load")
    engine = commands.add_parser("engine", help="run one embedded engine")
    curves = commands.add_parser("curves", help="list, show and fit the published curves")
    calibrate = commands.add_parser("calibrate", help="measure where the crossover is, and whether there is one")
    simulate = commands.add_parser("simulate", help="policies against the best that can be done, on a virtual clock")
    replay = commands.add_parser("replay", help="what other policies would have given on the traffic of a log")
    if {"load", "engine", "curves", "calibrate"} & set(first):
        from proxy.lab import curves_command, engine_options, loadgen  # noqa: PLC0415 - not for those who only serve

        loadgen.add_arguments(load)
        engine_options.add_arguments(engine)
        curves_command.add_arguments(curves)
    if "calibrate" in first:
        from proxy.lab.calibration import command  # noqa: PLC0415

        command.add_arguments(calibrate)
    if {"simulate", "replay"} & set(first):
        from proxy.lab.calibration import extra  # noqa: PLC0415

        extra.need()
    if "simulate" in first:
        from proxy.lab.simulation import command as simulation  # noqa: PLC0415

        simulation.add_arguments(simulate)
    if "replay" in first:
        from proxy.lab.replay import command as replaying  # noqa: PLC0415

        replaying.add_arguments(replay)
    load.set_defaults(run=_load)
    engine.set_defaults(run=_engine)
    curves.set_defaults(run=_curves)
    calibrate.set_defaults(run=_calibrate)
    simulate.set_defaults(run=_simulate)
    replay.set_defaults(run=_replay)


def _add_terminal(commands: Any, first: Sequence[str]) -> None:
    status = commands.add_parser("status", help="what a running proxy is doing; exit code 0 where it serves")
    explain = commands.add_parser("explain", help="why one request went where it went, and what came of it")
    top = commands.add_parser("top", help="what a running proxy does, live in the terminal")
    if {"status", "explain", "top"} & set(first):
        from proxy.terminal import explain as told  # noqa: PLC0415 - not for those who only serve
        from proxy.terminal import port  # noqa: PLC0415
        from proxy.terminal import top as live  # noqa: PLC0415

        live.add_options(top)

        explain.add_argument(
            "request_id",
            type=told.request_id,
            metavar="REQUEST_ID",
            help="the x-request-id of its answer, or its first 8 characters, as `top` shows them",
        )
        for command in (status, explain):
            port.add_arguments(command)
            command.add_argument("--json", action="store_true", help="as the operators' port tells it")
    status.set_defaults(run=_status)
    explain.set_defaults(run=_explain)
    top.set_defaults(run=_top)


def _add_key(commands: Any) -> None:
    key = commands.add_parser("key", help="make a client's key and its line for listen.api_keys_file")
    key.add_argument("name", metavar="NAME", help="what logs and metrics call the client")
    key.set_defaults(run=_key)


def _serve(options: argparse.Namespace) -> int:
    gc.disable()  # what a start makes stays: to look through it again and again only delays it
    try:
        from proxy import serve  # noqa: PLC0415

        return serve.run(options)
    finally:
        gc.enable()


def _of_the_demo(options: argparse.Namespace) -> bool:
    shared = options.placement is Placement.SHARED
    return bool(options.curve or options.policy or shared or options.time_scale != 1.0)


def _check(options: argparse.Namespace) -> int:
    from proxy import check  # noqa: PLC0415

    return check.run(options)


def _load(options: argparse.Namespace) -> int:
    import uvloop  # noqa: PLC0415

    from proxy.lab import loadgen  # noqa: PLC0415

    code: int = uvloop.run(loadgen.run(options))
    return code


def _engine(options: argparse.Namespace) -> int:
    import uvloop  # noqa: PLC0415

    from proxy.lab import embedded  # noqa: PLC0415

    code: int = uvloop.run(embedded.run_command(options))
    return code


def _calibrate(options: argparse.Namespace) -> int:
    import uvloop  # noqa: PLC0415

    from proxy.lab.calibration import command  # noqa: PLC0415
    from proxy.lab.interrupt import EXIT_INTERRUPTED  # noqa: PLC0415

    try:
        code: int = uvloop.run(command.run(options))
    except KeyboardInterrupt:  # before the first cell, or as results are written
        code = EXIT_INTERRUPTED
    return code


def _curves(options: argparse.Namespace) -> int:
    from proxy.lab import curves_command  # noqa: PLC0415

    return curves_command.run(options)


def _simulate(options: argparse.Namespace) -> int:
    from proxy.lab.simulation import command  # noqa: PLC0415

    return _until_interrupted(command.run, options)


def _replay(options: argparse.Namespace) -> int:
    from proxy.lab.replay import command  # noqa: PLC0415

    return _until_interrupted(command.run, options)


def _until_interrupted(run: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """What it comes to; where somebody presses Ctrl-C what has been printed stays, without a traceback."""
    from proxy.lab.interrupt import EXIT_INTERRUPTED  # noqa: PLC0415

    try:
        return run(options)
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return EXIT_INTERRUPTED


def _status(options: argparse.Namespace) -> int:
    from proxy.terminal import status  # noqa: PLC0415

    return status.run(options)


def _explain(options: argparse.Namespace) -> int:
    from proxy.terminal import explain  # noqa: PLC0415

    return explain.run(options)


def _top(options: argparse.Namespace) -> int:
    from proxy.terminal import top  # noqa: PLC0415

    return top.run(options)


def _key(options: argparse.Namespace) -> int:
    from proxy import issue  # noqa: PLC0415

    return issue.run(options.name)


if __name__ == "__main__":
    sys.exit(main())
