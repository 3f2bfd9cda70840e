"""The line of an operator's act: who, by which way, what, before and after. Never a token, nor what was sent.

Where acts come from is in admin.py and serve.py; the fields of every line are in docs/logs.md.
"""

from typing import Any

from structlog.typing import FilteringBoundLogger

EVENT = "audit"


def audit(logger: FilteringBoundLogger, act: str, via: str, **told: Any) -> None:
    """Tell one act, `via` the port, a signal or a changed file. A warning, so that a log without the lines of requests
    still has it; fields that are None and say nothing by it (all but before and after) are left out."""
    fields = {name: value for name, value in told.items() if value is not None or name in ("before", "after")}
    logger.warning(EVENT, act=act, via=via, **fields)


def ending(taken: bool) -> str:
    """What became of a reload."""
    return "accepted" if taken else "rejected"
