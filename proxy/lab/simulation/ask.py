"""One request of a run, with what the desk gave it. What becomes of it is in trial.py and endings.py."""

from dataclasses import dataclass

from proxy.dispatch import Assignment
from proxy.lab.simulation.sharing import Task
from proxy.model import Decision, Outcome, RequestFacts, Traits, Usage
from proxy.state.backend import Backend

ROUTE = "/v1/chat/completions"

_TRAITS, _FINISHED = Traits(stream=True), Outcome.FINISHED


@dataclass(slots=True, eq=False)
class Ask(Task):
    """A request. `assignment` is None while it has no place, `decision` and `url` are of the last that it had; `failed`
    is the backend that has failed it once, and `over` says that nothing more becomes of it, whatever its engine still
    does."""

    number: int = 0
    conversation: int = 0
    asked_at_s: float = 0.0
    waited: bool = False
    sent_at_s: float = 0.0
    assignment: Assignment | None = None
    decision: Decision | None = None
    traits: Traits = _TRAITS
    failed: Backend | None = None
    url: str | None = None
    over: bool = False

    def placed(self, assignment: Assignment, now_s: float) -> None:
        """It has a place."""
        self.assignment, self.decision, self.sent_at_s = assignment, assignment.decision, now_s
        self.url = assignment.backend.url

    def has_token(self, now_s: float) -> bool:
        """Whether its first token has come."""
        return self.first_at_s <= now_s

    def facts(self, outcome: Outcome, now_s: float) -> RequestFacts:
        """What the proxy would know of it at its end."""
        asked_at_s, first_at_s, tpot_s, usage = self.asked_at_s, min(self.first_at_s, now_s), None, Usage()
        finished = outcome is _FINISHED
        if finished:
            usage = Usage(self.prompt_tokens, self.length, self.cached_tokens)
            tpot_s = (now_s - first_at_s) / (self.length - 1) if self.length > 1 else None
        return RequestFacts(
            request_id="",
            route=ROUTE,
            method="POST",
            outcome=outcome,
            status=200,
            decision=self.decision,
            traits=self.traits,
            attempts=1 if self.failed is None else 2,
            duration_s=now_s - asked_at_s,
            queue_s=self.sent_at_s - asked_at_s,
            ttft_s=first_at_s - asked_at_s if finished or self.has_token(now_s) else None,
            tpot_s=tpot_s,
            usage=usage,
            url=self.url,
        )
