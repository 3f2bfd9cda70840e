"""The operators' routes that show what was and what is: history, journal, stream, decisions and single requests.

Who may ask is judged in admin.py, as is everything that acts.
"""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from proxy.model import DecisionRecord, RequestFacts
from proxy.state.settled import MAX_REMEMBERED
from proxy.telling import Running, sentences
from proxy.watch.history import COLUMNS, STEP_S, row
from proxy.watch.json_text import json_text
from proxy.watch.remembered import of_request, told_decision, told_facts, told_failure
from proxy.watch.stream import MAX_READERS
from proxy.watch.watch import Watch

MAX_DECISIONS = 1000
MAX_EVENTS = 500
# A request is decided a few times at most, but a client may give all of its requests one id: the latest are told.
MAX_OF_ONE = 20
# So much of an id `crossover top` shows; of less, the next request may begin alike.
LEAST_CHARS = 8
# The id of one request, the decisions on it with their unix seconds, what it ended with, and where it stands.
Found = tuple[str, list[tuple[float, DecisionRecord]], RequestFacts | None, Running | None]
UNKNOWN = (
    f"no request of this id is remembered; the latest {MAX_REMEMBERED:,} are: look at x-request-id in its answer, or "
    "for older ones into the log"
)
SEVERAL = "several requests that are remembered begin so; give more of the id"


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
            web.get("/failures", self.failures),
        ]

    async def history(self, request: web.Request) -> web.Response:
        """The samples of the latest `seconds`, oldest first."""
        try:
            said = request.query.get("seconds", "900")
            seconds = float(said)
            if not seconds > 0 or "_" in said:
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
        """Recent decisions, newest first; with a `request_id` all of that request, in words too: ids that no path can
        end in (`..`) are asked for here."""
        if (request_id := request.query.get("request_id")) is not None:
            found = self._found(request_id)
            return told({"error": found}, status=404) if isinstance(found, str) else told(_told(*found))
        limit = _limit(request, 100, MAX_DECISIONS)
        if limit is None:
            return told({"error": f"limit is a whole number, 1 to {MAX_DECISIONS}"}, status=400)
        recent = self._watch().decisions()[-limit:]
        return told({"decisions": [told_decision(at_s, record) for at_s, record in reversed(recent)]})

    async def explain(self, request: web.Request) -> web.Response:
        """One request in words."""
        found = self._found(request.match_info["request_id"])
        return told({"error": found}, status=404) if isinstance(found, str) else told(_told(*found))

    async def failures(self, request: web.Request) -> web.Response:
        """The latest requests that failed, newest first, so that each can be asked about."""
        limit = _limit(request, 100, MAX_DECISIONS)
        if limit is None:
            return told({"error": f"limit is a whole number, 1 to {MAX_DECISIONS}"}, status=400)
        failed = self._watch().failed(limit)
        return told({"failures": [told_failure(at_s, facts) for at_s, facts in failed]})

    def _found(self, asked: str) -> Found | str:
        """The request of an id, or of the beginning of one that is remembered; else why there is none."""
        watch = self._watch()
        recent = watch.decisions()
        decisions, facts, running = of_request(asked, recent), watch.settled(asked), watch.running(asked)
        if decisions or facts is not None or running is not None:
            return asked, decisions[-MAX_OF_ONE:], facts if running is None else None, running
        beginning = {record.request_id for _, record in recent if record.request_id.startswith(asked)}
        beginning |= watch.running_ids(asked)
        if len(beginning) != 1 or len(asked) < LEAST_CHARS:
            return SEVERAL if beginning else UNKNOWN
        [request_id] = beginning
        return self._found(request_id)


def _told(
    request_id: str,
    decisions: list[tuple[float, DecisionRecord]],
    facts: RequestFacts | None,
    running: Running | None,
) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "sentences": sentences([record for _, record in decisions], facts, running),
        "decisions": [told_decision(at_s, record) for at_s, record in decisions],
        "settled": None if facts is None else told_facts(facts),
    }


def told(value: Any, *, status: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=json_text(value), status=status, content_type="application/json")


def _limit(request: web.Request, usual: int, most: int) -> int | None:
    """How many are asked for; None where that is no whole number from 1 to `most`."""
    said = request.query.get("limit", str(usual))
    plain = said.isascii() and said.isdecimal() and len(said) <= len(str(most))
    return int(said) if plain and 1 <= int(said) <= most else None
