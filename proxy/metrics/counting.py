"""What is counted as it happens: requests, decisions, refusals, changes, times.

Label values come from closed sets of our own (role, reason, outcome, code) and from the operator's list of clients,
never from a request. Counters and histograms are fed once a request, never once a chunk. Gauges are in gauges.py.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from proxy.closing import CloseReason
from proxy.errors import CrossoverError, OutOfSockets, Side
from proxy.metrics.gauges import GAUGES, ROLE, Reading, Readings
from proxy.metrics.tallies import Tallies
from proxy.metrics.totals import RoleTotals, Totals
from proxy.model import Change, ChangeKind, Decision, Outcome, Reason, RequestFacts, Role

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Latency buckets in seconds. First tokens take from tens of milliseconds to minutes of prefill; tokens from one
# millisecond; whole answers up to ten minutes; the proxy's own part is tens of microseconds.
TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 25, 60, 120, 240)
TPOT_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.1, 0.2, 0.5, 1)
DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 600)
QUEUE_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
OVERHEAD_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25)
# Label values of our own making: no role yet, no status sent, a code that is on no list (so that none can be added).
NO_ROLE = "none"
OTHER = "other"
SOME_ROLE = (*ROLE, NO_ROLE)
SOME_CLIENT = (NO_ROLE, OTHER)  # and the names of the keys file
STATUS_CLASSES = (NO_ROLE, "1xx", "2xx", "3xx", "4xx", "5xx")  # each at its hundreds
# What an engine answered to an attempt that failed: its own words, an overload, a gateway's, or something else.
ENGINE_STATUSES = (NO_ROLE, "200", "429", "500", "502", "503", "504", OTHER)
TOKEN_KINDS = ("prompt", "completion", "cached")
CLIENT_REQUESTS = (
    "Requests for an engine that have ended, by the client's name in the keys file (`listen.api_keys_file`); `none` "
    "where no key is asked for."
)
# The failure of a request whose engine reported an error inside its stream.
ERROR_EVENT = "error_event"


@dataclass(slots=True)
class _Cells:
    """Where requests of one role, outcome and class of status are counted, found once for all of them. `duration` is
    None for those that did not finish; `unnamed` counts those without a client's name."""

    requests: list[int]
    unnamed: list[int]
    attempts: list[int]
    prompt: list[int]
    completion: list[int]
    cached: list[int]
    queue: list[float]
    overhead: list[float]
    duration: list[float] | None
    ttft: list[float]
    tpot: list[float]


