"""A request that still runs, as it is explained: the request itself beside what the desk knows of its backend.

The sentences are in telling/running.py.
"""

from proxy.dispatch import Desk
from proxy.means import Means, Stage
from proxy.model import Reason
from proxy.routing.out import Out
from proxy.state.backend import Backend
from proxy.telling.running import Running


def of_id(means: Means, request_id: str) -> Running | None:
    """The request of an id that runs; of several the one that came last. None where none does."""
    mine = [trip.stage for trip in means.trips if trip.request_id == request_id]
    return running(means, max(mine, key=lambda stage: stage.came_at_s)) if mine else None


def beginning(means: Means, begin: str) -> set[str]:
    """The ids of those that run which begin so."""
    return {request_id for trip in means.trips if (request_id := trip.request_id).startswith(begin)}


def running(means: Means, stage: Stage) -> Running:
    """Where it stands now."""
    desk, patience, assignment, passage = means.desk, means.patience, stage.assignment, stage.passage
    now_s = desk.clock()
    read_s = None if stage.read_at_s is None else now_s - stage.read_at_s
    told = Running(stage.route, stage.traits, read_s, moved=stage.moved, max_wait_s=means.admission.rules.max_wait_s)
    if assignment is None:
        return told
    backend, other = assignment.backend, assignment.backend.role.other
    heard_at_s = None if passage is None else passage.heard_at_s
    return told._replace(
        role=backend.role,
        here_s=now_s - assignment.lease.opened_at_s,
        tied=assignment.decision.reason is Reason.STATE,
        begun=passage is not None and passage.committed,
        heard_s=None if heard_at_s is None else now_s - heard_at_s,
        held_up=passage is not None and passage.held_up,
        full=passage is not None and passage.committed and passage.waits_for_client,
        in_flight=backend.book.in_flight,
        out=out_of(desk, backend),
        silent_s=backend.silence_s(now_s),
        pace_s=_pace_s(desk, backend),
        beside=out_of(desk, desk.backend(other)),
        limit="timeouts.first_byte_s" if heard_at_s is None else "timeouts.stall_s",
        limit_s=patience.first_byte_s if heard_at_s is None else patience.stall_s,
    )


def out_of(desk: Desk, backend: Backend) -> Out | None:
    """Why a backend serves nobody; None where it does."""
    out = backend.out(desk.plan.breaker, desk.clock())
    return Out.SILENT if out is None and backend.gives_nothing else out


def _pace_s(desk: Desk, backend: Backend) -> float | None:
    curves, in_flight = desk.rules.curves, backend.book.in_flight
    if curves is None or not in_flight:
        return None
    curve = curves.at_context(desk.regime.demand.context_tokens).of(backend.role)
    return None if curve is None else curve.seconds_per_token(in_flight)
