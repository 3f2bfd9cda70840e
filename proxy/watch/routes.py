"""The operators' routes that show what was and what is: history, journal, stream, decisions and single requests.

Who may ask is judged in admin.py, as is everything that acts.
"""

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from proxy.model import DecisionRecord, RequestFacts
from proxy.telling import sentences
from proxy.watch.history import COLUMNS, STEP_S, row
from proxy.watch.remembered import of_request, told_decision, told_facts
from proxy.watch.stream import MAX_READERS
from proxy.watch.watch import Watch

MAX_DECISIONS = 1000
MAX_EVENTS = 500
# The decisions on one request with their unix seconds, and what it ended with.
Found = tuple[list[tuple[float, DecisionRecord]], RequestFacts | None]
UNKNOWN = (
    "no request of this id is remembered; the latest few thousand are: look at x-request-id in its answer, or for "
    "older ones into the log"
)


class Views:
    """Handlers over one proxy's watch, which is looked up at each request."""

    def __init__(self, watch: Callable[[], Watch]) -> None:
        self._watch = watch

    def routes(self) -> list[web.RouteDef]:
        """All of them."""
        return [
            web.get("/history", self.history),
            web.get("/journal", self.journal),
            web.get("/stream", self.stream, allow_head=False),
            web.get("/decisions", self.decisions),
            web.get("/explain/{request_id:.+}", self.explain),
        ]

    async def history(self, request: web.Request) -> web.Response:
        """The samples of the latest `seconds`, oldest first."""
        try:
            seconds = float(request.query.get("seconds", "900"))
            if not seconds > 0:
                raise ValueError
        except ValueError:
            return told({"error": "seconds is a number above 0; half an hour is kept"}, status=400)
        watch = self._watch()
        offset_s, history = watch.offset_s(), watch.history
        latest = history.samples[-1].at_s if history.samples else 0.0
        samples = [row(sample, offset_s) for sample in history.since(latest - seconds)]
        return told({"step_s": STEP_S, "columns": COLUMNS, "samples": samples})

    async def journal(self, request: web.Request) -> web.Response:
        """The newest entries, newest first."""
        limit = _limit(request, 200, MAX_EVENTS)
        if limit is None:
            return told({"error": f"limit is a whole number, 1 to {MAX_EVENTS}"}, status=400)
        watch = self._watch()
        offset_s = watch.offset_s()
        return told({"events": [entry.told(offset_s) for entry in watch.journal.newest(limit)]})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Everything as it happens, until the reader leaves."""
        watch = self._watch()
        if watch.stream.full:
            message = f"{MAX_READERS} read the stream already, or the proxy stops; close one, or ask /history"
            return told({"error": message}, status=503)
        return await watch.stream.serve(request, watch.first())

    async def decisions(self, request: web.Request) -> web.Response:
        """Recent decisions, newest first; with a `request_id` all of that request and how it ended."""
        if (request_id := request.query.get("request_id")) is not None:
            found = self._found(request_id)
            return told({"error": UNKNOWN}, status=404) if found is None else told(_told(*found))
        limit = _limit(request, 100, MAX_DECISIONS)
        if limit is None:
            return told({"error": f"limit is a whole number, 1 to {MAX_DECISIONS}"}, status=400)
        recent = self._watch().decisions()[-limit:]
        return told({"decisions": [told_decision(at_s, record) for at_s, record in reversed(recent)]})

    async def explain(self, request: web.Request) -> web.Response:
        """One request in words."""
        request_id = request.match_info["request_id"]
        found = self._found(request_id)
        if found is None:
            return told({"error": UNKNOWN}, status=404)
        records, facts = found
        return told(
            {
                "request_id": request_id,
                "sentences": sentences([record for _, record in records], facts),
                **_told(*found),
            }
        )

    def _found(self, request_id: str) -> Found | None:
        watch = self._watch()
        decisions = of_request(request_id, watch.decisions())
        facts = watch.settled(request_id)
        return (decisions, facts) if decisions or facts is not None else None


def _told(decisions: list[tuple[float, DecisionRecord]], facts: RequestFacts | None) -> dict[str, Any]:
    return {
        "decisions": [told_decision(at_s, record) for at_s, record in decisions],
        "settled": None if facts is None else told_facts(facts),
    }


def told(value: Any, *, status: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def _limit(request: web.Request, usual: int, most: int) -> int | None:
    """How many are asked for, at most `most`; None where that is no number."""
    try:
        return min(max(int(request.query.get("limit", str(usual))), 1), most)
    except ValueError:
        return None
