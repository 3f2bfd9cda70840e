"""What happens on the virtual clock beside requests: polls and probes, acceptance that changes, engines that are lost.

It comes about as `Course` says. What becomes of the requests of a lost engine is in endings.py.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from proxy.lab.simulation import telling
from proxy.lab.simulation.arms import Arm
from proxy.lab.simulation.ask import Ask
from proxy.lab.simulation.course import POLL_S, Course, Level
from proxy.lab.simulation.moments import Moments
from proxy.model import ROLES, Role
from proxy.routing.health import Evidence

if TYPE_CHECKING:
    from proxy.lab.simulation.trial import Trial

# Room also comes with time alone: a client who left lingers no more, a circuit cools down. As in the proxy's queue.
LOOK_AGAIN_S = 0.25


class Happenings:
    """All that a course brings about in one run. `lost` are the engines to which nobody can connect."""

    __slots__ = ("_arm", "_looking", "_probe_every_s", "_restless", "_shifts", "_trial", "lost")

    def __init__(self, trial: "Trial", arm: Arm, course: Course) -> None:
        self.lost: set[Role] = set()
        self._trial = trial
        self._arm = arm
        self._looking = False
        self._restless = bool(course.losses or course.aborts)
        self._shifts: Iterator[tuple[float, Level]] = iter(course.shifts)
        self._probe_every_s = arm.settings.health.interval_s
        self._await_shift()
        for loss in course.losses:
            trial.agenda.at(loss.at_s, partial(self._lose, loss.role))
            trial.agenda.at(loss.at_s + loss.lasts_s, partial(self._bring_back, loss.role))
        if course.losses:
            self._probe()
        if course.polled:
            for station in trial.stations.values():
                station.moments = Moments()
            self._poll()

    def look_again(self) -> None:
        """Look for room later too, while somebody waits and not only endings make some."""
        if self._restless and not self._looking:
            self._looking = True
            self._trial.agenda.at(self._trial.now_s + LOOK_AGAIN_S, self._look)

    def _look(self) -> None:
        self._looking = False
        self._trial.give_places()
        if self._trial.queue:
            self.look_again()

    def _poll(self) -> None:
        """Ask each engine for its load, now and from now on."""
        trial = self._trial
        for role in ROLES:
            if role not in self.lost:
                trial.gpus[role].advance(trial.now_s)
                load = telling.load(trial.stations[role], role, trial.now_s)
                trial.desk.observe_load(trial.desk.backend(role), load)
        trial.agenda.at(trial.now_s + POLL_S, self._poll, idle=True)

    def _probe(self) -> None:
        """Ask each engine whether it is there, now and from now on."""
        trial = self._trial
        for role in ROLES:
            evidence = Evidence.REFUSED if role in self.lost else Evidence.HIT
            trial.desk.observe_health(trial.desk.backend(role), evidence)
        if trial.queue:
            trial.give_places()
        trial.agenda.at(trial.now_s + self._probe_every_s, self._probe, idle=True)

    def _await_shift(self) -> None:
        following = next(self._shifts, None)
        if following is not None:
            at_s, level = following
            self._trial.agenda.at(at_s, partial(self._shift, level), idle=True)

    def _shift(self, level: Level) -> None:
        trial, there = self._trial, self._arm.at(level)
        trial.choose = there.choose
        for role in ROLES:
            trial.gpus[role].repace(trial.stations[role], there.paces[role], trial.now_s)
        self._await_shift()

    def _lose(self, role: Role) -> None:
        trial = self._trial
        self.lost.add(role)
        for task in trial.gpus[role].clear(trial.stations[role], trial.now_s):
            assert isinstance(task, Ask)
            trial.endings.struck(task)

    def _bring_back(self, role: Role) -> None:
        self.lost.discard(role)
