"""Breaker, health and desk as machines that bytes drive: whatever happens in whatever order, the counts stay true.

The desk is compared with a plain list of what was leased. Not here: requests over a wire (front.py).
"""

from dataclasses import dataclass, field

from fakes.rig import LINGER_S, Rig, plan
from fuzz.draws import Draws, require

from proxy.dispatch import Assignment
from proxy.model import ROLES, CircuitState, EngineFacts, Outcome, Role
from proxy.routing import breaker, health
from proxy.routing.breaker import BreakerRules, Circuit, Event
from proxy.routing.health import Evidence, Health, HealthRules
from proxy.state.ledger import LeaseError

MAX_STEPS = 300
STEPS_S = (0.0, 0.001, 0.5, 1.0, 3.0, 10.0, 11.0, 1000.0)
# Instants far from zero differ from their sums by a little.
ROUNDING_S = 1e-6
EVENTS = (Event.SUCCESS, Event.FAILURE, Event.NEUTRAL)
OUTCOMES = tuple(Outcome)
URLS = (("http://a", "http://b"), ("http://b", "http://a"), ("http://a", "http://c"), ("http://c", "http://d"))
VERSIONS = (None, "0.5.10", "0.5.23")


@dataclass
class Sent:
    """One request that a circuit let through."""

    probe: bool
    at_s: float


def circuit(data: bytes) -> None:
    """Never more probes than may be, failures within their bound, and no state that a circuit cannot leave."""
    draws = Draws(data)
    rules = BreakerRules(1 + draws.byte() % 6, (0.5, 1.0, 10.0)[draws.byte() % 3], 1 + draws.byte() % 4)
    now_s, one = 1000.0, Circuit()
    out: list[Sent] = []
    for _ in range(MAX_STEPS):
        if not draws.left:
            break
        code = draws.byte()
        now_s += STEPS_S[code % len(STEPS_S)]
        if code & 8 or not out:
            # A request is sent where the circuit admits it, or all the same when no backend is eligible.
            if breaker.admits(rules, one, now_s) or code & 16:
                out.append(Sent(breaker.is_probe(rules, one, now_s), now_s))
                one = breaker.advance(rules, one, Event.ADMITTED, now_s)
        else:
            sent = out.pop((code >> 4) % len(out))
            event = EVENTS[draws.byte() % len(EVENTS)]
            one = breaker.advance(rules, one, event, now_s, probe=sent.probe, sent_at_s=sent.at_s)
        _require_circuit(rules, one, now_s, out)


def _require_circuit(rules: BreakerRules, one: Circuit, now_s: float, out: list[Sent]) -> None:
    live = [expiry_s for expiry_s in one.probes if expiry_s > now_s]
    require(len(live) <= rules.max_probes, f"{len(live)} probes at once")
    require(one.failures >= 0, "failures below zero")
    require(all(expiry_s <= now_s + rules.open_s for expiry_s in live), "a probe holds its place for too long")
    trying = sum(sent.probe and sent.at_s >= one.since_s and sent.at_s + rules.open_s > now_s for sent in out)
    if one.state is CircuitState.HALF_OPEN:
        require(trying <= rules.max_probes, f"{trying} requests try the backend at once")
    if one.state is CircuitState.CLOSED:
        require(one.failures < rules.max_failures and not one.probes, "closed in spite of its failures")
    if one.state is CircuitState.OPEN and now_s - one.since_s < rules.open_s:
        require(not breaker.admits(rules, one, now_s), "an open circuit admits before its time")
    later_s = now_s + rules.open_s + ROUNDING_S
    require(breaker.admits(rules, one, later_s), "a circuit that never admits again")


def health_signs(data: bytes) -> None:
    """Counts in a row are never negative, one verdict needs its evidence, and good evidence always brings it up."""
    draws = Draws(data)
    rules = HealthRules(1 + draws.byte() % 5, 1 + draws.byte() % 4)
    signs = tuple(Evidence)
    one, now_s, bad, good = Health(), 1000.0, 0, 0
    for _ in range(MAX_STEPS):
        if not draws.left:
            break
        sign = draws.one_of(signs)
        now_s += 1.0
        before, one = one, health.advance(rules, one, sign, now_s)
        bad = bad + 1 if sign in (Evidence.MISS, Evidence.NOT_READY) else 0
        good = good + 1 if sign is Evidence.HIT else 0 if sign in (Evidence.MISS, Evidence.NOT_READY) else good
        require(min(one.misses, one.hits, one.not_ready) >= 0, f"a negative count in {one}")
        if before.up is not one.up:
            require(one.since_s == now_s, "a verdict changed without its time")
        if before.up and one.up is False:
            require(sign is not Evidence.HIT and sign is not Evidence.TOKENS, "good evidence took a backend out")
        if before.up is False and one.up:
            require(good >= rules.min_hits or sign is Evidence.TOKENS, "up again without the hits for it")
        require(not (one.up and one.misses >= rules.max_misses), "up in spite of its misses")
    for _ in range(rules.min_hits):
        one = health.advance(rules, one, Evidence.HIT, now_s)
    require(one.up is True, "hits in a row do not bring a backend up")


