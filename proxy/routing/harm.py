"""The bound on harm: whether routing by corrected curves does worse than by the measured ones, by our own clock.

Corrections come from what engines say of themselves wherever they do. This looks at answers alone: how long their
tokens took, and what they would have taken where the measured curves would have sent them. It is a second opinion, made
to be slow, and its word is that learning is suspended for a while. What operators, clients or a lost engine sent
somewhere is no choice of any curves, and is not judged (`is_choice`).
"""

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from math import exp, inf
from typing import NamedTuple

from proxy.model import ROLES, SPECULATIVE, Decision, Reason, Role, Traits, Whereabouts
from proxy.routing import affinity, consolidate, marginal
from proxy.routing.belief import Belief
from proxy.routing.correction import Correction
from proxy.routing.curves import Curves
from proxy.routing.learner import Told
from proxy.routing.rules import Rules

# Costs are compared over the answers of so long, in slots of a tenth of a minute and more.
WINDOW_S, SLOT_S = 300.0, 10.0
# By so much the corrected curves may do worse, and so many answers must have gone elsewhere for them, over so long:
# fewer are chance, and an engine that just fills up misleads. Time in which nothing was chosen does not count.
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

# Curves as answers have them are made anew so seldom: their tables take a millisecond each.
JUDGED_EVERY_S = 10.0

# What curves choose. Wishes, rules, state, probes, second attempts, a full or a lost backend leave them no choice.
_CHOSEN = (Reason.CHEAPER, Reason.REGIME, Reason.AFFINITY)

# How long the measured curves then hold, doubled each time that it comes again within the longest.
SUSPENDED_S, LONGEST_S = 600.0, 6 * 3600.0


class Choice(NamedTuple):
    """What a request would cost on either backend, seconds, speculative first, and where that would have sent it."""

    costs_s: tuple[float, float]
    role: Role


class Cause(StrEnum):
    """Why learning was suspended: answers were not as foretold, or cost more than elsewhere."""

    DOUBT = "doubt"
    COST = "cost"


class Suspension(NamedTuple):
    """Why learning was suspended, in numbers. Of doubt about `role`: seconds for a token, as `predicted` by what its
    `source` told and as `seen`, in the mean of so many `answers`. Of cost, which is of no single backend: the seconds
    that all `answers` would have cost where the measured curves would have sent them, and what they cost, while `moved`
    of them went elsewhere. Learning is suspended for `lasts_s`."""

    cause: Cause
    role: Role | None
    source: str
    predicted_s: float
    seen_s: float
    answers: int
    moved: int
    lasts_s: float

    def numbers(self) -> dict[str, float | str]:
        """As plain values, for a line or JSON."""
        return {
            "cause": self.cause.value,
            "source": self.source,
            "predicted_s": float(f"{self.predicted_s:.4g}"),
            "seen_s": float(f"{self.seen_s:.4g}"),
            "answers": self.answers,
            "moved": self.moved,
            "suspended_for_s": round(self.lasts_s, 1),
        }


@dataclass(slots=True)
class Doubt:
    """By how much answers of one backend have missed what was foretold, and how many since that was nothing; of these
    the sums of seconds for a token, as predicted and as seen."""

    sum: float = 0.0
    answers: int = 0
    predicted_s: float = 0.0
    seen_s: float = 0.0

    def add(self, miss: float, predicted_s: float, seen_s: float) -> None:
        """Add an answer up; what is forgiven makes an end of all before."""
        self.sum += miss - FORGIVEN
        self.answers += 1
        self.predicted_s += predicted_s
        self.seen_s += seen_s
        if self.sum <= 0.0:
            self.sum, self.answers, self.predicted_s, self.seen_s = 0.0, 0, 0.0, 0.0


class Slot(NamedTuple):
    """Answers of some seconds: what they cost, what they would have cost, how many, and how many went elsewhere."""

    number: float
    ours_s: float = 0.0
    theirs_s: float = 0.0
    answers: int = 0
    moved: int = 0


