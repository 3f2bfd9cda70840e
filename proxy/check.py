"""`crossover check`: what a start would do. Nothing is served. What a running proxy does is told by terminal/."""

import argparse
import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from proxy import config
from proxy.config import InvalidConfig, Settings
from proxy.dispatch import Desk
from proxy.model import ROLES, Role
from proxy.plan import kinds, learned_path, line_rules, plan
from proxy.protocol.agreement import disagreements
from proxy.state.backend import Backend
from proxy.telling.figures import count
from proxy.terminal.saying import complain, say
from proxy.wire.control import Heard
from proxy.wire.learned_file import unwritable
from proxy.wire.pair import Pair

OK, FAILED = 0, 1
ASK_WITHIN_S = 10.0
WARNING, SILENT, STRANGE = "warning: ", "no answer from", "answered "


def run(options: argparse.Namespace) -> int:
    """Check a configuration: every problem at once, or the settings in force, what the backends say, and last what it
    comes to. An engine that does not answer is no failure: the proxy starts without it."""
    try:
        settings = config.load(options.config, os.environ)
    except InvalidConfig as error:
        complain(error.message)
        return FAILED
    say(config.effective(settings).rstrip())
    for sentence in config.sentences(settings.sources.curves):
        say(f"# verdict: {sentence}")
    lines = [f"{WARNING}{caution}" for caution in (*config.cautions(settings), *_state_file(settings))]
    if not options.offline:
        lines += asyncio.run(_look(settings))
    for line in lines:
        say(f"# {line}")
    say(f"# {_conclusion(lines, options.config, offline=options.offline)}")
    return OK


def _state_file(settings: Settings) -> Iterable[str]:
    """What keeps the one who checks from writing there; the proxy's own user may have more to overcome."""
    path = learned_path(settings)
    if path is None or not settings.routing.learn.enabled:
        return
    try:
        why = unwritable(path)
    except OSError as error:
        why = f"{error.strerror}; mend: name another file"
    if why is not None:
        yield f"routing.learn.state_file: {path} cannot be written: {why}"


def _conclusion(lines: Sequence[str], path: Path, *, offline: bool) -> str:
    """What it comes to, as the last line: the settings before it are longer than a screen."""
    warnings = sum(line.startswith(WARNING) for line in lines)
    told = [f"{count(warnings, 'warning')} above"] if warnings else []
    missing = [
        f"the {role} engine does not answer{' as one' if said.startswith(STRANGE) else ''}"
        for role, _, said in (line.partition(": ") for line in lines)
        if said.startswith((SILENT, STRANGE))
    ]
    if offline or not missing:
        missing.append("the engines were not asked" if offline else "both engines answer")
        verdict = "LOOK" if warnings else "OK"
    else:
        verdict = "LOOK"
    told += missing
    return f"{verdict}: {path} can be served" + "".join(f"; {each}" for each in told)


async def _look(settings: Settings) -> Iterable[str]:
    desk = Desk(plan(settings), asyncio.get_running_loop().time)
    pair = Pair(desk, lambda _: None)
    lines = pair.connect(line_rules(settings))
    try:
        async with asyncio.timeout(ASK_WITHIN_S):
            await asyncio.gather(*(line.first_look() for line in lines))
    except TimeoutError:
        pass  # what did not answer is told below
    finally:
        await pair.stop()
    return _found(desk, {line.backend.role: line.heard for line in lines}, settings)


def _found(desk: Desk, heard: Mapping[Role, Heard], settings: Settings) -> list[str]:
    found = []
    for backend in desk.backends:
        found.append(f"{backend.role}: {_state(backend, heard[backend.role])}")
    speculative, baseline = (desk.backend(role).facts for role in ROLES)
    if speculative is not None and baseline is not None:
        found += [f"{WARNING}{each.message}" for each in disagreements(speculative, baseline, kinds(settings))]
    running = {each.role: each.facts.version for each in desk.backends if each.facts is not None}
    found += [f"{WARNING}{message}" for message in config.outdated(settings.sources.curves, running)]
    return found


def _state(backend: Backend, heard: Heard) -> str:
    facts = backend.facts
    if facts is None and backend.load is None and not backend.health.up:
        return _missing(backend, heard)
    if facts is None:
        key = "api_key" if heard.answered in (401, 403) else "`engine`"
        return f"{backend.url} answers {heard.answered} but does not say what it runs; is {key} right?"
    said = [f"{facts.model or 'a model without a name'} on {backend.url}"]
    if facts.version:
        said.append(f"version {facts.version}")
    if backend.max_in_flight:
        said.append(f"at most {backend.max_in_flight} sequences in flight")
    said.append(f"speculation {facts.speculative_algorithm}" if facts.speculative_algorithm else "no speculation told")
    if backend.health.up is False:
        said.append("not ready now")
    return ", ".join(said)


def _missing(backend: Backend, heard: Heard) -> str:
    """How there is no engine; each way has its own mend."""
    without = "the proxy would start without it"
    if heard.answered is None:
        return f"{SILENT} {backend.url}: {heard.failure or f'none within {ASK_WITHIN_S:g} s'}; {without}"
    doubt = (
        "is it starting, or is something else there?" if heard.answered >= 500 else "are its url and `engine` right?"
    )
    return f"{STRANGE}{heard.answered}: {backend.url}; {doubt} As it is, {without}"
