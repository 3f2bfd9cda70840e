"""What `crossover top` shows, asked from the operators' port, and how what its stream tells changes it.

When it is asked and when the stream is read is in following.py; how it looks in frame.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.model import Role
from proxy.terminal.cells import is_number
from proxy.terminal.port import Port, Unanswered, understood
from proxy.terminal.status import known

# What is drawn and added up: a minute, which fits beside a label in 80 columns.
WINDOW_S = 60
# Speeds are means of so many latest steps: one of a second has too few answers to tell.
LATEST = 10
# A screen has no room for more.
MAX_DECISIONS, MAX_EVENTS = 50, 50
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class View:
    """One look. `samples` are the last minute by column, a value for each step of `step_s` seconds, oldest first; empty
    where the proxy keeps no history. Decisions and events are newest first, as the port tells them."""

    url: str
    status: dict[str, Any]
    step_s: float = 1.0
    samples: dict[str, list[Any]] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """The values of a column over the last minute; empty where there are none."""
        return self.samples.get(name, [])

    def total(self, name: str) -> int:
        """The sum over the last minute."""
        return int(sum(_known(self.column(name))))

    def mean(self, role: Role, name: str) -> float | None:
        """The mean of a speed or a duration over the latest steps that told one."""
        told = _known(self.column(f"{role.value}_{name}")[-LATEST:])
        return sum(told) / len(told) if told else None

    def per_s(self, role: Role) -> float | None:
        """Requests a second that were sent to a role in the latest steps."""
        latest = _known(self.column(f"{role.value}_requests")[-LATEST:])
        return sum(latest) / (len(latest) * self.step_s) if latest else None


def look(port: Port) -> View:
    """Everything for one frame. Raises Unanswered."""
    status = known(port, port.json("/status"))
    with understood(port.url):
        return _view(port, status)


def after(view: View, name: str, told: Any) -> View:
    """The view once the stream has told an event. Raises ValueError, TypeError or LookupError where it is none that
    fits what was there before."""
    match name:
        case "sample":
            return _with_row(view, told)
        case "state":
            return replace(view, status=told)
        case "decisions":
            return replace(view, decisions=[*_objects(told["shown"]), *view.decisions][:MAX_DECISIONS])
        case "journal":
            return replace(view, events=[*_objects([told]), *view.events][:MAX_EVENTS])
    return view


def _with_row(view: View, row: list[Any]) -> View:
    told = dict(zip(view.samples, row, strict=True))
    since_s = told["at_s"] - next(iter(view.column("at_s")[-1:]), 0.0)
    if since_s < -2 * view.step_s:
        raise ValueError("its clock was set back, and what was seen is of no time")
    if since_s <= 0:
        return view  # it was in the history already
    samples = {name: [*values, told[name]][-WINDOW_S:] for name, values in view.samples.items()}
    # The state comes every few rows: of what both tell, the row is newer.
    both = {name: told[name] for name in ("waiting", "smoothed")}
    backends = [{**each, "in_flight": told[f"{each['role']}_in_flight"]} for each in view.status["backends"]]
    return replace(view, samples=samples, status={**view.status, **both, "backends": backends})


def _view(port: Port, status: dict[str, Any]) -> View:
    history = _optional(port, f"/history?seconds={WINDOW_S}")
    names, rows = history.get("columns"), history.get("samples")
    samples: dict[str, list[Any]] = {}
    if isinstance(names, list) and isinstance(rows, list):
        whole = [row for row in rows[-WINDOW_S:] if isinstance(row, list) and len(row) == len(names)]
        samples = {str(name): [row[at] for row in whole] for at, name in enumerate(names)}
    return View(
        url=port.url,
        status=status,
        step_s=_step(history.get("step_s")),
        samples=samples,
        decisions=_objects(_optional(port, f"/decisions?limit={MAX_DECISIONS}").get("decisions")),
        events=_objects(_optional(port, f"/journal?limit={MAX_EVENTS}").get("events")),
    )


def _optional(port: Port, path: str) -> dict[str, Any]:
    """What a proxy of an older version does not tell yet is nothing."""
    try:
        return port.json(path)
    except Unanswered as error:
        if error.status != NOT_FOUND:
            raise
        return {}


def _objects(found: Any) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _step(found: Any) -> float:
    return float(found) if is_number(found) and found > 0 else 1.0


def _known(values: Sequence[Any]) -> list[float]:
    return [float(each) for each in values if is_number(each)]
