"""What engines say of themselves, told on: a line and a note in the journal for each that is seen, a warning where the
two disagree or are not what the curves were measured with.

What an engine is asked and how its answer is read is in wire/ and protocol/.
"""

from structlog.typing import FilteringBoundLogger

from proxy import config
from proxy.config import Settings
from proxy.dispatch import Desk
from proxy.model import ROLES
from proxy.plan import kinds
from proxy.protocol.agreement import Disagreement, disagreements
from proxy.state.backend import Backend
from proxy.watch import Watch


class Acquaintance:
    """Of one proxy with its two engines. `warnings` are what they disagree on now."""

    def __init__(self, desk: Desk, watch: Watch, logger: FilteringBoundLogger, settings: Settings) -> None:
        self.warnings: list[Disagreement] = []
        self.settings = settings
        self._desk = desk
        self._watch = watch
        self._logger = logger
        self._told_outdated: set[str] = set()

    def met(self, backend: Backend) -> None:
        """An engine has said what it is; one that a reload has dropped is of no interest."""
        facts = backend.facts
        if facts is None or self._desk.backend(backend.role) is not backend:
            return
        self._logger.info(
            "engine_seen",
            role=backend.role.value,
            version=facts.version,
            model=facts.model,
            max_running_requests=facts.max_running_requests,
            algorithm=facts.speculative_algorithm,
            another=backend.changed_at_s is not None,
        )
        self._watch.engine_seen(backend.role, backend.url, facts)
        self._compare()
        for each in self.warnings:
            self._tell(each)

    def reloaded(self, settings: Settings) -> None:
        """Other settings are in force: the engines may have changed places, or others have come in their place of which
        nothing is known yet. What was found before holds no more, and what is found again is not told anew."""
        self.settings, before = settings, self.warnings
        self._compare()
        for each in self.warnings:
            if each not in before:
                self._tell(each)

    def _compare(self) -> None:
        """Find what the two disagree on as they are now: nothing, until both have said what they are."""
        self._tell_outdated()
        speculative, baseline = (self._desk.backend(role).facts for role in ROLES)
        self.warnings = []
        if speculative is not None and baseline is not None:
            self.warnings = disagreements(speculative, baseline, kinds(self.settings))
        self._watch.disagree(self.warnings)

    def _tell(self, found: Disagreement) -> None:
        self._logger.warning("backends_disagree", code=found.code, message=found.message)

    def _tell_outdated(self) -> None:
        """Engines come back often and say the same: each difference from the curves is told once."""
        running = {each.role: each.facts.version for each in self._desk.backends if each.facts is not None}
        for message in config.outdated(self.settings.sources.curves, running):
            if message not in self._told_outdated:
                self._told_outdated.add(message)
                self._logger.warning("curves_outdated", message=message)
                self._watch.note("caution", message)
