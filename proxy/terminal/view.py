"""What `crossover top` shows, asked from the operators' port once for each frame. How it looks is in frame.py.

Nothing is kept from one look to the next: a proxy that was started anew is shown as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
