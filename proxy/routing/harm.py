"""The bound on harm: whether routing by corrected curves does worse than by the measured ones, by our own clock.

Corrections come from what engines say of themselves wherever they do. This looks at answers alone: how long their
tokens took, and what they would have taken where the measured curves would have sent them. It is a second opinion, made
to be slow, and its word is that learning is suspended for a while.
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from proxy.model import BASELINE, ROLES, SPECULATIVE, Decision, Role, Traits, Whereabouts
from proxy.routing import consolidate, marginal
from proxy.routing.belief import NO_LINE, Belief, Line
from proxy.routing.learner import Told
from proxy.routing.rules import Rules

# Costs are compared over the answers of so long, in slots of a tenth of a minute and more.
WINDOW_S, SLOT_S = 300.0, 10.0
# By so much the corrected curves may do worse, and so many answers must have gone elsewhere for them, over so long:
# fewer are chance, and an engine that just fills up misleads.
MOST_WORSE, LEAST_ANSWERS, LEAST_S = 0.05, 50, 100.0
# Where a request would have gone it must have cost less by more than this: answers tell of a speed to a tenth or so.
UNSURE = 0.15
# What answers told of a backend so long ago is no word on what it would do now.
RECENT_S = 60.0

# A prediction may miss an answer by so much more than that of the measured curve does, in ln, before it is doubted: as
# much as prompts between tokens make of a busy backend. Doubt adds up to the limit: three answers, each off by three.
FORGIVEN, DOUBTED = 0.3, 1.5
# By so much fewer misses, in ln and in the mean of the last twenty answers, corrected curves are the better ones.
BETTER, NEWEST = 0.05, 0.05
# What one answer adds at most: one may be off by anything.
MOST_MISS = 1.0

# How long the measured curves then hold, doubled each time that it comes again within the longest.
SUSPENDED_S, LONGEST_S = 600.0, 6 * 3600.0


class Choice(NamedTuple):
    """What a request would cost on either backend by the measured curves, seconds, speculative first, and where they
    would have sent it."""

    costs_s: tuple[float, float]
    role: Role


@dataclass(slots=True)
class Harm:
    """The second opinion. `suspended` counts how often, `until_s` is when the last one ends."""

    beliefs: dict[Role, Belief] = field(default_factory=lambda: {role: Belief() for role in ROLES})
    lines: dict[Role, Line] = field(default_factory=lambda: dict.fromkeys(ROLES, NO_LINE))
    doubts: dict[Role, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    misses: dict[Role, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    suspended: int = 0
    until_s: float = -inf
    worse: float = 0.0
    _lasts_s: float = SUSPENDED_S
    _slots: "deque[list[float]]" = field(default_factory=deque)

    def answered(self, role: Role, told: Told, now_s: float) -> None:
        """Take in what an answer tells."""
        bucket, seen, ln_ratio, believed = told
        self.beliefs[role].observe(bucket, seen, ln_ratio, now_s)
        if believed is not None:
            miss = min(MOST_MISS, abs(ln_ratio - believed)) - min(MOST_MISS, abs(ln_ratio))
            self.doubts[role] = max(0.0, self.doubts[role] + miss - FORGIVEN)
            self.misses[role] += NEWEST * (miss - self.misses[role])

    def forget(self, role: Role) -> None:
        """A backend has changed, by what it says itself: what answers told of it before is no word on it any more."""
        self.beliefs[role], self.lines[role] = Belief(), NO_LINE

    def compare(self, role: Role, bucket: int, choice: Choice, counts: tuple[float, float], now_s: float) -> None:
        """Add an answer up that went to `role`, where `counts` were in flight, beside where it would have gone."""
        first_s, second_s = choice.costs_s
        costs = {SPECULATIVE: (first_s, counts[0]), BASELINE: (second_s, counts[1])}
        ours_s, n = costs[role]
        ours_s *= self.lines[role].ratio(bucket, n)
        theirs_s, moved = ours_s, 0.0
        if choice.role is not role:
            cost_s, n = costs[choice.role]
            known_s = self.beliefs[choice.role].known_s(bucket, n)
            if known_s is not None and now_s - known_s <= RECENT_S:
                theirs_s, moved = (1.0 + UNSURE) * cost_s * self.lines[choice.role].ratio(bucket, n), 1.0
        if ours_s < inf and theirs_s < inf:
            self._add(now_s // SLOT_S, ours_s, theirs_s, moved)

    def look(self, now_s: float) -> bool:
        """Whether learning is to be suspended now."""
        self.lines = {role: belief.line(now_s) for role, belief in self.beliefs.items()}
        while self._slots and self._slots[0][0] < (now_s - WINDOW_S) // SLOT_S:
            self._slots.popleft()
        ours_s, theirs_s, moved = (sum(slot[column] for slot in self._slots) for column in (1, 2, 3))
        self.worse = ours_s / theirs_s - 1.0 if theirs_s > 0.0 else 0.0
        lasts_s = now_s - self._slots[0][0] * SLOT_S if self._slots else 0.0
        harmed = self.worse > MOST_WORSE and moved >= LEAST_ANSWERS and lasts_s >= LEAST_S
        # Where corrected curves foretell answers better than the measured ones, what those would have cost is a fable.
        harmed = harmed and sum(self.misses.values()) > -BETTER
        return harmed or max(self.doubts.values()) > DOUBTED

    def suspend(self, now_s: float) -> None:
        """Begin anew, with the measured curves until `until_s`."""
        again = now_s - self.until_s < LONGEST_S
        self._lasts_s = min(2.0 * self._lasts_s, LONGEST_S) if again else SUSPENDED_S
        self.until_s = now_s + self._lasts_s
        self.suspended += 1
        self.doubts, self.misses = dict.fromkeys(ROLES, 0.0), dict.fromkeys(ROLES, 0.0)
        self._slots.clear()

    def _add(self, slot: float, ours_s: float, theirs_s: float, moved: float) -> None:
        slots = self._slots
        if not slots or slots[-1][0] != slot:
            slots.append([slot, 0.0, 0.0, 0.0])
        last = slots[-1]
        last[1] += ours_s
        last[2] += theirs_s
        last[3] += moved


def measured_choice(measured: Rules, decision: Decision, traits: Traits, tokens: float) -> Choice | None:
    """What the measured curves would have made of a request with the counts and the demand that it was decided by."""
    because = decision.because
    failures = 0 if because.costs is None else because.costs.baseline_failures
    if measured.paces is not None:
        return _favoured(measured, decision)
    if measured.delays is None:
        return None
    counts = (because.speculative_in_flight + because.recent_failures, because.baseline_in_flight)
    told = marginal.costs(
        measured.delays,
        traits,
        tokens,
        counts,
        failures,
        demand=decision.regime.demand,
        goals=measured.goals,
        where=Whereabouts(because.speculative_cached, because.baseline_cached),
    )
    return Choice((told.speculative_s, told.baseline_s), marginal.prefer(told)[0])


def _favoured(measured: Rules, decision: Decision) -> Choice | None:
    """The same of policy consolidate: the other role only where that is shorter by what a change needs."""
    if measured.paces is None or decision.role is None:
        return None
    demand = decision.regime.demand
    both = measured.paces.at_context(demand.context_tokens)
    here = both[0] if decision.role is SPECULATIVE else both[1]
    tok_s = consolidate.loaded(here, demand)
    first_s, second_s = (consolidate.pace_s(paces, demand, tok_s) for paces in both)
    if inf in (first_s, second_s):
        return None
    here_s, there_s = (first_s, second_s) if decision.role is SPECULATIVE else (second_s, first_s)
    stays = here_s < (1.0 + consolidate.MIN_GAIN) * there_s
    return Choice((first_s, second_s), decision.role if stays else decision.role.other)