@dataclass
class Plainly:
    """What the books must say, kept in the plainest way."""

    open: list[tuple[Assignment, str]] = field(default_factory=list)
    lingering: list[tuple[str, float, int]] = field(default_factory=list)

    def in_flight(self, name: str, now_s: float) -> int:
        running = sum(place.lease.weight for place, of in self.open if of == name)
        return running + sum(weight for of, until_s, weight in self.lingering if of == name and until_s > now_s)


def desk(data: bytes) -> None:
    """In flight is what was leased and not settled, by backend, through reloads; and zero once all is settled."""
    draws = Draws(data)
    limits = (None, 1, 8, 256)
    rig = Rig((draws.one_of(limits), draws.one_of(limits)))
    plainly = Plainly()
    for _ in range(MAX_STEPS):
        if not draws.left:
            break
        _desk_step(draws, rig, plainly)
        _require_books(rig, plainly)
    for place, _ in plainly.open:
        rig.desk.settle(place, Outcome.FINISHED)
    plainly.open.clear()
    rig.now_s = max([rig.now_s, *(until_s for _, until_s, _ in plainly.lingering)]) + 1
    _require_books(rig, plainly)
    require(rig.desk.snapshot().in_flight == 0, "something is in flight after all was settled")


def _desk_step(draws: Draws, rig: Rig, plainly: Plainly) -> None:
    code = draws.byte()
    kind, rest = code % 8, code // 8
    if kind < 3:
        asked = (None, *ROLES)[rest % 3]
        failed = (None, None, *rig.desk.backends)[rest // 3 % 4]
        place = rig.try_assign(1 + draws.byte() % 64, asked, failed=failed)
        if place is not None:
            plainly.open.append((place, place.backend.url))
    elif kind < 5 and plainly.open:
        place, name = plainly.open.pop(rest % len(plainly.open))
        _settle(draws, rig, plainly, place, name)
    elif kind == 5:
        rig.now_s += STEPS_S[rest % len(STEPS_S)]
    elif kind == 6:
        rig.desk.reload(plan(urls=URLS[rest % len(URLS)], linger_s=(LINGER_S, 0.0)[rest // 4 % 2]))
    else:
        backend = rig.desk.backend(ROLES[rest % 2])
        rig.desk.observe_health(backend, tuple(Evidence)[rest // 2 % 4])
        rig.desk.learn_facts(backend, EngineFacts(version=VERSIONS[rest // 8 % 3]))
        rig.desk.drain(backend.role, draining=rest % 5 == 0)
        rig.desk.pin((None, None, None, *ROLES)[rest % 5])


def _settle(draws: Draws, rig: Rig, plainly: Plainly, place: Assignment, name: str) -> None:
    code = draws.byte()
    before = place.lease.book.lingering
    rig.desk.judge(place, EVENTS[code % 3])
    rig.desk.settle(place, OUTCOMES[code // 3 % len(OUTCOMES)], unheard=bool(code & 128))
    if place.lease.book.lingering > before:
        until_s = max(until_s for until_s, _ in place.lease.book._lingering)
        linger_s = rig.desk._linger_s(place, OUTCOMES[code // 3 % len(OUTCOMES)], unheard=bool(code & 128))
        stays = place.lease.book.lingering - before
        plainly.lingering.append((name, min(until_s, rig.now_s + linger_s), stays))
    try:
        rig.desk.settle(place, Outcome.FINISHED)
    except LeaseError:
        return
    require(False, "a lease was settled twice")


def _require_books(rig: Rig, plainly: Plainly) -> None:
    snapshot = rig.desk.snapshot()
    for role in ROLES:
        _require_backend(rig, role, snapshot.of(role).in_flight, plainly)
    for book in rig.desk.ledger.books:
        counts = book.counts(rig.now_s)
        require(min(counts.in_flight, counts.lingering, counts.requests) >= 0, f"negative counts {counts}")
        require(counts.in_flight == plainly.in_flight(book.name, rig.now_s), f"{book.name} counts {counts}")


def _require_backend(rig: Rig, role: Role, in_flight: int, plainly: Plainly) -> None:
    name = rig.desk.backend(role).url
    expected = plainly.in_flight(name, rig.now_s)
    require(in_flight == expected, f"{role} has {in_flight} in flight, leased are {expected}")
    limit = rig.desk.backend(role).max_in_flight
    require(limit is None or limit >= 0, "a limit below zero")
