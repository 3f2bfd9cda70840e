"""The desk's part in learning: feeds the learner with what polls and answers show, and takes corrected curves over.

What is learned and how is pure and in routing/ (learner.py, probing.py, harm.py). Nothing here is on the way of a
request but one count, and a probe's decision.
"""

from dataclasses import replace

from proxy.model import ROLES, Decision, EngineLoad, Outcome, Placement, Policy, Reason, RequestFacts, Role
from proxy.routing.learner import Learner, Look
from proxy.routing.marginal import BYTES_PER_TOKEN
from proxy.routing.probing import Probes
from proxy.routing.rules import Rules
from proxy.state.backend import Backend

# Time between two turns, in which curves are corrected. Polls come every second.
EVERY_S = 2.0

_LEARNING = (Policy.MARGINAL, Policy.CONSOLIDATE)
_PROBE, _FINISHED = Reason.PROBE, Outcome.FINISHED


def learns(rules: Rules) -> bool:
    """Whether these rules go by curves that can be corrected."""
    return rules.by_curves and rules.effective_policy in _LEARNING


class Learning:
    """Learning beside the curves of `rules`, which say what was measured."""

    def __init__(self, rules: Rules, now_s: float) -> None:
        assert rules.curves is not None, "only rules with curves can be corrected"
        self.shared = rules.placement is Placement.SHARED
        self.learner = Learner(rules.curves, shared=self.shared)
        self.probes = Probes(now_s)
        self._turned_at_s = now_s

    def polled(self, backend: Backend, beside: Backend, load: EngineLoad, now_s: float) -> None:
        """Take in a poll."""
        other = beside.book
        self.learner.polled(backend.role, Look(load, now_s, backend.book.in_flight, (other.opened, other.in_flight)))

    def heard(self, facts: RequestFacts, role: Role, in_flight: int, now_s: float) -> None:
        """Take in an answer; `in_flight` are the sequences on its backend now that it has ended."""
        decision, traits = facts.decision, facts.traits
        if facts.outcome is not _FINISHED or decision is None or traits.weight != 1:
            return
        because = decision.because
        begun = because.speculative_in_flight if role is ROLES[0] else because.baseline_in_flight
        counts = (begun + 1.0, in_flight + 1.0)
        context = traits.prompt_bytes / BYTES_PER_TOKEN
        self.learner.answered(role, context, facts.usage.completion_tokens, facts.tpot_s, counts, now_s)

    def turn(self, rules: Rules, backends: tuple[Backend, Backend], now_s: float) -> Rules | None:
        """Corrected rules, now and then, if something has changed; else None."""
        if 0.0 <= now_s - self._turned_at_s < EVERY_S:
            return None
        self._turned_at_s = now_s
        learner = self.learner
        curves = learner.turn(now_s)
        self.probes.look({each.role: learner.known_s(each.role, each.book.in_flight + 1) for each in backends}, now_s)
        return None if curves is None else self.applied(rules)

    def applied(self, rules: Rules) -> Rules:
        """Rules by the curves as they are corrected now."""
        learner = self.learner
        return replace(rules, curves=learner.corrected, learned=learner.corrected is not learner.curves)

    def considered(self, decision: Decision, weight: int, backends: tuple[Backend, Backend], now_s: float) -> Decision:
        """The decision, or the same request sent to the other backend to see how fast that is."""
        probes = self.probes
        if not probes.asks(decision, weight) or decision.role is None:
            return decision
        role, (first, second) = decision.role.other, backends
        limit, since_s = (first if role is ROLES[0] else second).standing()
        book = (first if role is ROLES[0] else second).book
        busy = self.shared and first.book.in_flight + second.book.in_flight > 0
        if busy or since_s > now_s or (limit is not None and book.in_flight >= limit):
            return decision
        probes.sent(role, decision.because.costs, now_s)
        return decision._replace(role=role, reason=_PROBE)
