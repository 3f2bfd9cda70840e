"""`crossover curves`: list the published curves, show one, or fit the step time formula to some."""

import argparse
import sys
from pathlib import Path

from proxy.errors import ConfigError
from proxy.lab import curve_plots, curve_tables
from proxy.lab.calibration import extra
from proxy.lab.curves import Curve, find, kind_of, shipped
from proxy.lab.law_check import check_law


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `crossover curves` can do on a parser; `run` takes what it parsed."""
    acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
    listed = acts.add_parser("list", help="the shipped curves, a line each")
    listed.add_argument("text", nargs="?", default="", metavar="TEXT", help="only those whose line has this in it")
    listed.add_argument("--json", action="store_true", help="as JSON")
    shown = acts.add_parser("show", help="one curve: its points, where it crosses, where it is from")
    shown.add_argument("name", metavar="NAME", help="a shipped curve, or a file of that form")
    drawn = shown.add_mutually_exclusive_group()
    drawn.add_argument("--svg", type=Path, metavar="FILE", help="draw it into this file instead of in letters")
    drawn.add_argument("--png", type=Path, metavar="FILE")
    fitted = acts.add_parser("fit", help="fit the step time formula to curves of one target")
    fitted.add_argument("names", nargs="+", metavar="NAME", help="shipped curves or files, differing in context alone")


def run(options: argparse.Namespace) -> int:
    """Do it; the exit code: 0 done, 1 not possible, and standard error says the mend."""
    try:
        acts = {"list": _list, "show": _show, "fit": _fit}
        acts[options.act](options)
        sys.stdout.flush()
    except ConfigError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    except BrokenPipeError:
        # The reader (`| head`) has had enough. What is left must not be tried again when the interpreter ends.
        sys.stdout = None
    return 0


def _list(options: argparse.Namespace) -> None:
    every = [find(name) for name in shipped()]
    chosen = [curve for curve in every if options.text.lower() in _words(curve)]
    if not chosen:
        raise ConfigError(f"no curve has {options.text!r} in it; mend: `crossover curves list` shows all {len(every)}")
    if options.json:
        sys.stdout.write(curve_tables.listing_json(chosen).decode())
    else:
        sys.stdout.write(curve_tables.listing(chosen))


def _show(options: argparse.Namespace) -> None:
    curve = find(options.name)
    kind, path = ("svg", options.svg) if options.svg else ("png", options.png)
    if path is None:
        sys.stdout.write(f"{curve_tables.description(curve)}\n{curve_plots.letters(curve)}")
        return
    extra.need()
    curve_plots.picture(curve, path, kind)
    sys.stdout.write(f"{curve_tables.description(curve)}drawn        {path}\n")


def _fit(options: argparse.Namespace) -> None:
    extra.need()
    from proxy.lab import fitting  # noqa: PLC0415 - scipy is there for this alone

    curves = [find(name) for name in options.names]
    laws = {curve.name: check_law(curve) for curve in curves}
    sys.stdout.write(curve_tables.fitted(fitting.fit(curves), laws))


def _words(curve: Curve) -> str:
    said = (curve.name, curve.hardware, curve.model, curve.engine, curve.spec_config, curve.kind, kind_of(curve))
    return "\n".join(said).lower()
