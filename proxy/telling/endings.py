"""What came of a request: status, durations, tokens, or what it failed for. Why it went where is in reasons.py."""

from collections.abc import Callable
from math import isfinite

from proxy.model import Outcome, RequestFacts
from proxy.telling.figures import count, seconds

# What each failure means, by its code; a code that is not here is told as it is.
_FAILURES = {
    "queue_full": "no backend had room and queue.max_waiting requests waited already",
    "queue_timeout": "it found no room within queue.max_wait_s",
    "bodies_full": "request bodies in memory were at listen.max_held_body_bytes",
    "shutting_down": "the proxy was stopping",
    "session_unrouted": "it names state, and nothing says which engine has it",
    "state_unreachable": "the backend that has the state it names takes no requests",
    "backend_unreachable": "no connection to the backend could be made",
    "out_of_sockets": "the proxy had no open file, local port or memory left for a connection",
    "connect_timeout": "no connection to the backend was made within timeouts.connect_s",
    "backend_broken": "the backend failed it, or broke off",
    "first_byte_timeout": "the backend sent nothing within timeouts.first_byte_s",
    "backend_silent": "the backend sent nothing and went down, and the other one took it no more",
    "stall_timeout": "the answer stood still for timeouts.stall_s",
    "stream_cut": "the backend ended the stream before its end",
    "backend_busy": "the backend said that its queue is full",
    "error_event": "the engine reported an error inside the answer",
    "body_timeout": "the client stopped sending its body",
    "body_too_slow": "the client sent its body too slowly",
    "body_too_large": "its body is over listen.max_body_bytes",
}


def ending(facts: RequestFacts) -> list[str]:
    """One sentence or two on how a request ended."""
    told = _ENDINGS[facts.outcome](facts, seconds(facts.duration_s)) + _silence(facts) + "."
    whole = facts.outcome in (Outcome.FINISHED, Outcome.FAILED_AFTER_COMMIT) and facts.status < 400
    return [told, *_tokens(facts)] if whole else [told]


def _finished(facts: RequestFacts, took: str) -> str:
    if facts.status >= 400:
        return f"The engine refused it with status {facts.status} after {took}: the request itself was wrong"
    return f"It ended well after {took}, with status {facts.status}{_speeds(facts)}"


def _failed(facts: RequestFacts, took: str) -> str:
    if not facts.attempts:
        return (
            f"The proxy turned it away after {took}, with status {facts.status}{_failure(facts)}; no engine was asked"
        )
    return f"It failed after {took}, with status {facts.status}{_failure(facts)}"


def _broke(facts: RequestFacts, took: str) -> str:
    return f"Its answer broke after {took}{_failure(facts)}; nothing is retried by then"


def _left_waiting(facts: RequestFacts, took: str) -> str:
    return f"The client left after {took}, before its answer had begun"


def _left_in_stream(facts: RequestFacts, took: str) -> str:
    return f"The client left after {took}, in the midst of its answer{_speeds(facts)}"


def _shut_down(facts: RequestFacts, took: str) -> str:
    return f"The proxy shut down after {took}, before its answer was complete"


def _failure(facts: RequestFacts) -> str:
    if facts.failure is None:
        return ""
    return f": {_FAILURES[facts.failure]} ({facts.failure})" if facts.failure in _FAILURES else f" ({facts.failure})"


def _silence(facts: RequestFacts) -> str:
    """What the backend was as the request ended, where that explains more than who ended it."""
    role = None if facts.decision is None else facts.decision.role
    if role is None or facts.backend_out is None:
        return ""
    silent = None if facts.silent_s is None else f"had given no sign of life for {seconds(facts.silent_s)}"
    down = "counted as down" if facts.backend_out == "down" else None
    return f"; {role} {' and '.join(said for said in (silent, down) if said)}"


def _speeds(facts: RequestFacts) -> str:
    said = ""
    if facts.ttft_s is not None and isfinite(facts.ttft_s):
        said += f", the first token after {seconds(facts.ttft_s)}"
    if facts.tpot_s is not None and isfinite(facts.tpot_s):
        said += f", each further one after {seconds(facts.tpot_s)}"
    return said


def _tokens(facts: RequestFacts) -> list[str]:
    usage = facts.usage
    if not usage.completion_tokens and not usage.prompt_tokens:
        return []
    cached = f" ({usage.cached_tokens:,} of them cached)" if usage.cached_tokens else ""
    read = f"read {count(usage.prompt_tokens, 'token')}{cached} and " if usage.prompt_tokens else ""
    return [f"By its own count the engine {read}generated {count(usage.completion_tokens, 'token')}."]


_ENDINGS: dict[Outcome, Callable[[RequestFacts, str], str]] = {
    Outcome.FINISHED: _finished,
    Outcome.FAILED_BEFORE_COMMIT: _failed,
    Outcome.FAILED_AFTER_COMMIT: _broke,
    Outcome.CLIENT_GONE_WAITING: _left_waiting,
    Outcome.CLIENT_GONE_IN_STREAM: _left_in_stream,
    Outcome.SHUT_DOWN: _shut_down,
}