class Metrics:
    """The metric families of one proxy, with a registry of its own."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self.codes = frozenset(codes())
        self._faults = frozenset(faults())
        self._names: set[str] = set()  # of clients
        self._endings: dict[tuple[Role | None, Outcome, int], _Cells] = {}  # by role, outcome and status in hundreds
        tallies = Tallies()
        self._begin_counters(tallies)
        self._begin_histograms(tallies)
        self.families = [*tallies.families, *(each.described() for each in GAUGES)]
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(tallies)
        self.registry.register(Readings(read))
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def _begin_counters(self, tallies: Tallies) -> None:
        counter = tallies.counter
        self._requests = counter(
            "requests",
            "Requests for an engine that have ended; role is `none` for those that never got a place.",
            role=SOME_ROLE,
            outcome=tuple(Outcome),
            status_class=STATUS_CLASSES,
        )
        self._clients = counter("client_requests", CLIENT_REQUESTS, client=SOME_CLIENT, outcome=tuple(Outcome))
        self._decisions = counter(
            "decisions", "Routing decisions; a request that fails over has two.", role=ROLE, reason=tuple(Reason)
        )
        self._attempts = counter("attempts", "Requests sent to a backend, replays and failovers included.", role=ROLE)
        self._retries = counter("retries", "Attempts beyond a request's first, by where they went.", role=ROLE)
        self._failures = counter(
            "failures",
            "Requests that an engine or the proxy itself failed, by the error that ended them; not those that failover "
            "saved.",
            role=SOME_ROLE,
            code=(*sorted(self.codes), OTHER),
        )
        self._attempt_failures = counter(
            "attempt_failures",
            "Attempts that an engine failed, also where failover saved the request; `status` is what the engine had "
            "answered.",
            role=ROLE,
            code=(*sorted(self.codes), OTHER),
            status=ENGINE_STATUSES,
        )
        self._refusals = counter(
            "refusals",
            "Requests that the proxy turned away: at its door, for what was wrong with them, or for want of room. No "
            "engine was asked.",
            code=(*sorted(self.codes), OTHER),
        )
        self._closed = counter(
            "connections_closed", "Connections that the proxy ended without an answer.", reason=tuple(CloseReason)
        )
        self._tokens = counter(
            "tokens", "Tokens as answers told them; streams without usage add none.", role=SOME_ROLE, kind=TOKEN_KINDS
        )
        self._changes = counter(
            "changes",
            "Changes of regime, circuit, health, pin and drain, and learning that was suspended.",
            kind=tuple(ChangeKind),
            role=SOME_ROLE,
        )
        self._reloads = counter("config_reloads", "Configuration reloads.", result=("accepted", "rejected"))

    def _begin_histograms(self, tallies: Tallies) -> None:
        histogram = tallies.histogram
        self._ttft = histogram(
            "ttft", "Streams: request head read to first content written.", TTFT_BUCKETS, role=SOME_ROLE
        )
        self._tpot = histogram(
            "tpot", "Streams with usage: time per output token after the first content.", TPOT_BUCKETS, role=SOME_ROLE
        )
        self._duration = histogram(
            "request_duration", "Finished requests: head read to last byte written.", DURATION_BUCKETS, role=SOME_ROLE
        )
        self._queue = histogram("queue", "Waiting for room on a backend, also in vain.", QUEUE_BUCKETS)
        self._overhead = histogram("overhead", "The proxy's own time from admission to sending.", OVERHEAD_BUCKETS)

    def know_clients(self, names: Iterable[str]) -> None:
        """Take up names that requests may be counted under. Those already known stay: their requests may still run."""
        self._names.update(names)

    def request_ended(self, facts: RequestFacts) -> None:
        """Count one request that was decided on, or that never got a place."""
        decision, outcome, attempts = facts.decision, facts.outcome, facts.attempts
        role = decision.role if decision is not None else None
        kind = role, outcome, facts.status // 100
        cells = self._endings.get(kind)
        if cells is None:
            cells = self._endings[kind] = self._new_cells(role or NO_ROLE, outcome, status_class(facts.status))
        cells.requests[0] += 1
        if facts.client_name is None:
            cells.unnamed[0] += 1
        else:
            self._clients.add((self._client(facts.client_name), outcome))
        if attempts == 1 and role is not None:
            cells.attempts[0] += 1
        elif attempts and decision is not None and role is not None:
            self._count_attempts(role, attempts, moved=decision.reason is Reason.FAILOVER)
        if facts.failure is not None or facts.first_failure is not None:
            self._count_failures(facts, role)
        prompt, completion, cached = facts.usage
        cells.prompt[0] += prompt
        cells.completion[0] += completion
        cells.cached[0] += cached
        _time(cells, facts)

    def decided(self, decision: Decision) -> None:
        """Count one decision; a request that fails over has two."""
        self._decisions.add((decision.role or NO_ROLE, decision.reason))

    def refused(self, code: str) -> None:
        """Count one request that the proxy answered itself: it turned it away, or it or both engines failed on it."""
        if code in self._faults:
            self._failures.add((NO_ROLE, self._code(code)))
        else:
            self._refusals.add((self._code(code),))

    def closed(self, reason: CloseReason) -> None:
        """Count one connection that was ended without an answer."""
        self._closed.add((reason,))

    def changed(self, change: Change) -> None:
        """Count one change of the proxy's view of the world."""
        self._changes.add((change.kind.value, change.role.value if change.role else NO_ROLE))

    def reloaded(self, *, accepted: bool) -> None:
        """Count one reload of the configuration."""
        self._reloads.add(("accepted" if accepted else "rejected",))

    def exposition(self) -> bytes:
        """All metrics in Prometheus text format, CONTENT_TYPE."""
        return generate_latest(self.registry)

    def totals(self) -> Totals:
        """Sums since the start."""
        served, by = dict.fromkeys(ROLE, 0), Counter[str]()
        for (role, reason), count in self._decisions.counted():
            by[reason] += count
            if role in served:
                served[role] += count
                if reason == Reason.FAILOVER:  # the other one did not serve it
                    served[Role(role).other] -= count
        failed, refused = Counter[str](), Counter[str]()
        for (_, code), count in self._failures.counted():
            failed[code] += count
        for (code,), count in self._refusals.counted():
            refused[code] += count
        broken = sum(
            count for (_, outcome, _), count in self._requests.counted() if outcome == Outcome.FAILED_AFTER_COMMIT
        )
        speculative, baseline = (self._role_totals(role, served[role]) for role in ROLE)
        return Totals(speculative, baseline, failed.total(), refused.total(), broken, failed, refused, *_apart(by))

    def _role_totals(self, role: str, requests: int) -> RoleTotals:
        tokens = self._tokens.cell((role, "completion"))[0]
        return RoleTotals(requests, tokens, *self._ttft.observed((role,)), *self._tpot.observed((role,)))

    def _count_attempts(self, role: Role, attempts: int, *, moved: bool) -> None:
        """A request that failed over was sent to the other backend first. (Should that have been replayed there too,
        the replay is counted on the second: the facts tell no more.)"""
        first = role.other if moved and attempts > 1 else role
        self._attempts.add((first,))
        if attempts > 1:
            self._attempts.add((role,), attempts - 1)
            self._retries.add((role,), attempts - 1)

    def _count_failures(self, facts: RequestFacts, role: Role | None) -> None:
        """A request that moved failed on the other backend first; one that found no room there failed on one alone."""
        first, last, decision = facts.first_failure, facts.failure, facts.decision
        if last is not None and (role is None or last == OutOfSockets.code):  # which was no engine's
            self.refused(last)
        elif last is not None and role is not None:
            self._failures.add((role, self._code(last)))
        if role is None or decision is None:
            return
        moved = decision.reason is Reason.FAILOVER
        if first is not None:
            at = engine_status(facts.first_failure_status)
            self._attempt_failures.add((role.other if moved else role, self._code(first), at))
        if last in self._faults and facts.attempts and (first is None or moved):
            self._attempt_failures.add((role, self._code(last), engine_status(facts.failure_status)))

    def _code(self, code: str) -> str:
        return code if code in self.codes else OTHER

    def _client(self, name: str | None) -> str:
        return NO_ROLE if name is None else name if name in self._names else OTHER

    def _new_cells(self, role: str, outcome: Outcome, status: str) -> _Cells:
        own = (role,)
        return _Cells(
            requests=self._requests.cell((role, outcome, status)),
            unnamed=self._clients.cell((NO_ROLE, outcome)),
            attempts=self._attempts.cell(own),
            prompt=self._tokens.cell((role, "prompt")),
            completion=self._tokens.cell((role, "completion")),
            cached=self._tokens.cell((role, "cached")),
            queue=self._queue.cell(),
            overhead=self._overhead.cell(),
            duration=self._duration.cell(own) if outcome is Outcome.FINISHED else None,
            ttft=self._ttft.cell(own),
            tpot=self._tpot.cell(own),
        )


