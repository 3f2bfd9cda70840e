"""The desk's part in learning: feeds the learner with what polls and answers show, and takes corrected curves over.

What is learned and how is pure and in routing/ (learner.py, probing.py, harm.py). Nothing here is on the way of a
request but one count, and a probe's decision.
"""

from dataclasses import replace
from math import log
from typing import Any

from proxy.model import (
    ROLES,
    SPECULATIVE,
    Decision,
    EngineLoad,
    Outcome,
    Placement,
    Policy,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
)
from proxy.routing import consolidate, learned, opening, trying
from proxy.routing.curves import ContextCurves
from proxy.routing.delays import MAX_LISTED
from proxy.routing.demand import BYTES_PER_TOKEN, DEMAND_S
from proxy.routing.deviation import Deviation, Standing
from proxy.routing.gain import best_gain
from proxy.routing.harm import Harm, choice_of, is_choice
from proxy.routing.held import Held
from proxy.routing.learner import Answer, Learner, Look
from proxy.routing.likeness import alike
from proxy.routing.probing import DEAR_S, SHARED_DEAR_S, Probes
from proxy.routing.rules import Rules
from proxy.routing.trying import CAUTION, KEEPS, LEAST_HELD, Tries, Try
from proxy.state.backend import Backend

# On shared GPUs corrections wait until the demand is known, four of its time constants after the start: a change of the
# favoured role for a demand that only seems low would hold for a minute.
SHARED_AFTER_S = 4.0 * DEMAND_S

# There each step of a probe is one that all others wait for, for as long as its answer lasts: at most so many may.
# One probe at the start, beside many, cost up to a fifth of all time in the first 500 requests (tried).
SHARED_MOST_HELD_UP = 1

# Time between two turns, in which curves are corrected. Polls come every second.
EVERY_S = 2.0

_LEARNING = (Policy.MARGINAL, Policy.CONSOLIDATE)
_PROBE, _FINISHED = Reason.PROBE, Outcome.FINISHED


def learns(rules: Rules) -> bool:
    """Whether these rules go by curves that can be corrected."""
    return rules.by_curves and rules.effective_policy in _LEARNING


