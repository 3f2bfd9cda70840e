"""`crossover status`: what a running proxy does, as a page for a person or as JSON, and an exit code for scripts."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from proxy.telling.figures import count, seconds
from proxy.terminal.columns import UNKNOWN, columns, labelled
from proxy.terminal.port import WRONG_PORT, Port, Unanswered
from proxy.terminal.saying import plain, say

SERVING, NOT_SERVING = 0, 1
_HEAD = ("role", "in flight", "limit", "health", "circuit", "engine", "drift", "accepts", "speed")


def run(options: argparse.Namespace) -> int:
    """One look, by the options of the command line."""
    return show(options.url, options.token_file, options.ca, as_json=options.json)


def show(url: str, token_file: Path | None = None, ca_file: Path | None = None, *, as_json: bool = False) -> int:
    """Print the status of a running proxy, whose token is in a file or in the environment where it has one, and which
    is trusted by `ca_file` where that is given. Returns 0 where it serves and is ready, else 1."""
    try:
        port = Port(url, token_file, ca_file)
        text = port.text("/status")
        told = known(port, port.read(text))
    except Unanswered as error:
        say(f"no status: {error}", sys.stderr)
        return NOT_SERVING
    say(text if as_json else "\n".join(page(port.url, told, shutil.get_terminal_size().columns)))
    return SERVING if told["ready"] is True else NOT_SERVING


def known(port: Port, told: dict[str, Any]) -> dict[str, Any]:
    """A status that has what every proxy tells. Raises Unanswered of anything else."""
    backends = told.get("backends")
    whole = isinstance(backends, list) and all(isinstance(each, dict) and "role" in each for each in backends)
    if not whole or not {"phase", "policy", "ready"} <= told.keys():
        raise Unanswered(f"{port.url} answers, but not as a Crossover does; {WRONG_PORT}")
    return told


def page(url: str, told: dict[str, Any], width: int) -> list[str]:
    """All that a person wants to know first, in lines."""
    ready = "ready" if told["ready"] else "NOT READY"
    lines = [f"Crossover {plain(told.get('version'))} at {plain(url)}: {plain(told['phase'])}, {ready}"]
    if told.get("sentence"):
        lines += labelled("", plain(told["sentence"], 1000), width, 0)
    lines += ["", *columns([_HEAD, *(_backend(each) for each in told["backends"])]), ""]
    for label, text in _notes(told):
        lines += labelled(label, text, width)
    return lines


def _backend(backend: dict[str, Any]) -> tuple[str, ...]:
    running, waiting = backend.get("engine_running"), backend.get("engine_waiting")
    return (
        plain(backend["role"]),
        figure(backend.get("in_flight")),
        figure(backend.get("max_in_flight")),
        health(backend),
        plain(backend.get("circuit")),
        UNKNOWN if running is None else f"{running}+{waiting or 0}",
        figure(backend.get("drift")),
        figure(backend.get("accept_length"), "{:.2f}"),
        figure(backend.get("learned_ratio"), "x{:.2f}"),
    )


def _notes(told: dict[str, Any]) -> list[tuple[str, str]]:
    held = count(told.get("waiting", 0), "request") + f" waiting, {count(told.get('connections', 0), 'connection')}"
    notes = [*_engines(told), ("policy", _policy(told)), ("queue", held)]
    learning = told.get("learning")
    if learning:
        suspended = learning.get("suspended_for_s") or 0.0
        state = f"put aside for {seconds(suspended)} more" if suspended else "on"
        notes.append(("learning", f"{state}; {count(learning.get('probes', 0), 'probe')} so far"))
    notes += [("verdict", plain(each, 1000)) for each in told.get("verdict") or ()]
    notes += [("warning", plain(each.get("message"), 1000)) for each in told.get("warnings") or ()]
    dropped = told.get("dropped_in_flight") or {}
    notes += [("dropped", f"{plain(url)} still has {count(held, 'sequence')}") for url, held in dropped.items() if held]
    if told.get("reload_failed"):
        notes.append(("warning", "the configuration file was refused and the one before holds; its log says why"))
    return notes


def _engines(told: dict[str, Any]) -> list[tuple[str, str]]:
    said = []
    for role, url in (told.get("urls") or {}).items():
        facts = (told.get("engines") or {}).get(role) or {}
        model, version = facts.get("model") or "a model it does not name", facts.get("version")
        said.append((plain(role), " ".join(plain(each) for each in (model, version, "at", url) if each)))
    return said


def _policy(told: dict[str, Any]) -> str:
    policy, pinned = plain(told["policy"]), told.get("pinned")
    said = f"{policy}, but an operator pinned everything to {plain(pinned)}" if pinned else policy
    if policy in ("threshold", "consolidate"):
        age_s = told.get("regime_age_s")
        since = "" if age_s is None else f" since {seconds(age_s)}"
        said += f"; it favours {plain(told.get('regime'))}{since}, {told.get('smoothed', 0.0):.1f} in flight (smoothed)"
    if policy in ("threshold", "overflow"):
        said += f"; leave_at {told.get('leave_at')}" + (
            f", enter_at {told.get('enter_at')}" if policy == "threshold" else ""
        )
    return said


def health(backend: dict[str, Any]) -> str:
    """One word: what the operator wishes first, then what the probes say."""
    if backend.get("draining"):
        return "draining"
    up = backend.get("up")
    return "unknown" if up is None else "up" if up else "DOWN"


def figure(value: float | None, form: str = "{:,}") -> str:
    """A number in a cell; a dash where it is not known."""
    return UNKNOWN if value is None else form.format(value)
