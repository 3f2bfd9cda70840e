"""The desk: snapshot, decide and lease in one synchronous step, and every lease settled once.

It owns the state that decisions read and what is remembered of recent requests. What is known of the two backends is
in backends.py, deciding itself is pure and in routing/, sockets are in wire/. Nothing here awaits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from proxy.dispatch.backends import Backends
from proxy.dispatch.learning import Learning, learns
from proxy.dispatch.plans import Assignment, Plan
from proxy.model import (
    NOWHERE,
    ROLES,
    SPECULATIVE,
    Change,
    ChangeKind,
    CircuitState,
    Decision,
    DecisionRecord,
    EngineLoad,
    LoadSnapshot,
    Outcome,
    Reason,
    Regime,
    RequestFacts,
    Role,
    Traits,
    Whereabouts,
)
from proxy.routing import blackhole, breaker, policy, retries
from proxy.routing.affinity import Wait
from proxy.routing.breaker import Event
from proxy.routing.demand import withdrawn
from proxy.routing.health import Evidence
from proxy.routing.marginal import answer_tokens
from proxy.state.answers import PRIOR_TOKENS, Answers
from proxy.state.backend import Backend
from proxy.state.holdings import Holdings, told
from proxy.state.settled import Settled

# Decisions kept for /decisions, so that one can be asked for by its request: half a minute at ten thousand a minute,
# hours at a few; about three megabytes.
RING_SIZE = 5000

_ADMITTED, _FINISHED = Event.ADMITTED, Outcome.FINISHED
_CLOSED = CircuitState.CLOSED


class Desk(Backends):
    """Decides and counts. `clock` returns monotonic seconds; `on_room` is called when a place may have come free;
    `on_change` gets every change of regime, circuit, health, pin and drain, `on_decision` every one with a role."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        super().__init__(plan, clock)
        self.rules = plan.rules
        self.regime = self._fresh_regime()
        self.budget = retries.full(plan.retries)
        self.answers = Answers()
        self.holdings = Holdings()
        self.ring: deque[DecisionRecord] = deque(maxlen=RING_SIZE)
        self.on_decision: Callable[[Decision], None] = lambda _: None
        self.settled = Settled()
        self.learning = self._fresh_learning()

    # ------------------------------------------------------------ looking

    def snapshot(self) -> LoadSnapshot:
        """Both backends as they are now."""
        return self._seen(self.clock())

    def wanted(self, traits: Traits) -> Role | None:
        """The one backend that a request waits for when there is no room; None where it takes either."""
        state = self.holder(traits.state) if traits.state else None
        role = policy.preference(self.rules, traits, state)
        if role is None or role is state:
            return role
        snapshot = self.snapshot()
        beside = snapshot.of(role.other).eligible and not snapshot.of(role).eligible
        return role.other if beside else role

    def holder(self, state: int) -> Role | None:
        """The role whose engine holds a piece of state, by its hash; None where nobody is known to."""
        return self.holdings.holder(state, (self._speculative.shelf, self._baseline.shelf))

    def follows(self, traits: Traits) -> bool:
        """Whether it matters where the conversation of a request is cached."""
        return self.rules.affine and bool(traits.prefix or traits.conversation)

    def serves(self, role: Role) -> bool:
        """Whether requests may be sent to `role`, now or when it has room."""
        snapshot = self.snapshot()
        return snapshot.of(role).eligible or snapshot.all_down

    def serves_beside(self, failed: Backend) -> bool:
        """Whether requests may be sent to the other backend than `failed`, now or when it has room."""
        snapshot = self.snapshot()
        return snapshot.of(self._role_now(failed).other).eligible or snapshot.all_down

    def claims(self, traits: Traits, failed: Backend | None = None) -> frozenset[Role]:
        """The backends whose next room a request that waits keeps from those behind it: every one that it waits for.
        `failed` is the one that has failed it already.

        None where it is bulky on all of them that are eligible: under steady traffic these never drain so far by
        themselves, and holding everybody up until they do would let one request stop the service.
        """
        wanted = self._role_now(failed).other if failed is not None else self.wanted(traits)
        if wanted is None:
            wanted = policy.awaited(self.rules, self.regime, self.snapshot(), traits.weight) or self._home_full(traits)
        roles = frozenset(ROLES if wanted is None else (wanted,))
        if traits.weight == 1:
            return roles
        snapshot = self.snapshot()
        open_roles = [role for role in roles if snapshot.of(role).eligible] or roles
        bulky = all(policy.is_bulky(snapshot.of(role), traits.weight) for role in open_roles)
        return frozenset() if bulky else roles

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

    def refused(self, assignment: Assignment, traits: Traits, route: str, decided_at_s: float) -> None:
        """A backend called a request wrong: nobody has to do its work, so that it is no demand. Requests that no engine
        takes cost those who send them nothing, and must not move the policies."""
        decision, rules = assignment.decision, self.rules
        role = decision.role
        if role is None or not rules.by_curves:
            return
        if decision.reason is Reason.FAILOVER:
            role = role.other  # it was counted when it was first given a place
        self.follow()
        cached = decision.because.speculative_cached if role is SPECULATIVE else decision.because.baseline_cached
        traits = traits._replace(weight=assignment.lease.weight)
        tokens, age_s = answer_tokens(traits, self.answers.expected(route)), self.clock() - decided_at_s
        peak_tok_s = decision.regime.demand.peak_tok_s
        demand = withdrawn(self.regime.demand, traits, tokens, cached, age_s=age_s, peak_tok_s=peak_tok_s)
        self._enter(self.regime._replace(demand=demand))

    def settle(self, assignment: Assignment, outcome: Outcome, *, unheard: bool = False) -> None:
        """End an attempt's lease. `unheard` says the engine may decode on for a while: the client left, or we gave
        up, before the first token, where engines look for a lost client only every few seconds."""
        if unheard and outcome is Outcome.FAILED_BEFORE_COMMIT:
            self.observe_health(assignment.backend, Evidence.SILENCE)
        ended = outcome is _FINISHED  # by the engine itself
        self._end(assignment, outcome, 0.0 if ended else self._linger_s(assignment, outcome, unheard=unheard))

    def take_back(self, assignment: Assignment) -> None:
        """End a lease whose request was never sent: its client left in the step in which the place was given."""
        self.judge(assignment, Event.NEUTRAL)
        self._end(assignment, Outcome.CLIENT_GONE_WAITING, 0.0)

    def follow(self) -> None:
        """Take the present count into the smoothed one: without requests nobody else does, and a scrape would show
        the past."""
        now_s = self.clock()
        self._age(now_s)
        self._follow(now_s)

    def heard(self, facts: RequestFacts) -> None:
        """Remember a request that has ended, and learn from it; its lease is settled by now."""
        now_s = self.clock()
        self.settled.keep(now_s, facts)
        traits, usage, decision = facts.traits, facts.usage, facts.decision
        backend = next((each for each in self.backends if each.url == facts.url), None)
        if self.learning is not None:
            # What an engine did in another role says nothing of the one it has now.
            same = decision is not None and backend is not None and backend.role is decision.role
            self.learning.heard(facts if same else facts._replace(decision=None), self.backends, now_s)
        if facts.outcome is not _FINISHED:
            return
        self.answers.heard(facts.route, usage.completion_tokens / traits.weight, traits.max_tokens)
        if decision is None or backend is None:
            return
        shelf = backend.shelf
        if traits.prefix and self.rules.affine:
            because = decision.because
            believed = because.speculative_cached if decision.role is SPECULATIVE else because.baseline_cached
            told(shelf, traits, believed, usage)
        if traits.state and facts.status < 400:
            self.holdings.made(traits.state, shelf)

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
        """Work by a new plan from now on. Backends whose url stays keep book, circuit, health and drain; one whose url
        has the other role now keeps its book and what it is believed to hold; an operator's pin stays; leases of a
        dropped backend go on counting on the book of its url, also when that url comes back."""
        old, self.plan, before = self.plan, plan, self.rules.effective_policy
        self.rules = replace(plan.rules, operator_pin=self.rules.operator_pin)
        self._go_on_learning(old)
        if self.rules.paces is not None and before is not self.rules.effective_policy:
            self._enter(self._fresh_regime()._replace(smoothed=self.regime.smoothed, held=self.regime.held))
        pairs = list(zip(self.backends, plan.backends, strict=True))
        for backend, planned in pairs:
            if backend.url != planned.url:
                self.ledger.retire(backend.book)
        # After all have gone: two backends may have changed places. What an engine holds goes with its url.
        shelves = {backend.url: backend.shelf for backend in self.backends}
        self._speculative, self._baseline = (
            backend if backend.url == planned.url else self._new_backend(planned, shelves.get(planned.url))
            for backend, planned in pairs
        )
        for backend, planned in zip(self.backends, plan.backends, strict=True):
            backend.limit = planned.max_in_flight
            self._measure(backend)
            if not self.rules.affine:
                backend.shelf.empty()
        self.on_room()

    # ------------------------------------------------------------ inside

    def _fresh_learning(self) -> Learning | None:
        rules = self.rules
        return Learning(rules, self.clock()) if self.plan.learns and learns(rules) else None

    def _go_on_learning(self, old: Plan) -> None:
        """Keep what was learned beside the same curves of the same engines; begin anew beside others."""
        same = [each.url for each in old.backends] == [each.url for each in self.plan.backends]
        same = same and old.rules.curves == self.rules.curves and old.rules.placement is self.rules.placement
        if self.learning is None or not same or not (self.plan.learns and learns(self.rules)):
            self.learning = self._fresh_learning()
        else:
            self.learning.measured = self.rules
            self.rules = self.learning.applied(self.rules, self.clock())

    def _fresh_regime(self) -> Regime:
        """The regime of a policy that has seen no request, and may change it with the first."""
        now_s = self.clock()
        return Regime(policy.first_role(self.rules), now_s - self.rules.dwell_s, smoothed_at_s=now_s)

    def _seen(self, now_s: float) -> LoadSnapshot:
        self._age(now_s)
        rules = self.plan.breaker
        return LoadSnapshot(now_s, self._speculative.view(rules, now_s), self._baseline.view(rules, now_s))

    def _whereabouts(self, traits: Traits) -> Whereabouts:
        if not self.rules.affine:
            traits = traits._replace(prefix=(), conversation=0)
        return self.holdings.whereabouts(traits, (self._speculative.shelf, self._baseline.shelf))

    def _home_full(self, traits: Traits) -> Role | None:
        """The home of a conversation that has no room, while the other backend has some: who waits, waits for home."""
        if not self.follows(traits):
            return None
        home = self._whereabouts(traits).home
        if home is None:
            return None
        snapshot, weight = self.snapshot(), traits.weight
        beside = snapshot.of(home.other).eligible and policy.has_room(snapshot.of(home.other), weight)
        return home if beside and not policy.has_room(snapshot.of(home), weight) else None

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

    def _age(self, now_s: float) -> None:
        """Drop what has lingered long enough, each at its own instant, so that the smoothed count falls from then on
        and not from the next request on."""
        first, second = self._speculative.book, self._baseline.book
        while first.next_expiry_s <= now_s or second.next_expiry_s <= now_s:
            due_s = min(first.next_expiry_s, second.next_expiry_s)
            first.expire(due_s)
            second.expire(due_s)
            self._follow(due_s)

    def _follow(self, now_s: float) -> None:
        in_flight = self._speculative.book.in_flight + self._baseline.book.in_flight
        self._enter(policy.follow(self.rules, self.regime, in_flight, now_s))

    def _enter(self, regime: Regime) -> None:
        before, self.regime = self.regime.role, regime
        if before is not regime.role:
            self.on_change(Change(ChangeKind.REGIME, regime.role, before, regime.role))