def _apart(by: Counter[str]) -> tuple[int, int]:
    """Decisions that the policy had no part in: those by the client's header, and those by a rule."""
    return by[Reason.HEADER], by[Reason.RULE]


def _time(cells: _Cells, facts: RequestFacts) -> None:
    """Observe the times that are known. Written out one by one: a call for each would cost half as much again."""
    queue_s, overhead_s, ttft_s, tpot_s = facts.queue_s, facts.overhead_s, facts.ttft_s, facts.tpot_s
    cells.queue[bisect_left(QUEUE_BUCKETS, queue_s)] += 1
    cells.queue[-1] += queue_s
    if cells.duration is not None:
        cells.duration[bisect_left(DURATION_BUCKETS, facts.duration_s)] += 1
        cells.duration[-1] += facts.duration_s
    if facts.attempts:
        cells.overhead[bisect_left(OVERHEAD_BUCKETS, overhead_s)] += 1
        cells.overhead[-1] += overhead_s
    if ttft_s is not None:
        cells.ttft[bisect_left(TTFT_BUCKETS, ttft_s)] += 1
        cells.ttft[-1] += ttft_s
    if tpot_s is not None:
        cells.tpot[bisect_left(TPOT_BUCKETS, tpot_s)] += 1
        cells.tpot[-1] += tpot_s


def codes(kind: type[CrossoverError] = CrossoverError) -> Iterator[str]:
    """Every code that a failure may have: those of the error tree below `kind`, and the engines' own complaint."""
    yield kind.code
    for each in kind.__subclasses__():
        yield from codes(each)
    if kind is CrossoverError:
        yield ERROR_EVENT


def faults(kind: type[CrossoverError] = CrossoverError) -> Iterator[str]:
    """The codes that are an engine's fault or the proxy's own: all others turn a request away."""
    if kind.side is Side.BACKEND or kind.status == 500:
        yield kind.code
    for each in kind.__subclasses__():
        yield from faults(each)
    if kind is CrossoverError:
        yield ERROR_EVENT


def engine_status(status: int | None) -> str:
    """A status as label: of a closed set, whatever an engine says."""
    return NO_ROLE if status is None else str(status) if str(status) in ENGINE_STATUSES else OTHER


def status_class(status: int) -> str:
    """`2xx` and so on; `none` where no status was sent."""
    return STATUS_CLASSES[status // 100] if 100 <= status < 600 else NO_ROLE
