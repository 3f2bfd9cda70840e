"""Which lines of requests are kept, and what is left out of them: `log.sample` and `log.redact`.

What a request's line says is in requests.py. Lines of changes, of failures and of operators are all kept, whole.
"""

from collections.abc import Collection
from dataclasses import dataclass
from zlib import crc32

from structlog import DropEvent
from structlog.typing import EventDict, WrappedLogger

# Of a question that an engine answered: the one line of a request, beside that of requests_settled, that is sampled.
QUESTION = "question_answered"
# Lines of requests: where a client is named.
_OF_CLIENTS = frozenset({"request_settled", QUESTION, "request_refused", "request_failed"})
# From here on a status is no success.
_FIRST_FAILURE = 400


@dataclass(frozen=True, slots=True)
class Keep:
    """`share` of the requests that went well keep their lines, 0 to 1; fields in `redacted` are left out of all."""

    share: float = 1.0
    redacted: frozenset[str] = frozenset()

    def writes(self, request_id: str) -> bool:
        """Whether a request that went well keeps its lines. It hangs on the id alone, so that all of them do."""
        return self.share >= 1.0 or crc32(request_id.encode(errors="replace")) < self.share * 2**32

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        """A processor: what becomes of a line that goes through structlog. Raises DropEvent where it is not kept."""
        name = event.get("event")
        if name not in _OF_CLIENTS:
            return event
        if name == QUESTION and self.share < 1.0 and event["status"] < _FIRST_FAILURE:
            if not self.writes(event["request_id"]):
                raise DropEvent
            event["sample"] = self.share
        for field in self.redacted:
            event.pop(field, None)
        return event


def keep(sample: float, redact: Collection[str]) -> Keep | None:
    """What is kept by these settings; None where that is everything."""
    return None if sample >= 1.0 and not redact else Keep(sample, frozenset(redact))
