"""What becomes of requests that do not end well: their engine was lost, or their client left.

As the proxy has it: a failure before the first token is tried once more on the other engine, one behind it never is;
and an engine may decode on for a while for a client that left without a token. Who ends well is in trial.py.
"""

from functools import partial
from typing import TYPE_CHECKING

from proxy.lab.simulation.ask import Ask
from proxy.model import Outcome
from proxy.routing.breaker import Event

if TYPE_CHECKING:
    from proxy.lab.simulation.trial import Trial

# SGLang looks this often whether a client is still there while it has no token to send.
LOOK_FOR_CLIENT_S = 4.0

# How often it is looked whether a request that tests a circuit has its first token, which closes the circuit.
_WATCH_S = 0.1


class Endings:
    """The unhappy endings of one run."""

    __slots__ = ("_trial",)

    def __init__(self, trial: "Trial") -> None:
        self._trial = trial

    # ------------------------------------------------------------ engines that are lost

    def refused(self, ask: Ask) -> bool:
        """Nobody listens where a request was sent: it goes to the other engine, or fails. False where it has to wait
        for room there."""
        return self._moves(ask, free=True)

    def struck(self, ask: Ask) -> None:
        """The engine has died that had this request."""
        if ask.over:
            return  # its client has left before
        trial = self._trial
        if not ask.has_token(trial.now_s):
            if not self._moves(ask, free=False):
                trial.wait(ask)
            return
        assert ask.assignment is not None
        trial.desk.judge(ask.assignment, Event.FAILURE)
        trial.settle(ask, Outcome.FAILED_AFTER_COMMIT)
        self._failed(ask, Outcome.FAILED_AFTER_COMMIT)

    def fails(self, ask: Ask) -> None:
        """End a request that one engine has failed and the other will not take."""
        self._failed(ask, Outcome.FAILED_BEFORE_COMMIT)

    def watch(self, ask: Ask) -> None:
        """Close the circuit that a request tests as soon as it has its first token."""
        trial = self._trial
        if ask.over or ask.assignment is None:
            return
        if ask.has_token(trial.now_s):
            trial.desk.judge(ask.assignment, Event.SUCCESS)
            trial.give_places()
        else:
            trial.agenda.at(trial.now_s + _WATCH_S, partial(self.watch, ask))

    def _moves(self, ask: Ask, *, free: bool) -> bool:
        """End a first attempt and make the second; True where the request needs no further care."""
        trial, assignment = self._trial, ask.assignment
        assert assignment is not None
        trial.desk.judge(assignment, Event.FAILURE)
        trial.settle(ask, Outcome.FAILED_BEFORE_COMMIT)
        ask.assignment = None
        beside = ask.failed is None and trial.desk.serves_beside(assignment.backend)
        if not (beside and (free or trial.desk.may_retry())):
            self._failed(ask, Outcome.FAILED_BEFORE_COMMIT)
            return True
        trial.times.retried += 1
        ask.failed, ask.unfilled, ask.cached_tokens, ask.first_at_s = assignment.backend, 0, 0, float("inf")
        return trial.place(ask)

    def _failed(self, ask: Ask, outcome: Outcome) -> None:
        if self._trial.closed(ask, outcome):
            self._trial.times.failed += 1
            self._trial.times.failed_tokens += ask.length

    # ------------------------------------------------------------ clients that leave

    def leaves(self, ask: Ask, at_s: float) -> None:
        """Let a client leave at that instant, if it has not its whole answer by then."""
        self._trial.agenda.at(at_s, partial(self.gone, ask))

    def gone(self, ask: Ask) -> None:
        """A client leaves now."""
        if ask.over:
            return
        trial = self._trial
        if ask in trial.queue:
            trial.queue.remove(ask)
            ask.assignment = None
        unheard = ask.assignment is not None and not ask.has_token(trial.now_s)
        if ask.assignment is not None:
            trial.desk.judge(ask.assignment, Event.NEUTRAL)
            self._leave_engine(ask, unheard=unheard)
        waiting = unheard or ask.assignment is None
        outcome = Outcome.CLIENT_GONE_WAITING if waiting else Outcome.CLIENT_GONE_IN_STREAM
        trial.settle(ask, outcome, unheard=unheard)
        trial.times.gone += trial.closed(ask, outcome)

    def _leave_engine(self, ask: Ask, *, unheard: bool) -> None:
        """An engine notices with the first token that it cannot send, or when it looks."""
        trial = self._trial
        if not unheard:
            self._drop(ask)
            return
        looks_at_s = ask.sent_at_s + LOOK_FOR_CLIENT_S * (1 + (trial.now_s - ask.sent_at_s) // LOOK_FOR_CLIENT_S)
        trial.agenda.at(min(looks_at_s, ask.first_at_s), partial(self._drop, ask))
        assert ask.assignment is not None
        ask.stays_tokens = trial.stations[ask.assignment.backend.role].pace.tokens[1]

    def _drop(self, ask: Ask) -> None:
        """Free what a request has on its engine, if it still has anything."""
        trial = self._trial
        assert ask.assignment is not None
        role = ask.assignment.backend.role
        if trial.stations[role].has(ask):
            trial.gpus[role].drop(trial.stations[role], ask, trial.now_s)