class Harm:
    """The second opinion beside `curves`. `suspended` counts how often, `until_s` is when the last one ends, of which
    `last` tells why. `correction` are the curves as answers have them, by which costs are compared."""

    def __init__(self, curves: Curves) -> None:
        self.correction = Correction(curves)
        self.suspended = 0
        self.until_s = -inf
        self.last: Suspension | None = None
        self._beliefs = {role: Belief() for role in ROLES}
        self._doubts = {role: Doubt() for role in ROLES}
        self._misses = dict.fromkeys(ROLES, 0.0)
        self._lasts_s = SUSPENDED_S
        self._slots: deque[Slot] = deque()
        self._judged_at_s = -inf

    def answered(self, role: Role, told: Told, now_s: float) -> None:
        """Take in what an answer tells."""
        bucket, seen, ln_ratio, believed = told
        self._beliefs[role].observe(bucket, seen, ln_ratio, now_s)
        if believed is not None:
            miss = min(MOST_MISS, abs(ln_ratio - believed)) - min(MOST_MISS, abs(ln_ratio))
            seen_s = seen.seconds_per_token
            self._doubts[role].add(miss, seen_s * exp(believed - ln_ratio), seen_s)
            self._misses[role] += NEWEST * (miss - self._misses[role])

    def forget(self, role: Role) -> None:
        """A backend has changed, by what it says itself: what answers told of it before is no word on it any more."""
        self._beliefs[role] = Belief()

    def compare(self, role: Role, bucket: int, choice: Choice, counts: tuple[float, float], now_s: float) -> None:
        """Add an answer up that went to `role`, where `counts` were in flight, beside where the measured curves would
        have sent it. The costs of that `choice` are by the curves that answers bear out: measured ones are wrong by
        their slope too, and that is what one more costs."""
        costs, there = dict(zip(ROLES, choice.costs_s, strict=True)), choice.role
        ours_s = theirs_s = costs[role]
        moved = 0
        if there is not role:
            known_s = self._beliefs[there].known_s(bucket, counts[ROLES.index(there)])
            if known_s is not None and now_s - known_s <= RECENT_S:
                theirs_s, moved = (1.0 + UNSURE) * costs[there], 1
        if ours_s < inf and theirs_s < inf:
            self._add(now_s // SLOT_S, ours_s, theirs_s, moved)

    def look(self, now_s: float) -> Suspension | None:
        """Why learning is to be suspended now; None: it is not."""
        if now_s - self._judged_at_s >= JUDGED_EVERY_S or now_s < self._judged_at_s:
            self._judged_at_s = now_s
            self.correction.follow({role: (belief, belief.line(now_s)) for role, belief in self._beliefs.items()})
        while self._slots and self._slots[0].number < (now_s - WINDOW_S) // SLOT_S:
            self._slots.popleft()
        return self._doubted() or self._dearer(now_s)

    def suspend(self, why: Suspension, now_s: float) -> None:
        """Begin anew, with the measured curves until `until_s`."""
        again = now_s - self.until_s < LONGEST_S
        self._lasts_s = min(2.0 * self._lasts_s, LONGEST_S) if again else SUSPENDED_S
        self.until_s = now_s + self._lasts_s
        self.suspended += 1
        self.last = why._replace(lasts_s=self._lasts_s)
        self._doubts, self._misses = {role: Doubt() for role in ROLES}, dict.fromkeys(ROLES, 0.0)
        self._slots.clear()

    def _doubted(self) -> Suspension | None:
        role, doubt = max(self._doubts.items(), key=lambda each: each[1].sum)
        if doubt.sum <= DOUBTED:
            return None
        n = doubt.answers
        return Suspension(Cause.DOUBT, role, "", doubt.predicted_s / n, doubt.seen_s / n, n, 0, 0.0)

    def _dearer(self, now_s: float) -> Suspension | None:
        slots = self._slots
        lasts_s = min(SLOT_S, now_s - slots[-1].number * SLOT_S) + (len(slots) - 1) * SLOT_S if slots else 0.0
        # Where corrected curves foretell answers better than the measured ones, what those would have cost is a fable.
        if lasts_s < LEAST_S or sum(self._misses.values()) <= -BETTER:
            return None
        ours_s, theirs_s = sum(slot.ours_s for slot in slots), sum(slot.theirs_s for slot in slots)
        answers, moved = sum(slot.answers for slot in slots), sum(slot.moved for slot in slots)
        if moved < LEAST_ANSWERS or ours_s <= (1.0 + MOST_WORSE) * theirs_s:
            return None
        return Suspension(Cause.COST, None, "", theirs_s, ours_s, answers, moved, 0.0)

    def _add(self, number: float, ours_s: float, theirs_s: float, moved: int) -> None:
        slots = self._slots
        last = slots.pop() if slots and slots[-1].number == number else Slot(number)
        total = Slot(number, last.ours_s + ours_s, last.theirs_s + theirs_s, last.answers + 1, last.moved + moved)
        slots.append(total)


def is_choice(decision: Decision) -> bool:
    """Whether a request went where corrected curves sent it, and measured ones could have sent it to the other backend:
    that one took requests, and no recent failures weighed as load that was not there.

    What comes after the decision is of no matter: costs are by the counts that it saw, so that a pin or an outage while
    the request ran changes nothing in them.
    """
    because = decision.because
    failing = because.recent_failures or (because.costs is not None and because.costs.baseline_failures)
    out = because.speculative_out or because.baseline_out
    return because.learned and decision.reason in _CHOSEN and not failing and not out


def choice_of(rules: Rules, decision: Decision, traits: Traits, tokens: float) -> Choice | None:
    """What other rules would have made of a request with the counts and the demand that it was decided by."""
    because = decision.because
    failures = 0 if because.costs is None else because.costs.baseline_failures
    if rules.paces is not None:
        return _favoured(rules, decision)
    if rules.delays is None:
        return None
    counts = (because.speculative_in_flight + because.recent_failures, because.baseline_in_flight)
    where = _where(decision)
    told = marginal.costs(
        rules.delays,
        traits,
        tokens,
        counts,
        failures,
        demand=decision.regime.demand,
        goals=rules.goals,
        where=where,
    )
    asked = marginal.prefer(told)
    if rules.affine:  # a conversation stays at home while that pays, by whichever curves
        asked = affinity.settle(rules, asked, where, told, (counts[0] + traits.weight, failures))
    return Choice((told.speculative_s, told.baseline_s), asked[0])


def _favoured(rules: Rules, decision: Decision) -> Choice | None:
    """The same of policy consolidate: the other role only where that is shorter by what a change needs."""
    if rules.paces is None or decision.role is None:
        return None
    demand = decision.regime.demand
    both = rules.paces.at_context(demand.context_tokens)
    here = both[0] if decision.role is SPECULATIVE else both[1]
    tok_s = consolidate.loaded(here, demand)
    first_s, second_s = (consolidate.pace_s(paces, demand, tok_s) for paces in both)
    if inf in (first_s, second_s):
        return None
    here_s, there_s = (first_s, second_s) if decision.role is SPECULATIVE else (second_s, first_s)
    stays = here_s < (1.0 + consolidate.MIN_GAIN) * there_s
    return Choice((first_s, second_s), decision.role if stays else decision.role.other)


def _where(decision: Decision) -> Whereabouts:
    """What a decision knew of the caches. Of a home that holds no more than the other backend it tells only where the
    request stayed there."""
    first, second = decision.because.speculative_cached, decision.because.baseline_cached
    home = decision.role if decision.reason is Reason.AFFINITY else None
    if home is None and first != second:
        home = ROLES[0] if first > second else ROLES[1]
    return Whereabouts(first, second, home)
