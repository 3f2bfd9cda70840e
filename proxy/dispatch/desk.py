"""The desk: snapshot, decide and lease in one synchronous step, and every lease settled once.

It owns what is remembered of recent requests. What is known of the two backends is in backends.py, what a request sees
of them in sight.py, deciding itself is pure and in routing/, sockets are in wire/. Nothing here awaits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from proxy.dispatch.learning import Learning, learns
from proxy.dispatch.plans import Assignment, Plan
from proxy.dispatch.sight import Sight
from proxy.model import (
    NOWHERE,
    SPECULATIVE,
    Change,
    ChangeKind,
    CircuitState,
    Decision,
    DecisionRecord,
    EngineLoad,
    Outcome,
    RequestFacts,
    Role,
    Traits,
    Whereabouts,
)
from proxy.routing import blackhole, breaker, consolidate, policy, retries
from proxy.routing.affinity import Wait
from proxy.routing.breaker import Event
from proxy.routing.demand import withdrawn
from proxy.routing.health import Evidence
from proxy.routing.marginal import answer_tokens
from proxy.routing.out import Out
from proxy.state.answers import PRIOR_TOKENS, Answers
from proxy.state.backend import Backend
from proxy.state.holdings import told
from proxy.state.settled import MAX_REMEMBERED, Settled

_ADMITTED, _FINISHED = Event.ADMITTED, Outcome.FINISHED
_CLOSED = CircuitState.CLOSED


class Desk(Sight):
    """Decides and counts. `clock` returns monotonic seconds; `on_room` is called when a place may have come free;
    `on_change` gets every change of regime, circuit, health, pin and drain, `on_decision` every one with a role."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        super().__init__(plan, clock)
        self.budget = retries.full(plan.retries)
        self.answers = Answers()
        self.ring: deque[DecisionRecord] = deque(maxlen=MAX_REMEMBERED)
        self.on_decision: Callable[[Decision], None] = lambda _: None
        self.settled = Settled()
        self.learning = self._fresh_learning()
        first = None if self.learning is None else self.learning.first_role()
        if first is not None:
            self.regime = self.regime._replace(role=first)

    # ------------------------------------------------------------ deciding

    def assign(
        self,
        traits: Traits,
        request_id: str,
        route: str,
        *,
        failed: Backend | None = None,
        promised: frozenset[Role] = frozenset(),
        attempt: int = 1,
        wait: Wait | None = None,
    ) -> Assignment | Decision:
        """Decide where a request goes and lease its place, in one step.

        `failed` is the backend that has just failed this request; the next room on a `promised` one is another's, so
        it counts as full; with `wait` it may wait for its home. Returns the bare Decision when it has to wait.
        """
        now_s, weight, where = self.clock(), traits.weight, NOWHERE
        if traits.state or (self.rules.affine and (traits.prefix or traits.conversation)):
            where = self._whereabouts(traits)
        decision = self._decide_by_counts(traits, route, now_s, where) if failed is None and not promised else None
        plain = decision is not None
        if decision is None:
            snapshot = self._seen(now_s)
            for role in promised:
                snapshot = policy.filled(snapshot, role)
            excluded = None if failed is None else self._role_now(failed)
            expected = self.answers.expected(route)
            decision = policy.decide(
                self.rules,
                self.regime,
                snapshot,
                traits,
                excluded=excluded,
                expected_tokens=expected,
                where=where,
                wait=wait,
            )
            if decision.role is None:
                self._enter(decision.regime)
                return decision
            weight = policy.share(snapshot.of(decision.role), weight)
        if self.learning is not None:
            decision = self.learning.placed(decision, traits, self.backends, now_s, free=plain)
        assignment = self._lease(decision, weight, now_s)
        self._enter(decision.regime)
        self.ring.append(DecisionRecord(now_s, request_id, route, traits.weight, attempt, decision))
        self.on_decision(decision)
        if attempt == 1:
            self.budget = retries.deposit(self.plan.retries, self.budget)
        return assignment

    def has_retry(self) -> bool:
        """Whether the budget has one."""
        return retries.take(self.plan.retries, self.budget) is not None

    def may_retry(self) -> bool:
        """Take one retry from the budget; False when it is spent."""
        left = retries.take(self.plan.retries, self.budget)
        if left is None:
            return False
        self.budget = left
        return True

    # ------------------------------------------------------------ ending

    def taken(self, assignment: Assignment, traits: Traits) -> None:
        """A backend has read the prompt of a request, which it has cached from now on. Not before: what it refuses it
        never has, and must not push out of its image what it does have."""
        if self.follows(traits):
            self.holdings.sent(traits, assignment.backend.shelf)

    def withdraw(self, assignment: Assignment, traits: Traits, route: str) -> None:
        """A request will not be served: an engine called it wrong, its client left before the first token, or it was
        given up. Nobody has to do its work, so that it is no demand. Such requests cost those who send them nothing,
        and must not move the policies. `assignment` is that of the first attempt, with which it was counted."""
        decision = assignment.decision
        role = decision.role
        if role is None or not self.rules.by_curves:
            return
        self.follow()
        cached = decision.because.speculative_cached if role is SPECULATIVE else decision.because.baseline_cached
        traits = traits._replace(weight=assignment.lease.weight)
        tokens = answer_tokens(traits, self.answers.expected(route))
        now_s, demand = self.clock(), self.regime.demand
        demand = withdrawn(
            demand,
            traits,
            tokens,
            cached,
            age_s=now_s - assignment.lease.opened_at_s,
            peak_tok_s=decision.regime.demand.peak_tok_s,
            unseen_s=now_s - demand.looked_at_s,
        )
        self._enter(self.regime._replace(demand=demand))

    def settle(self, assignment: Assignment, outcome: Outcome, *, unheard: bool = False) -> None:
        """End an attempt's lease. `unheard` says the engine may decode on for a while: the client left, or we gave
        up, before the first token, where engines look for a lost client only every few seconds."""
        # Of one that stands still it says nothing new, and once it answers there is nothing to doubt.
        if unheard and outcome is Outcome.FAILED_BEFORE_COMMIT and not self.stands_still(assignment.backend):
            self.observe_health(assignment.backend, Evidence.SILENCE)
        ended = outcome is _FINISHED  # by the engine itself
        self._end(assignment, outcome, 0.0 if ended else self._linger_s(assignment, outcome, unheard=unheard))

    def take_back(self, assignment: Assignment) -> None:
        """End a lease whose request was never sent: its client left in the step in which the place was given."""
        self.judge(assignment, Event.NEUTRAL)
        self._end(assignment, Outcome.CLIENT_GONE_WAITING, 0.0)

    def heard(self, facts: RequestFacts) -> RequestFacts:
        """Remember a request that has ended, and learn from it; its lease is settled by now. Returns the facts: of one
        that did not end well with what its backend was then."""
        now_s, finished = self.clock(), facts.outcome is _FINISHED
        backend = next((each for each in self.backends if each.url == facts.url), None)
        if backend is not None and not finished:
            facts = _beside(facts, backend, now_s)
        self.settled.keep(now_s, facts)
        traits, usage, decision = facts.traits, facts.usage, facts.decision
        if self.learning is not None:
            # What an engine did in another role says nothing of the one it has now.
            same = decision is not None and backend is not None and backend.role is decision.role
            self.learning.heard(facts if same else facts._replace(decision=None), self.backends, now_s)
        if not finished:
            return facts
        self._measured_answer(facts, now_s)
        if decision is None or backend is None:
            return facts
        shelf = backend.shelf
        if traits.prefix and self.rules.affine:
            because = decision.because
            believed = because.speculative_cached if decision.role is SPECULATIVE else because.baseline_cached
            told(shelf, traits, believed, usage)
        if traits.state and facts.status < 400:
            self.holdings.made(traits.state, shelf)
        return facts

    def observe_load(self, backend: Backend, load: EngineLoad) -> None:
        """Keep what an engine says of its own load, learn from it, and now and then correct the curves."""
        super().observe_load(backend, load)
        if self.learning is None or self.backend(backend.role) is not backend:
            return
        now_s = self.clock()
        self.learning.polled(backend, self.backend(backend.role.other), load, now_s)
        suspensions = self.learning.harm.suspended
        corrected = self.learning.turn(self.rules, self.backends, now_s)
        if corrected is not None:
            self.rules = corrected
        self._favour(self.learning.favour(self.rules, self.regime, self.backends, now_s), now_s)
        if self.learning.harm.suspended != suspensions:
            why = self.learning.harm.last
            role, numbers = (None, {}) if why is None else (why.role, why.numbers())
            self.on_change(Change(ChangeKind.LEARNING, role, "learned", "measured", numbers))

    # ------------------------------------------------------------ the operator's wishes

    def pin(self, role: Role | None) -> None:
        """Send everything to one role until unpinned (None); the other remains its failover."""
        before, self.rules = self.rules.operator_pin, replace(self.rules, operator_pin=role)
        if before is not role:
            self.on_change(Change(ChangeKind.PIN, role, before or "none", role or "none"))
            self.on_room()

    def reload(self, plan: Plan) -> None:
        """Work by a new plan from now on. Backends whose url stays are what they were; one whose url has the other role
        now is the same engine, with all that is known of it, and only not drained any more: that was wished of the
        role. An operator's pin stays; leases of a dropped backend go on counting on the book of its url, also when that
        url comes back."""
        old, self.plan, before = self.plan, plan, self.rules.effective_policy
        self.rules = replace(plan.rules, operator_pin=self.rules.operator_pin)
        self._go_on_learning(old)
        if self.rules.paces is not None and before is not self.rules.effective_policy:
            self._enter(self._fresh_regime()._replace(smoothed=self.regime.smoothed, held=self.regime.held))
        known = {backend.url: backend for backend in self.backends}
        for url, backend in known.items():
            if url not in (planned.url for planned in plan.backends):
                self.ledger.retire(backend.book)
        # Two backends may have changed places: what an engine does, and what runs there, goes with its url.
        self._speculative, self._baseline = (
            known.get(planned.url) or self._new_backend(planned) for planned in plan.backends
        )
        for backend, planned in zip(self.backends, plan.backends, strict=True):
            if backend.role is not planned.role:
                backend.role = planned.role
                self.drain(planned.role, draining=False)
            backend.limit = planned.max_in_flight
            self._measure(backend)
            if not self.rules.affine:
                backend.shelf.empty()
        self.on_room()

    # ------------------------------------------------------------ inside

    def _fresh_learning(self) -> Learning | None:
        rules = self.rules
        return Learning(rules, self.clock()) if self.plan.learns and learns(rules) else None

    def _favour(self, role: Role | None, now_s: float) -> None:
        """Give the favour to a role that is tried, or take it back."""
        regime = self.regime
        if role is not None and role is not regime.role:
            demand = consolidate.settled(self.rules, regime.role, regime.demand)
            self._enter(regime._replace(role=role, since_s=now_s, demand=demand))

    def _go_on_learning(self, old: Plan) -> None:
        """Keep what was learned beside the same curves of the same engines; begin anew beside others."""
        same = [each.url for each in old.backends] == [each.url for each in self.plan.backends]
        same = same and old.rules.curves == self.rules.curves and old.rules.placement is self.rules.placement
        if self.learning is None or not same or not (self.plan.learns and learns(self.rules)):
            self.learning = self._fresh_learning()
        else:
            self.learning.measured = self.rules
            self.rules = self.learning.applied(self.rules, self.clock())

    def _measured_answer(self, facts: RequestFacts, now_s: float) -> None:
        """Take in how long an answer was, in its turn."""
        tokens, limit = facts.usage.completion_tokens / facts.traits.weight, facts.traits.max_tokens
        asked_at_s = now_s if facts.decision is None else facts.decision.regime.smoothed_at_s
        first, second = self._speculative.book, self._baseline.book
        oldest_at_s = min(first.oldest_at_s(now_s), second.oldest_at_s(now_s))
        in_flight = first.requests + second.requests
        self.answers.ended(asked_at_s, facts.route, tokens, limit, oldest_at_s=oldest_at_s, in_flight=in_flight)

    def _decide_by_counts(self, traits: Traits, route: str, now_s: float, where: Whereabouts) -> Decision | None:
        """Decide the short way; None where more than two counts has to be looked at."""
        first, second, rules = self._speculative, self._baseline, self.rules
        if first.book.next_expiry_s <= now_s or second.book.next_expiry_s <= now_s:
            self._age(now_s)
        limit, since_s = first.known or first.standing()
        other_limit, other_since_s = second.known or second.standing()
        if now_s - since_s < rules.ramp_s or now_s - other_since_s < rules.ramp_s:
            return None
        baseline_failures, expected_tokens = 0, PRIOR_TOKENS
        if rules.by_curves or where is not NOWHERE:  # nobody else asks for them
            baseline_failures = blackhole.weigh(second.failures, now_s)
            expected_tokens = self.answers.expected(route)
        return policy.decide_by_counts(
            rules,
            self.regime,
            now_s,
            traits,
            in_flight=(first.book.in_flight, second.book.in_flight),
            limits=(limit, other_limit),
            recent_failures=blackhole.weigh(first.failures, now_s) if first.failures.value else 0,
            baseline_failures=baseline_failures,
            expected_tokens=expected_tokens,
            where=where,
        )

    def _lease(self, decision: Decision, weight: int, now_s: float) -> Assignment:
        backend = self._speculative if decision.role is SPECULATIVE else self._baseline
        lease = self.ledger.open(backend.book, weight)
        if backend.circuit.state is _CLOSED:  # a request more means nothing to it
            return Assignment(decision, backend, lease, probe=False)
        probe = breaker.is_probe(self.plan.breaker, backend.circuit, now_s)
        self._move_circuit(backend, _ADMITTED, now_s)
        return Assignment(decision, backend, lease, probe)

    def _end(self, assignment: Assignment, outcome: Outcome, linger_s: float) -> None:
        most = assignment.backend.max_lingering if linger_s > 0 else None
        assignment.lease.settle(outcome, linger_s, most=most)
        self.follow()
        self.on_room()


def _beside(facts: RequestFacts, backend: Backend, now_s: float) -> RequestFacts:
    """With what the backend was as its request ended: down or silent, and for how long nothing had come from it."""
    silent_s = backend.silence_s(now_s)
    down = backend.health.up is False
    if silent_s is None and not down:
        return facts
    return facts._replace(backend_out=Out.DOWN if down else Out.SILENT, silent_s=silent_s)
