"""`crossover status`: what a running proxy does, as a page for a person or as JSON, and an exit code for scripts."""

import argparse
import shutil
from pathlib import Path
from typing import Any

from proxy.terminal.cells import counted, duration, figure, is_number
from proxy.terminal.columns import UNKNOWN, columns, labelled
from proxy.terminal.port import WRONG_PORT, Port, Unanswered, understood
from proxy.terminal.saying import complain, escaped, plain, say

SERVING, NOT_SERVING = 0, 1
_HEAD = ("role", "in flight", "limit", "health", "circuit", "engine", "drift", "accepts")


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
        with understood(port.url):
            lines = page(port.url, told, shutil.get_terminal_size().columns)
    except Unanswered as error:
        complain(f"no status: {error}")
        return NOT_SERVING
    say(escaped(text) if as_json else "\n".join(lines))
    return SERVING if told["ready"] is True else NOT_SERVING


def known(port: Port, told: dict[str, Any]) -> dict[str, Any]:
    """A status that has what every proxy tells. Raises Unanswered of anything else."""
    backends = told.get("backends")
    whole = isinstance(backends, list) and all(
        isinstance(each, dict) and isinstance(each.get("role"), str) for each in backends
    )
    if not whole or not {"phase", "policy", "ready"} <= told.keys():
        raise Unanswered(f"{port.url} answers, but not as a Crossover does; {WRONG_PORT}")
    return told


def page(url: str, told: dict[str, Any], width: int) -> list[str]:
    """All that a person wants to know first, in lines."""
    ready = "ready" if told["ready"] else "NOT READY"
    lines = [f"Crossover {plain(told.get('version'))} at {plain(url)}: {plain(told['phase'])}, {ready}"]
    if told.get("sentence"):
        lines += labelled("", plain(told["sentence"], 1000), width, 0)
    for trouble in told.get("troubles") or ():
        lines += labelled("!", plain(trouble["message"], 1000), width, 2)
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
        f"{figure(running)}+{figure(waiting or 0)}" if is_number(running) else UNKNOWN,
        figure(backend.get("drift")),
        figure(backend.get("accept_length"), "{:.2f}"),
    )


def _notes(told: dict[str, Any]) -> list[tuple[str, str]]:
    held = counted(told.get("waiting", 0), "request") + f" waiting, {counted(told.get('connections', 0), 'connection')}"
    notes = [*_engines(told), ("policy", _policy(told)), ("queue", held)]
    learning = told.get("learning")
    if learning:
        suspended = learning.get("suspended_for_s") or 0.0
        state = f"put aside for {duration(suspended)} more" if suspended else "on"
        taught = f". {plain(learning['sentence'], 1000)}" if learning.get("sentence") else ""
        notes.append(("learning", f"{state}; {counted(learning.get('probes', 0), 'probe')} so far{taught}"))
        beside = learning.get("beside") or {}
        notes += [("", f"{plain(role, 12)} now: {plain(words, 200)}") for role, words in beside.items()]
    notes += [("verdict", plain(each, 1000)) for each in told.get("verdict") or ()]
    notes += [("warning", plain(each.get("message"), 1000)) for each in told.get("warnings") or ()]
    dropped = told.get("dropped_in_flight") or {}
    notes += [
        ("dropped", f"{plain(url)} still has {counted(held, 'sequence')}") for url, held in dropped.items() if held
    ]
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
        since = "" if age_s is None else f" since {duration(age_s)}"
        smoothed = figure(told.get("smoothed", 0.0), "{:.1f}")
        said += f"; it favours {plain(told.get('regime'))}{since}, {smoothed} in flight (smoothed)"
    if policy in ("threshold", "overflow"):
        said += f"; leave_at {figure(told.get('leave_at'))}"
    if policy == "threshold":
        said += f", enter_at {figure(told.get('enter_at'))}"
    return said


def health(backend: dict[str, Any]) -> str:
    """One word: what the operator wishes first, then what the probes say."""
    if backend.get("draining"):
        return "draining"
    up = backend.get("up")
    if up and backend.get("silent"):
        return "SILENT"
    return "unknown" if up is None else "up" if up else "DOWN"