class Learning:
    """Learning beside the curves of `measured`, which are the rules as configured."""

    def __init__(self, measured: Rules, now_s: float) -> None:
        assert measured.curves is not None, "only rules with curves can be corrected"
        self.measured = measured
        self.shared = measured.placement is Placement.SHARED
        self.learner = Learner(measured.curves, shared=self.shared)
        self.probes = Probes(now_s, SHARED_DEAR_S if self.shared else DEAR_S)
        self.harm = Harm(measured.curves)
        self._judged = (measured, measured)
        self._held = (Held(), Held())
        self._turned_at_s = now_s
        self.tries = Tries()
        self._deviations = {role: Deviation() for role in ROLES}
        self.standings: dict[Role, Standing | None] = dict.fromkeys(ROLES)
        self._began_s = now_s
        self._from_s = now_s + (SHARED_AFTER_S if self.shared else 0.0)
        self._opens = False

    def polled(self, backend: Backend, beside: Backend, load: EngineLoad, now_s: float) -> None:
        """Take in a poll."""
        other, mine = beside.book, self._held[0 if backend.role is SPECULATIVE else 1]
        self.learner.polled(backend.role, Look(load, now_s, mine.sums(now_s), (other.opened, other.in_flight)))

    def heard(self, facts: RequestFacts, backends: tuple[Backend, Backend], now_s: float) -> None:
        """Take in an answer; its lease is settled by now. How fast its backend was is evidence whoever sent it there:
        beside as many it is as fast for one that was pinned. Where it went is judged only if curves chose that."""
        (first, second), (one, other) = backends, self._held
        one.note(first.book.in_flight, now_s)
        other.note(second.book.in_flight, now_s)
        decision, traits, usage = facts.decision, facts.traits, facts.usage
        if facts.outcome is not _FINISHED or decision is None or decision.role is None or traits.weight != 1:
            return
        role = decision.role
        mine, theirs = (0, 1) if role is SPECULATIVE else (1, 0)
        first_at_s = now_s - facts.duration_s + (facts.ttft_s or 0.0)
        in_flight, beside = self._held[mine].mean(first_at_s), self._held[theirs].mean(first_at_s)
        context = traits.prompt_bytes / BYTES_PER_TOKEN
        before_s = facts.queue_s + _lost_s(facts, decision, now_s)
        answer = Answer(
            context,
            (usage.prompt_tokens or context) - usage.cached_tokens,
            usage.completion_tokens,
            None if facts.held_up else facts.tpot_s,
            in_flight,
            now_s - facts.duration_s + before_s,
            _unbegun_share(facts, before_s),
            bool(beside is None or beside > 0.0),
        )
        told = self.learner.answered(role, answer, now_s)
        if told is not None and told.believed is not None:
            self.harm.answered(role, told, now_s)
            if is_choice(decision) and not self.tries.were_on(decision.regime.smoothed_at_s):
                self._compare(facts, decision, told.bucket, now_s)

    def _compare(self, facts: RequestFacts, decision: Decision, bucket: int, now_s: float) -> None:
        tokens = float(facts.usage.completion_tokens)
        measured = choice_of(self.measured, decision, facts.traits, tokens)
        judged = choice_of(self._judging(), decision, facts.traits, tokens)
        if measured is not None and judged is not None and decision.role is not None:
            because = decision.because
            counts = (because.speculative_in_flight + 1.0, because.baseline_in_flight + 1.0)
            choice = measured._replace(costs_s=judged.costs_s)
            self.harm.compare(decision.role, bucket, choice, counts, now_s)

    def _judging(self) -> Rules:
        """The rules as configured, by the curves that answers bear out."""
        measured, judge = self._judged
        curves = self.harm.correction.corrected
        if judge.curves is not curves or measured is not self.measured:
            judge = replace(self.measured, curves=curves)
            self._judged = (self.measured, judge)
        return judge

    def turn(self, rules: Rules, backends: tuple[Backend, Backend], now_s: float) -> Rules | None:
        """Other rules, now and then, if something has changed; else None."""
        if 0.0 <= now_s - self._turned_at_s < EVERY_S:
            return None
        self._turned_at_s = now_s
        learner, harm = self.learner, self.harm
        why = harm.look(now_s) if rules.learned else None
        if why is not None:
            source = "" if why.role is None else learner.sides[why.role].source
            harm.suspend(why._replace(source=source), now_s)
            self.learner = Learner(learner.curves, shared=self.shared)
            return self.applied(rules, now_s)
        learner.turn(now_s)
        for role, side in learner.sides.items():
            self.standings[role] = self._deviations[role].look(side.belief, side.seen if side.acts else 0, now_s)
        for role in learner.moved:
            self.probes.moved(role)
        for role in learner.changed:
            harm.forget(role)
        self.probes.look({each.role: learner.known_s(each.role, each.book.in_flight + 1) for each in backends}, now_s)
        applied = self.applied(rules, now_s)
        return None if applied.curves is rules.curves else applied

    def favour(self, rules: Rules, regime: Regime, backends: tuple[Backend, Backend], now_s: float) -> Role | None:
        """Who is to be favoured from now on, where the other role is tried or has been; None: nothing changes."""
        if not self.shared or rules.paces is None or self._turned_at_s != now_s:
            return None
        free = rules.operator_pin is None and not self.suspended(now_s)
        free = free and all(each.standing()[1] <= now_s for each in backends)
        if self._opens and free and regime.demand.tok_s:
            self._open(regime, now_s)
        this = self.tries.now
        if this is None:
            return self._to_try(regime, backends, now_s) if free else None
        go_on = self._opened if this.opens else self._tried
        return go_on(this, regime, backends, now_s, free=free)

    def first_role(self) -> Role | None:
        """Who is favoured before any request has come, where curves do not tell; None: who would be without."""
        role = opening.first_role(self.learner.curves) if self.shared else None
        self._opens = role is not None
        return role

    def _open(self, regime: Regime, now_s: float) -> None:
        """The first requests are there: watch who was favoured first. Demand has begun now, whenever we did."""
        self._opens = False
        self._began_s, self._from_s = now_s - EVERY_S, now_s + SHARED_AFTER_S
        self.tries.open(regime.role, now_s)

    def _to_try(self, regime: Regime, backends: tuple[Backend, Backend], now_s: float) -> Role | None:
        """Begin a trial, if it is time for one."""
        learner, role, in_flight = self.learner, regime.role, sum(each.book.in_flight for each in backends)
        if not in_flight or not regime.demand.tok_s or not trying.shows(learner, role, in_flight):
            return None
        here, there = self._foretold(regime, now_s)
        foretold = trying.foretold(here, in_flight)
        if learner.known_s(role.other, foretold) is not None or not alike(self._measured_of(role)):
            return None
        area_s, unseen = self._area_s(now_s), not learner.knows(role.other)
        calm = not self.tries.made or trying.is_lull(in_flight, foretold)
        regret = 0.0 if unseen else there / here - 1.0  # what nobody has seen is foretold by nothing
        due = calm and self.tries.due(regret, now_s, area_s, foretold)
        hopeless = self.tries.made == 1 and unseen and self._foretold(regime, now_s, caution=0.0)[0] >= MAX_LISTED
        if not due and not hopeless:
            return None
        self.tries.begin(role.other, foretold, now_s, area_s)
        return role.other

    def _tried(
        self, this: Try, regime: Regime, backends: tuple[Backend, Backend], now_s: float, *, free: bool
    ) -> Role | None:
        """Go on with a trial, or make an end of it; then the better one has the favour, as far as it has shown."""
        role, (first, second) = this.role, backends
        mine = first if role is SPECULATIVE else second
        shown = self._is_shown(this, mine, now_s)
        over = shown or trying.is_over(this, first.book.in_flight + second.book.in_flight, now_s)
        if regime.role is role and free and not over and not _is_full(mine):
            return None
        self.tries.end(now_s, self._area_s(now_s))
        if regime.role is not role:
            return None
        here, there = self._foretold(regime, now_s)
        return role if shown and here <= (1.0 + KEEPS) * there else role.other

    def _opened(
        self, this: Try, regime: Regime, backends: tuple[Backend, Backend], now_s: float, *, free: bool
    ) -> Role | None:
        """Go on with the trial that began with the first request, or make an end of it."""
        role, (first, second) = this.role, backends
        mine = first if role is SPECULATIVE else second
        left = _is_full(mine) or self._is_worse(mine, self._foretold(regime, now_s), now_s)
        if regime.role is role and free and not left and now_s - this.began_s < opening.OPENS_S:
            return None
        self.tries.end(now_s, self._area_s(now_s))
        return role.other if left and free and regime.role is role else None

    def _is_worse(self, mine: Backend, held: tuple[float, float], now_s: float) -> bool:
        """Whether who was favoured first has turned out the worse one."""
        role, learner, n = mine.role, self.learner, max(1, mine.book.in_flight)
        side = learner.sides[role]
        context = learner.corrected.at_context(side.context_tokens)
        ours, theirs = context.of(role), context.of(role.other)
        if ours is None or theirs is None or not side.acts:
            return False
        slower = log(theirs.tok_s(n) / ours.tok_s(n))
        return opening.is_worse(held, slower, learner.variance(role, LEAST_HELD * n, now_s))

    def _is_shown(self, this: Try, mine: Backend, now_s: float) -> bool:
        """Whether a trial has shown how fast its backend is at the load there is."""
        role, learner, n = this.role, self.learner, max(1, mine.book.in_flight)
        context = learner.corrected.at_context(learner.sides[role].context_tokens)
        ours, theirs = context.of(role), context.of(role.other)
        if ours is None or theirs is None:
            return False
        variance = learner.variance(role, max(1.0, LEAST_HELD * this.foretold), now_s)
        return trying.is_clear(log(ours.tok_s(n) / theirs.tok_s(n)), variance)

    def _foretold(self, regime: Regime, now_s: float, caution: float = CAUTION) -> tuple[float, float]:
        """How many the favoured role and the other one would hold in flight, by what was learned up to now."""
        asked = trying.asked(regime.demand, now_s - self._began_s, caution)
        by = replace(self.measured, curves=self.learner.corrected)
        first, second = consolidate.expected(by, regime.demand, asked)
        return (first, second) if regime.role is SPECULATIVE else (second, first)

    def _measured_of(self, role: Role) -> ContextCurves:
        return self.learner.curves.at_context(self.learner.sides[role].context_tokens)

    def _area_s(self, now_s: float) -> float:
        """The time in flight of all requests since the start."""
        return sum(each.sums(now_s)[0] for each in self._held)

    def applied(self, rules: Rules, now_s: float) -> Rules:
        """Rules by the curves in force: as corrected, or as measured while learning is suspended."""
        measured = self.learner.curves
        curves = measured if self.suspended(now_s) or now_s < self._from_s else self.learner.corrected
        return rules if rules.curves is curves else replace(rules, curves=curves, learned=curves is not measured)

    def suspended(self, now_s: float) -> bool:
        """Whether the measured curves hold for now, since corrected ones did harm."""
        return now_s < self.harm.until_s

    def ratio(self, backend: Backend) -> float:
        """Seconds for a token at the backend's present load by those that were measured."""
        return self.learner.ratio(backend.role, backend.book.in_flight)

    def gains(self) -> tuple[float | None, float | None]:
        """What speculation gives at best in the context of its requests, by the measured curves and by the corrected
        ones."""
        learner = self.learner
        tokens = learner.sides[SPECULATIVE].context_tokens
        return best_gain(learner.curves.at_context(tokens)), best_gain(learner.corrected.at_context(tokens))

    def summary(self, backends: tuple[Backend, Backend], now_s: float) -> dict[str, Any]:
        """How it stands, as plain values for JSON."""
        probes, harm = self.probes, self.harm
        return {
            "suspended_for_s": round(max(0.0, harm.until_s - now_s), 1),
            "suspensions": harm.suspended,
            "last_suspension": None if harm.last is None else {"role": harm.last.role, **harm.last.numbers()},
            "requests": probes.requests,
            "probes": probes.spent,
            "trials": self.tries.made,
            "tries": None if self.tries.now is None else self.tries.now.role,
            "ratios": {each.role.value: round(self.ratio(each), 4) for each in backends},
        }

    def told(self, backends: tuple[Backend, Backend], now_s: float) -> dict[str, Any]:
        """The same with all evidence and the corrected speeds."""
        return {**self.summary(backends, now_s), **learned.shown(self.learner, now_s)}

    def placed(
        self, decision: Decision, traits: Traits, backends: tuple[Backend, Backend], now_s: float, *, free: bool
    ) -> Decision:
        """Take in where a request goes, and say where it goes indeed: to the other backend where it is to show how fast
        that is. Only a `free` one may, which was decided by the curves alone while all was well."""
        role, (first, second), (one, other) = decision.role, backends, self._held
        if (
            free
            and role is not None
            and self.probes.asks(decision, traits, self.learner.sides[role].context_tokens)
            and self._may_probe(role, backends, now_s)
        ):
            role = role.other
            self.probes.sent(role, now_s)
            decision = decision._replace(role=role, reason=_PROBE)
        more = traits.weight
        one.note(first.book.in_flight + (more if role is SPECULATIVE else 0), now_s)
        other.note(second.book.in_flight + (more if role is not SPECULATIVE else 0), now_s)
        if role is not None:
            self.learner.placed(role, traits.prompt_bytes / BYTES_PER_TOKEN)
        return decision

    def _may_probe(self, role: Role, backends: tuple[Backend, Backend], now_s: float) -> bool:
        """Whether the other backend than `role` has room. On shared GPUs a probe holds everybody up, so that it is made
        where next to nobody is there and nothing is known of that one, and else as seldom as a dear one."""
        mine, backend = backends if role is SPECULATIVE else reversed(backends)
        if self.tries.now is not None:
            return False
        if self.shared and mine.book.in_flight > SHARED_MOST_HELD_UP:
            return False
        if self.shared and self.learner.knows(role.other) and role.other not in self.probes.dear:
            return False
        limit, since_s = backend.standing()
        return since_s <= now_s and (limit is None or backend.book.in_flight < limit)


def _is_full(backend: Backend) -> bool:
    limit = backend.standing()[0]
    return limit is not None and backend.book.in_flight >= limit


def _lost_s(facts: RequestFacts, decision: Decision, now_s: float) -> float:
    """The time that a request spent on a backend which failed it, before another one took it."""
    if facts.attempts <= 1:
        return 0.0
    return max(0.0, decision.regime.smoothed_at_s - (now_s - facts.duration_s + facts.queue_s))


def _unbegun_share(facts: RequestFacts, before_s: float) -> float:
    """The share of a request's time in flight that passed before its first token; 0 where that is not known. It was
    not in flight for the first `before_s` of its time."""
    in_flight_s = facts.duration_s - before_s
    return 0.0 if facts.ttft_s is None or in_flight_s <= 0.0 else (facts.ttft_s - before_s) / in_flight_s
