"""One request's way in sentences: where it went, what decided, what the other choice would have cost, what came of it.

What a backend was asked and said is not here: no prompt, no body, and of a client's words its request's route alone.
"""

from collections.abc import Sequence

from proxy.model import DecisionRecord, Reason, RequestFacts, Role, Traits
from proxy.telling.endings import ending
from proxy.telling.figures import count, seconds, title
from proxy.telling.reasons import beside, why
from proxy.telling.running import Running, standing

# A shorter wait is the time that deciding takes.
WAITED_S = 0.001
# What a backend did to a request that left it, by the code, where it did more than fail.
_FAILED = {"backend_silent": "gave no sign of life any more, until it counted as down"}


def sentences(
    records: Sequence[DecisionRecord], settled: RequestFacts | None, running: Running | None = None
) -> tuple[str, ...]:
    """What became of one request, for a person to read, in the order in which it happened.

    `records` are the decisions on it that are remembered, oldest first; of several requests with one id the last is
    told. `settled` is what it ended with, None where that is forgotten, `running` where it stands while it runs. Empty
    where nothing is known.
    """
    tried = _last(records)
    if running is not None:
        return _so_far(tried, running)
    if not tried and settled is None:
        return ()
    if not tried and settled is not None and settled.decision is not None:
        tried = (_from(settled),)
    told = [_asked(tried, settled)]
    for number, record in enumerate(tried):
        told += _attempt(record, settled, tried[number - 1].decision.role if number else None)
    if settled is None:
        return (*told, "What it ended with is no longer remembered.")
    return (*told, *_waits(settled, len(tried)), *ending(settled))


def _so_far(tried: Sequence[DecisionRecord], running: Running) -> tuple[str, ...]:
    """What is known of one that runs: what is remembered of an earlier one of its id is not its own."""
    if running.role is None and not running.moved:
        tried = ()
    if running.read_s is None:
        return (f"The request asks {running.route}.", *standing(running))
    told = [_whole(running.route, running.traits)]
    for number, record in enumerate(tried):
        told += _attempt(record, None, tried[number - 1].decision.role if number else None)
    return (*told, *standing(running))


def _last(records: Sequence[DecisionRecord]) -> tuple[DecisionRecord, ...]:
    """Those of the last request: from its first attempt on, as far as that is remembered."""
    begin = max((at for at, record in enumerate(records) if record.attempt == 1), default=0)
    return tuple(records[begin:])


def _from(settled: RequestFacts) -> DecisionRecord:
    """The last decision as its request has kept it, where the ring has forgotten it."""
    assert settled.decision is not None
    attempt = 1 if settled.first_failure is None else 2
    return DecisionRecord(
        0.0, settled.request_id, settled.route, settled.traits.weight, attempt, decision=settled.decision
    )


def _asked(tried: Sequence[DecisionRecord], settled: RequestFacts | None) -> str:
    if settled is not None:
        return _whole(settled.route, settled.traits)
    return f"The request asked {tried[0].route} for {count(tried[0].weight, 'sequence')}."


def _whole(route: str, traits: Traits) -> str:
    said = f"The request asked {route} for {count(traits.weight, 'sequence')}"
    if traits.stream:
        said += " as a stream"
    if traits.max_tokens is not None:
        said += f", of at most {count(traits.max_tokens, 'token')}" + (" each" if traits.weight > 1 else "")
    return f"{said}{_size(traits.prompt_bytes)}."


def _size(body_bytes: int) -> str:
    """Of a body that was not read, or not to its end, the size is not known."""
    return f"; its body had {count(body_bytes, 'byte')}" if body_bytes else ""


def _attempt(record: DecisionRecord, settled: RequestFacts | None, before: Role | None) -> list[str]:
    decision = record.decision
    if decision.role is None:
        return [f"There was {why(decision, settled)}."]
    if decision.reason is Reason.FAILOVER or record.attempt > 1:
        failure = None if settled is None else settled.first_failure
        code = "" if failure is None else f" ({failure})"
        said = _FAILED.get(failure or "", "failed it before the answer began")
        failed = decision.role.other if before is None else before
        told = f"{title(failed)} {said}{code}, so it was sent to {decision.role}"
        if failed is decision.role:
            told = f"{title(failed)} {said}{code}, and had it again once it answered"
        if decision.reason is not Reason.FAILOVER:
            told += f": {why(decision, settled)}"
    else:
        told = f"It went to {decision.role}: {why(decision, settled)}"
    return [f"{told}.", *beside(decision)]


def _waits(settled: RequestFacts, told: int) -> list[str]:
    said = []
    if settled.queue_s >= WAITED_S:
        said.append(f"It waited {seconds(settled.queue_s)} for room.")
    if told and settled.attempts > max(told, 1 if settled.first_failure is None else 2):
        said.append("A kept connection had gone stale as it was used again, so the request was sent over a new one.")
    return said
